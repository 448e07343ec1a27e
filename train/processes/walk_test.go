package processes

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// TestExpectedWalk: what a worker expects to train on is its part of each update, of all rows, of each round, or its virtual shards.
func TestExpectedWalk(t *testing.T) {
	rounds := func(_ *trivium.Job, _ json.RawMessage, rows int64) int { return int(rows / 10) }
	for _, c := range []struct {
		name     string
		topology Topology
		workers  int
		order    string
		exact    bool
		summed   bool
		want     *data.BatchOptions
	}{
		{"alone", Topology{}, 1, "index", false, false, nil},
		{"alone and summed", Topology{}, 1, "index", false, true, &data.BatchOptions{Batch: 60, Last: trivium.LastDrop, Parts: 1}},
		{"shuffled", Topology{}, 3, "", false, false, nil},
		{"updates", Topology{}, 3, "index", false, false, &data.BatchOptions{Batch: 60, Last: trivium.LastDrop, Part: 2, Parts: 3}},
		{"rounds", Topology{Round: rounds}, 3, "index", false, false, &data.BatchOptions{Batch: 100, Last: trivium.LastDrop, Part: 2, Parts: 3}},
		{"own rows", Topology{Shards: true}, 3, "index", false, false, &data.BatchOptions{Batch: trivium.FullBatch, Last: trivium.LastKeep, Part: 2, Parts: 3}},
		{"exact", Topology{}, 3, "index", true, false, &data.BatchOptions{Batch: 60, Last: trivium.LastDrop, Part: 10, Parts: 16, Span: 6}},
	} {
		job := &trivium.Job{Batch: 60, Last: trivium.LastDrop, Exact: c.exact, Shards: 16, Data: trivium.Data{Order: c.order}}
		w := &worker{a: &Assignment{Index: c.workers - 1, Workers: c.workers, Summed: c.summed}, job: job}
		walk := w.walk(c.topology)
		switch {
		case (walk == nil) != (c.want == nil):
			t.Errorf("%s: a walk is expected: %v", c.name, walk != nil)
		case walk != nil && !reflect.DeepEqual(walk(1000), *c.want):
			t.Errorf("%s: %+v, want %+v", c.name, walk(1000), *c.want)
		}
	}
}
