package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/server"
)

// strategies are our rows, a line each: one that Trivium gains later appears by its line here. Each is trained by the topology of that
// name, with those options, as `trivium train --processes` does it.
var strategies = []row{
	{name: "local", title: "one process, one thread", topology: "local", flags: "", alone: true},
	{name: "local-cores", title: "one process, as many of all cores as make it fastest", topology: "local", alone: true, allCores: true},
	{name: "server-bsp", title: "parameter server, BSP, optimizer at the server", topology: "server", mode: Sync, options: server.Options{Mode: ps.BSP}, flags: "--consistency bsp"},
	{name: "server-bsp-worker", title: "parameter server, BSP, optimizer at the worker", topology: "server", mode: Sync, options: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}, flags: "--consistency bsp --optimizer-on worker"},
	{name: "server-ssp1", title: "parameter server, SSP 1", topology: "server", mode: Stale(1), options: server.Options{Mode: ps.SSP, Staleness: 1}, flags: "--consistency ssp:1"},
	{name: "server-ssp3", title: "parameter server, SSP 3", topology: "server", mode: Stale(3), options: server.Options{Mode: ps.SSP, Staleness: 3}, flags: "--consistency ssp:3"},
	{name: "server-ssp3-worker", title: "parameter server, SSP 3, optimizer at the worker", topology: "server", mode: Stale(3), options: server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker}, flags: "--consistency ssp:3 --optimizer-on worker"},
	{name: "server-ssp5", title: "parameter server, SSP 5", topology: "server", mode: Stale(5), options: server.Options{Mode: ps.SSP, Staleness: 5}, flags: "--consistency ssp:5"},
	{name: "server-ssp10", title: "parameter server, SSP 10", topology: "server", mode: Stale(10), options: server.Options{Mode: ps.SSP, Staleness: 10}, flags: "--consistency ssp:10"},
	{name: "server-asp", title: "parameter server, ASP", topology: "server", mode: Async, options: server.Options{Mode: ps.ASP}, flags: "--consistency asp"},
	{name: wholeRow, title: "parameter server, ASP, whole steps", topology: "server", mode: Async, options: server.Options{Mode: ps.ASP}, flags: "--consistency asp", whole: true},
	{name: "server-ssp3-clock1", title: "PMLS's way: per-sample SGD, SSP 3, 1 clock an epoch", topology: "server", mode: Stale(3), options: server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker, Clocks: 1}, flags: "--consistency ssp:3 --optimizer-on worker --clocks 1", clocks: 1, approx: perSample},
	{name: "server-ssp3-clock10", title: "PMLS's way: per-sample SGD, SSP 3, 10 clocks an epoch", topology: "server", mode: Stale(3), options: server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker, Clocks: 10}, flags: "--consistency ssp:3 --optimizer-on worker --clocks 10", clocks: 10, approx: perSample},
	{name: "server-ssp3-clock100", title: "PMLS's way: per-sample SGD, SSP 3, 100 clocks an epoch", topology: "server", mode: Stale(3), options: server.Options{Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker, Clocks: 100}, flags: "--consistency ssp:3 --optimizer-on worker --clocks 100", clocks: 100, approx: perSample},
	{name: "server-bsp-slow", title: "parameter server, BSP, one worker half as fast", topology: "server", mode: Sync, options: server.Options{Mode: ps.BSP, Slow: straggler}, flags: "--consistency bsp --slow worker=1,factor=2"},
	{name: "server-ssp3-slow", title: "parameter server, SSP 3, one worker half as fast", topology: "server", mode: Stale(3), options: server.Options{Mode: ps.SSP, Staleness: 3, Slow: straggler}, flags: "--consistency ssp:3 --slow worker=1,factor=2"},
	{name: "server-ssp10-slow", title: "parameter server, SSP 10, one worker half as fast", topology: "server", mode: Stale(10), options: server.Options{Mode: ps.SSP, Staleness: 10, Slow: straggler}, flags: "--consistency ssp:10 --slow worker=1,factor=2"},
	{name: "server-asp-slow", title: "parameter server, ASP, one worker half as fast", topology: "server", mode: Async, options: server.Options{Mode: ps.ASP, Slow: straggler}, flags: "--consistency asp --slow worker=1,factor=2"},
	{name: "allreduce", title: "allreduce", topology: "allreduce", mode: Sync, options: allreduce.Options{}},
	{name: "allreduce-shm", title: "allreduce over shared memory", topology: "allreduce", mode: Sync, options: allreduce.Options{}, shared: true},
	{name: "allreduce-topk", title: "allreduce, the largest 1 % of cells", topology: "allreduce", mode: Sync, options: allreduce.Options{Compress: "topk:0.01"}, flags: "--compress topk:0.01", approx: "a codec drops what is small until it adds up"},
	{name: "allreduce-f16", title: "allreduce, half precision", topology: "allreduce", mode: Sync, options: allreduce.Options{Compress: "f16"}, flags: "--compress f16", approx: "a codec rounds gradients to half precision"},
	{name: "allreduce-local8", title: "local SGD, averaged every 8 updates", topology: "allreduce", mode: Sync, options: allreduce.Options{Every: 8}, flags: "--every 8", approx: "workers train apart between two averages"},
}

// straggler makes worker 1 take twice as long for each update, as in the published sweeps of staleness.
var straggler = server.Slow{Worker: 1, Factor: 2}

// slow ends the names of rows with a straggler, which are for the sweep of staleness alone.
const slow = "-slow"

// The rows of `compare --quick`, and those that a user's own job is compared under where he names none.
var (
	quickRows = []string{"local", "server-bsp", "server-ssp3", "allreduce"}
	ownRows   = []string{"local", "local-cores", "server-bsp", "server-ssp3", "server-asp", "allreduce"}
)

// A row is a strategy with its options.
type row struct {
	name, title string
	topology    string // of train
	options     any    // of the topology
	flags       string // of `trivium train`, beside --topology, that give those options
	mode        Mode
	approx      string
	alone       bool // one process
	allCores    bool // with a thread a core, of which steps take as many as make them fastest
	shared      bool // its processes share memory
	whole       bool // a worker's step is as long as that of all together: ASP makes a share of it, see wholeSteps
	clocks      int  // per-sample SGD on a copy of each worker's own, which meets the tables so often an epoch; 0: it is not that
}

// perSample is why those rows prove nothing, and sampleRate their learning rate: 0.1 over a batch of 100.
const (
	perSample  = "each worker takes steps of one row on a copy of its own"
	sampleRate = 0.001
)

// wholeRow is the row whose asynchronous workers make whole steps.
const wholeRow = "server-asp-whole"

// wholeSteps is said where an asynchronous row of ours stands beside another system's.
const wholeSteps = "Where workers step by themselves, Trivium makes each step the worker's share of one, so that a rate means the same in every mode. MXNet's and TensorFlow's asynchronous workers make whole steps, so that they train at as many times the rate as there are workers: by the row " + wholeRow + " Trivium does too. The others compare in samples/s, and not in time to target."

// leftOut is said where a net of ours stands beside another system's.
const leftOut = "Where most numbers that a net is fed are zero, as they are of images, Trivium leaves them out of the products of a first layer of 48 outputs or more. The other systems multiply them too. On data without zeros both do the same work, and Trivium's lead is smaller."

func (r *row) about() About {
	a := About{Title: r.title, Mode: r.mode, Alone: r.alone, Approx: r.approx, Full: true, Shared: r.shared}
	if r.alone {
		a.Mode = Sync
	}
	if r.topology == "server" {
		a.Server = 1
	}
	a.Full, a.Clocks = r.clocks == 0, r.clocks
	return a
}

func (r *row) encoded() (json.RawMessage, error) {
	if r.options == nil {
		return nil, nil
	}
	return json.Marshal(r.options)
}

// every is the number of updates between two averages of local SGD.
func (r *row) every() int64 {
	if o, ok := r.options.(allreduce.Options); ok {
		return o.Every
	}
	return 0
}

// Strategies returns our rows.
func Strategies(h Host) []System {
	var list []System
	for i := range strategies {
		list = append(list, &own{row: &strategies[i], host: h})
	}
	return list
}

// PickSystems returns the systems of those names; of one that there is not, the error says which is near, or which there are.
func PickSystems(all []System, names []string) ([]System, error) {
	var list []System
	var known []string
	for _, s := range all {
		known = append(known, s.Name())
	}
	var errs []error
	for _, n := range names {
		if i := slices.Index(known, n); i >= 0 {
			list = append(list, all[i])
		} else {
			errs = append(errs, fmt.Errorf("compare: no system is called %q; %s", n, nearest.Sentence(n, known)))
		}
	}
	return list, errors.Join(errs...)
}

// QuickRows names the rows of `compare --quick`.
func QuickRows() []string { return slices.Clone(quickRows) }

// OwnRows names the rows of a user's own job.
func OwnRows() []string { return slices.Clone(ownRows) }

// QuickTasks names the tasks of `compare --quick`, of those that there is data for.
func QuickTasks(all []Task) []string {
	names := []string{"softmax-10k", "mlp1-10k"}
	if !slices.ContainsFunc(all, func(t Task) bool { return t.Name == names[0] }) {
		names = []string{"softmax", "mlp1"}
	}
	return names
}

// PaperTasks are those of a comparison that names none: logistic regression, and the three of MNIST on the best that there is of it, its
// four files, else its 10,000 test images, else generated digits. The others, and what is optional, are there by their names.
func PaperTasks(all []Task) []Task {
	onDigits := func(t Task) bool { return t.Job.Data.Source == "digits" }
	drop := tenth
	if slices.ContainsFunc(all, onDigits) && slices.ContainsFunc(all, tenth) {
		drop = onDigits
	}
	return slices.DeleteFunc(slices.Clone(all), func(t Task) bool { return drop(t) || optional(t) })
}

// ParseLink reads "750mbit", "10gbit" or "none".
func ParseLink(s string) (Link, error) {
	if s == "none" {
		return Link{}, nil
	}
	for _, unit := range []struct {
		name string
		mbit int
	}{{"mbit", 1}, {"gbit", 1000}} {
		if n, ok := strings.CutSuffix(strings.ToLower(s), unit.name); ok {
			rate, err := strconv.Atoi(strings.TrimSpace(n))
			if err == nil && rate > 0 && rate <= 100_000/unit.mbit {
				return Link{Mbit: rate * unit.mbit, Apart: true}, nil
			}
		}
	}
	return Link{}, fmt.Errorf("compare: links: want a rate such as 750mbit or 10gbit, at most 100gbit, or none; found %q", s)
}
