package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/average"
	"github.com/trivium-ml/trivium/train/processes"
)

// alone is the topology of one process.
const alone = "local"

// shared are the topologies of several workers. The first is taken where none is named.
var shared = processes.Topologies{
	{
		Name: "average", Check: average.Check, Shards: true,
		New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
			return average.New(env, average.Options{}), nil
		},
	},
}

// topologyNames returns all that --topology takes.
func topologyNames() []string {
	names := []string{alone}
	for _, t := range shared {
		names = append(names, t.Name)
	}
	return names
}

// checkTopology refuses a topology that this version does not have.
func checkTopology(name string) error {
	if name != "" && !slices.Contains(topologyNames(), name) {
		return fmt.Errorf("no topology is called %q; this version trains under %s", name, strings.Join(topologyNames(), " and "))
	}
	return nil
}

// settle completes the topology, and refuses what it cannot do with the job.
func (t *training) settle() error {
	if t.topology == "" {
		t.topology = alone
		if t.workers > 1 || t.processes {
			t.topology = shared[0].Name
		}
	}
	if t.topology == alone {
		switch {
		case t.workers > 1:
			return fmt.Errorf("--workers %d: local is one worker; name another topology, such as --topology %s", t.workers, shared[0].Name)
		case t.processes, t.ship:
			return fmt.Errorf("local has no worker processes: --processes and --ship-data are for --topology %s", shared[0].Name)
		}
		return nil
	}
	if x, ok := shared.Find(t.topology); ok && x.Check != nil {
		return x.Check(t.job)
	}
	return nil
}
