package processes_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/average"
	"github.com/trivium-ml/trivium/train/processes"
)

// TestAdapt: a worker takes as many of its threads as make its steps fastest where the driver says so and the worker is alone: others would be
// waited for in the steps that are measured.
func TestAdapt(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers int
		threads int
		adapt   bool
		want    bool
	}{
		{"one worker", 1, 2, true, true},
		{"one worker that was told how many", 1, 2, false, false},
		{"one worker of one thread", 1, 1, true, false},
		{"two workers", 2, 2, true, false},
	} {
		var mu sync.Mutex
		var got []bool
		looks := topology
		looks.New = func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, env.CPU.Width() != nil)
			return nearby{average.New(env, average.Options{}), env.Near}, nil
		}
		d := driver(t, func(_ string, o *processes.Options) { o.Topologies = processes.Topologies{looks} })
		d.Topology, d.Workers, d.Threads, d.Adapt = looks, c.workers, c.threads, c.adapt
		if _, err := d.Train(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(got) != c.workers {
			t.Errorf("%s: %d strategies were made, want %d", c.name, len(got), c.workers)
		}
		for _, adapts := range got {
			if adapts != c.want {
				t.Errorf("%s: adapts: %t, want %t", c.name, adapts, c.want)
			}
		}
	}
}
