package app

import (
	"encoding/json"
	"testing"

	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/server"
)

// TestLooseMode: a run whose bits depend on who was late is not called a fault when it does not repeat.
func TestLooseMode(t *testing.T) {
	options := func(m ps.Mode) json.RawMessage {
		o := server.DefaultOptions()
		o.Mode = m
		p, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		topology string
		options  json.RawMessage
		want     string
	}{
		{"local", nil, ""},
		{"allreduce", nil, ""},
		{"server", nil, "ssp"},
		{"server", options(ps.SSP), "ssp"},
		{"server", options(ps.ASP), "asp"},
		{"server", options(ps.BSP), ""},
	} {
		if got := looseMode(&training{topology: c.topology, options: c.options}); got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.topology, c.options, got, c.want)
		}
	}
}
