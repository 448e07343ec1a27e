package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/compare"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/average"
	"github.com/trivium-ml/trivium/train/links"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/server"
)

// alone is the topology of one process.
const alone = "local"

// shared are the topologies whose workers may be processes.
var shared = processes.Topologies{
	{
		Name: alone,
		New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
			return local.New(env, local.Options{}), nil
		},
	},
	{
		Name:  summed,
		Check: func(job *trivium.Job) error { return allreduce.Options{}.Check(job, nil) }, // configure knows the options
		New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
			o, err := summedOptions(options)
			return allreduce.New(env, o), err
		},
	},
	{
		Name: served,
		Apart: func(options json.RawMessage) bool {
			o, err := serverOptions(options)
			return err == nil && o.Mode != ps.BSP
		},
		Round: func(job *trivium.Job, options json.RawMessage, rows int64) int {
			o, err := serverOptions(options)
			if err != nil { // New says so
				return job.Batch
			}
			return o.RowsPerRound(job, rows)
		},
		New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
			o, err := serverOptions(options)
			return server.New(env, o), err
		},
	},
	{
		Name: "average", Check: average.Check, Shards: true,
		New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
			return average.New(env, average.Options{}), nil
		},
	},
}

func summedOptions(text json.RawMessage) (o allreduce.Options, err error) {
	if len(text) > 0 {
		if err = json.Unmarshal(text, &o); err != nil {
			err = fmt.Errorf("allreduce: its options: %w", err)
		}
	}
	return o, err
}

func serverOptions(text json.RawMessage) (server.Options, error) {
	o := server.DefaultOptions()
	if len(text) > 0 {
		if err := json.Unmarshal(text, &o); err != nil {
			return o, fmt.Errorf("server: its options: %w", err)
		}
	}
	return o, nil
}

// started are what worker processes can be started for: the topologies, trials of them, and a measurement of the links between them.
var started = append(slices.Clone(shared), compare.Trials(shared), processes.Topology{
	Name: "links", Bare: true,
	New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
		var o links.Options
		if len(options) > 0 {
			if err := json.Unmarshal(options, &o); err != nil {
				return nil, fmt.Errorf("bench net: %w", err)
			}
		}
		return links.New(env, o), nil
	},
})

// topologyNames returns all that --topology takes.
func topologyNames() []string {
	var names []string
	for _, t := range shared {
		names = append(names, t.Name)
	}
	return names
}

// checkTopology refuses a topology that this version does not have.
func checkTopology(name string) error {
	if name != "" && !slices.Contains(topologyNames(), name) {
		return fmt.Errorf("no topology is called %q; %s", name, nearest.Sentence(name, topologyNames()))
	}
	return nil
}

// several is the topology of several workers where none is named, summed the one that takes topologyFlags.
const (
	several = summed
	summed  = "allreduce"
)

// topologyFlags are options of a topology.
type topologyFlags struct {
	Compress   string `group:"Run" placeholder:"CODEC" help:"allreduce, server: send gradients by a codec with error feedback, such as topk:0.01 (help topologies)."`
	Every      amount `group:"Run" placeholder:"H" help:"allreduce: local SGD; average the models every H updates, in place of adding gradients in each."`
	Accumulate amount `group:"Run" placeholder:"N" help:"allreduce: compute a worker's part of an update in N pieces, for batches that do not fit the memory."`
	Shard      bool   `name:"shard-optimizer" group:"Run" help:"allreduce: each worker keeps the optimizer's state of its part of the parameters alone (ZeRO, stage 1)."`
	Calibrate  bool   `group:"Run" help:"allreduce: first measure, for 2 s at most, what sums cost among the workers, and choose their algorithms by that."`
}

// configure gives t the options of its topology, or says what is wrong with them.
func (f topologyFlags) configure(s *session, t *training) error {
	if t.topology == served { // serve takes it
		f.Compress = ""
	}
	if f == (topologyFlags{}) {
		return nil
	}
	if t.topology != summed {
		if f.Compress != "" {
			return misplaced([]string{"--compress"}, summed+" and "+served, t.topology)
		}
		return misplaced(f.args(), summed, t.topology)
	}
	o := allreduce.Options{Compress: f.Compress, Every: int64(f.Every), Accumulate: int(f.Accumulate), ShardOptimizer: f.Shard, Calibrate: f.Calibrate}
	if err := o.Check(t.job, s.optimizers); err != nil {
		return err
	}
	var err error
	t.options, err = json.Marshal(o)
	return err
}

// misplaced says that the flags among the words are options of owner, and not of the topology that was named.
func misplaced(words []string, owner, topology string) error {
	var flags []string
	for _, w := range words {
		if strings.HasPrefix(w, "--") {
			flags = append(flags, w)
		}
	}
	are := " is an option"
	if len(flags) > 1 {
		are = " are options"
	}
	return fmt.Errorf("%s%s of %s, not of %s", strings.Join(flags, ", "), are, owner, topology)
}

// args are the flags as they are typed.
func (f topologyFlags) args() (list []string) {
	if f.Compress != "" {
		list = append(list, "--compress", f.Compress)
	}
	if f.Every != 0 {
		list = append(list, "--every", fmt.Sprint(f.Every))
	}
	if f.Accumulate != 0 {
		list = append(list, "--accumulate", fmt.Sprint(f.Accumulate))
	}
	if f.Shard {
		list = append(list, "--shard-optimizer")
	}
	if f.Calibrate {
		list = append(list, "--calibrate")
	}
	return list
}

// settle completes the topology, and refuses what it cannot do with the job.
func (t *training) settle() error {
	if t.topology == "" {
		t.topology = alone
		if t.workers > 1 {
			t.topology = several
		}
	}
	if t.topology == alone && t.workers > 1 {
		return fmt.Errorf("--workers %d: local is one worker; name another topology, such as --topology %s", t.workers, several)
	}
	if t.ship && t.topology == alone && !t.processes {
		return errors.New("--ship-data: there is no other process to send the rows to")
	}
	if x, ok := shared.Find(t.topology); ok && x.Check != nil {
		return x.Check(t.job)
	}
	return nil
}
