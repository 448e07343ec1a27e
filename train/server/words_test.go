package server

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/ps"
)

// TestWords: a run directory has the options in the words of the command line, and what it has, an earlier version's numbers too, is read back.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Mode: ps.BSP, Servers: 2}, `{"mode":"bsp","staleness":0,"servers":2}`},
		{Options{Mode: ps.SSP, Staleness: 2, Slow: Slow{Worker: 1, Factor: 2}}, `{"mode":"ssp","staleness":2,"slow":"worker=1,factor=2"}`},
		{
			Options{Mode: ps.ASP, OptimizerAt: AtWorker, Clocks: 10, Slow: Slow{Rotate: true, Factor: 1.5, Unit: 20 * time.Millisecond}},
			`{"mode":"asp","optimizer_at":"worker","staleness":0,"clocks":10,"slow":"worker=rotate,factor=1.5,unit=20ms"}`,
		},
		{Options{Mode: ps.ESSP, Staleness: 3}, `{"mode":"essp","staleness":3}`},
	} {
		p, err := json.Marshal(c.o)
		if err != nil || string(p) != c.want {
			t.Errorf("%+v is %s, %v; want %s", c.o, p, err, c.want)
		}
		got := DefaultOptions()
		if err := json.Unmarshal(p, &got); err != nil || got != c.o {
			t.Errorf("%s is read as %+v, %v", p, got, err)
		}
	}
	got := DefaultOptions()
	earlier := `{"mode":3,"servers":2,"optimizer_at":1,"slow":{"worker":2,"factor":3,"unit":20000000}}`
	want := Options{Mode: ps.ASP, Staleness: ps.DefaultStaleness, Servers: 2, OptimizerAt: AtWorker, Slow: Slow{Worker: 2, Factor: 3, Unit: 20 * time.Millisecond}}
	if err := json.Unmarshal([]byte(earlier), &got); err != nil || got != want {
		t.Errorf("an earlier version's %s is read as %+v, %v", earlier, got, err)
	}
	for text, want := range map[string]string{
		`{"mode":"bps"}`: "mode: want ssp, essp, bsp, asp, found bps", `{"mode":4}`: "found 4", `{"optimizer_at":"there"}`: "want server, worker, found there",
		`{"slow":"worker=x"}`: "want a number or rotate", `{"slow":7}`: "cannot unmarshal",
	} {
		if err := json.Unmarshal([]byte(text), new(Options)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
