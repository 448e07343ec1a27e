package rundir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Fields are what a head says of the job, the data, the program and the machine, by dotted names: those of a job's keys are its own, as
// optimizer.rate; of the rest there are option.mode, build.go and host.cpu. Numbers are json.Number, as they are written. What is not known has
// no field. Name, begin and command are not among them.
func (h Head) Fields() map[string]any {
	out := map[string]any{"strategy": h.Strategy, "model": h.Model, "data.checksum": h.DataChecksum, "kernels": h.Kernels, "job": h.ConfigurationHash}
	for k, n := range map[string]int64{
		"threads": int64(h.Threads), "workers": int64(max(1, h.Workers)), "servers": int64(h.Servers), "machines": int64(h.Machines), "checkpoint_every": h.CheckpointEvery,
	} {
		if n > 0 {
			out[k] = json.Number(strconv.FormatInt(n, 10))
		}
	}
	for k, v := range h.Versions {
		out["build."+k] = v
	}
	for i, n := range h.Notes {
		out[fmt.Sprintf("note.%d", i+1)] = n
	}
	for prefix, object := range map[string]json.RawMessage{"option.": h.Options, "host.": h.Host, "": h.Configuration} {
		_ = flatten(out, prefix, object) // what does not decode has none
	}
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == "" })
	return out
}

// JobFields are those of the job.
func (h Head) JobFields() (map[string]any, error) {
	out := map[string]any{}
	if err := flatten(out, "", h.Configuration); err != nil {
		return nil, fmt.Errorf("rundir: the job: %w", err)
	}
	return out, nil
}

// flatten puts the leaves of an object into out, by their dotted names. Numbers stay as they are written: a float64 does not hold every
// seed, and would make 1e+06 of a million rows.
func flatten(out map[string]any, prefix string, object json.RawMessage) error {
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return err
	}
	flattenTree(out, prefix, tree)
	return nil
}

func flattenTree(out map[string]any, prefix string, tree map[string]any) {
	for k, v := range tree {
		switch v := v.(type) {
		case map[string]any:
			flattenTree(out, prefix+k+".", v)
		case []any:
			var words []string
			for _, w := range v {
				words = append(words, fmt.Sprint(w))
			}
			out[prefix+k] = strings.Join(words, ",")
		default:
			out[prefix+k] = v
		}
	}
}

// A Difference is a field whose value is not the same in two runs. An absent value is empty.
type Difference struct{ Key, A, B string }

// Diff returns what differs between the fields of two runs, in their order.
func Diff(a, b map[string]any) (out []Difference) {
	text := func(v any) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if x, y := text(a[k]), text(b[k]); x != y {
			out = append(out, Difference{k, x, y})
		}
	}
	return out
}
