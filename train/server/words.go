package server

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trivium-ml/trivium/ps"
)

// plain are Options without the words below.
type plain Options

// worded are Options as a run directory has them: in the words of the command line, by which people read, compare and find runs.
type worded struct {
	Mode        word `json:"mode"`
	OptimizerAt word `json:"optimizer_at,omitempty"`
	*plain
}

func (o *Options) worded() worded {
	return worded{Mode: word(o.Mode.String()), OptimizerAt: word(o.OptimizerAt.String()), plain: (*plain)(o)}
}

// MarshalJSON implements json.Marshaler.
func (o Options) MarshalJSON() ([]byte, error) {
	w := o.worded()
	if o.OptimizerAt == AtServer {
		w.OptimizerAt = ""
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler. What p does not have stays as it is.
func (o *Options) UnmarshalJSON(p []byte) error {
	w := o.worded()
	if err := json.Unmarshal(p, &w); err != nil {
		return err
	}
	mode, err := w.Mode.among("mode", ps.SSP.String(), ps.ESSP.String(), ps.BSP.String(), ps.ASP.String())
	if err != nil {
		return err
	}
	place, err := w.OptimizerAt.among("optimizer_at", AtServer.String(), AtWorker.String())
	o.Mode, o.OptimizerAt = ps.Mode(mode), Place(place)
	return err
}

// A word is one of a few. Earlier versions wrote its number.
type word string

func (w *word) UnmarshalJSON(p []byte) error {
	if p[0] != '"' {
		*w = word(p)
		return nil
	}
	return json.Unmarshal(p, (*string)(w))
}

// among returns which of the words w is.
func (w word) among(key string, words ...string) (int, error) {
	for i, known := range words {
		if string(w) == known || string(w) == fmt.Sprint(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("server: %s: want %s, found %s", key, strings.Join(words, ", "), string(w))
}

// String is what ParseSlow reads.
func (o Slow) String() string {
	who := fmt.Sprintf("worker=%d", o.Worker)
	if o.Rotate {
		who = "worker=rotate"
	}
	words := []string{who, fmt.Sprintf("factor=%v", o.Factor)}
	if o.Unit != 0 {
		words = append(words, "unit="+o.Unit.String())
	}
	return strings.Join(words, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (o Slow) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalJSON implements json.Unmarshaler. Earlier versions wrote an object.
func (o *Slow) UnmarshalJSON(p []byte) (err error) {
	type plain Slow
	if p[0] != '"' {
		return json.Unmarshal(p, (*plain)(o))
	}
	var text string
	if err = json.Unmarshal(p, &text); err == nil {
		*o, err = ParseSlow(text)
	}
	return err
}
