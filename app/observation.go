package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/observe/prom"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/observe/tensorboard"
)

// An observation is what watches a run from outside the training thread: the hub and its sinks.
type observation struct {
	hub    *observe.Hub
	head   rundir.Head
	writer *rundir.Writer      // nil: the run directory cannot be written
	board  *tensorboard.Writer // nil, likewise
	server *http.Server
	step   atomic.Int64 // updates done
	made   []string     // folders that were not there before, outermost first
	wait   sync.WaitGroup
}

func newObservation(h rundir.Head) *observation {
	return &observation{hub: observe.NewHub(observe.Options{Start: h.Start}), head: h}
}

// open makes the run directory and returns the place for checkpoints. Where it cannot be made, that is said, and training goes on; but for
// a name that another run took meanwhile, and where nothing but the directory is wanted: then nothing has been trained in vain.
func (o *observation) open(t *training) (blob.Store, error) {
	facts, err := host.Describe(host.Options{})
	if err == nil {
		o.head.Host, err = json.Marshal(facts)
	}
	if err != nil {
		o.hub.Event(observe.Event{Level: observe.Warn, Kind: "host", Step: -1, Text: err.Error()})
	}
	err = o.create(t)
	o.hub.NameRun(o.head.Name)
	switch {
	case errors.Is(err, errNameTaken):
		return nil, err
	case err != nil && t.needed:
		return nil, fmt.Errorf("there is no run directory for the new run: %w; --out says where runs go", err)
	}
	if err != nil {
		t.show.say("notice", fmt.Sprintf("the run directory cannot be written: %v; training goes on without it", err))
	}
	store, err := t.store()
	if err != nil {
		t.show.say("notice", fmt.Sprintf("checkpoints cannot be written either: %v", err))
		return nil, nil
	}
	return store, nil
}

// errNameTaken is why a run cannot have the name that it was given.
var errNameTaken = errors.New("choose another name")

func (o *observation) create(t *training) (err error) {
	if _, err := os.Stat(t.out); errors.Is(err, os.ErrNotExist) {
		o.made = append(o.made, t.out)
	}
	name := o.head.Name
	var dir string
	for n := 2; ; n++ {
		dir = filepath.Join(t.out, o.head.Name)
		err = vacant(dir)
		taken := err != nil
		if !taken {
			o.writer, err = rundir.Create(dir, o.head)
			taken = errors.Is(err, rundir.ErrTaken)
		}
		if err == nil {
			break
		}
		named := t.name != "" && t.restarted == 0 // else the runs of one job are numbered
		if taken && named && t.assemble == nil {  // of two that begin at once; a machine's job goes on, as nobody is there to choose
			return fmt.Errorf("--name: %w: %w", err, errNameTaken)
		}
		if named || !taken {
			return err
		}
		o.head.Name = fmt.Sprintf("%s-%d", name, n) // two runs may begin in one second, and look at one moment
	}
	o.made = append(o.made, dir)
	t.dir = dir
	if t.called != nil {
		t.called(o.head.Name)
	}
	o.hub.Attach("run directory", o.writer)
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	o.board, err = tensorboard.NewWriter(filepath.Join(dir, "tb"), host, o.head.Start)
	if err != nil {
		return err
	}
	o.hub.Attach("tensorboard", o.board)
	return o.describe(t.model)
}

// describe puts the job, as settings and as text, and the model's graph into the TensorBoard files.
func (o *observation) describe(model trivium.Model) error {
	configuration, err := o.head.JobFields()
	if err != nil {
		return err
	}
	fields := texts(configuration)
	values := map[string]any{}
	text := "| key | value |\n|---|---|\n"
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		values[k] = fields[k]
		if x, err := strconv.ParseFloat(fields[k], 64); err == nil {
			values[k] = x
		}
		text += fmt.Sprintf("| %s | %s |\n", k, strings.ReplaceAll(fields[k], "|", `\|`))
	}
	at := o.head.Start
	errs := []error{o.board.Layout(at, tensorboard.StandardLayout()), o.board.HParams(at, o.head.Name, values), o.board.Text(at, "job", 0, text)}
	if m, ok := model.(interface{ Graph() *graph.Graph }); ok {
		errs = append(errs, o.board.Graph(at, boardNodes(m.Graph())))
	}
	return errors.Join(errs...)
}

// boardNodes are g's nodes as TensorBoard draws them: an input names its node, and its number where that is not 0.
func boardNodes(g *graph.Graph) []tensorboard.Node {
	var nodes []tensorboard.Node
	for n := range g.Nodes() {
		node := tensorboard.Node{Name: n.Name, Op: n.Op.Name, Device: n.Device}
		for _, in := range n.Inputs {
			name := g.Node(in.Node()).Name
			if out := in.Out(); out > 0 {
				name = fmt.Sprintf("%s:%d", name, out)
			}
			node.Inputs = append(node.Inputs, name)
		}
		for _, c := range n.Control {
			node.Inputs = append(node.Inputs, "^"+g.Node(c).Name)
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// serve answers /metrics at addr, if it is not empty; there is nothing else to ask for, so who asks for / is led there.
func (o *observation) serve(addr string, show *progress) error {
	if addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", prom.Handler(o.hub))
	mux.Handle("/{$}", http.RedirectHandler("/metrics", http.StatusFound))
	o.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	o.wait.Go(func() {
		if err := o.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			show.say("notice", fmt.Sprintf("/metrics is served no more: %v", err))
		}
	})
	show.say("listen", fmt.Sprintf("metrics at http://%s/metrics", l.Addr()))
	return nil
}

// run starts collecting; the caller ends it with the func that it returns.
func (o *observation) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	o.wait.Go(func() { _ = o.hub.Run(ctx) }) // ends with its context, and has no other error
	return func() {
		if o.server != nil {
			_ = o.server.Close() // its clients are told by the closed connection
		}
		cancel()
		o.wait.Wait()
	}
}

// figures puts what this process takes of its machine, and how often the job was restarted, beside the workers' figures: called once a worker has
// its place in the hub.
func (o *observation) figures(role observe.Role, restarted int) {
	r := o.hub.Recorder(observe.Source{Run: o.head.Name, Strategy: o.head.Strategy, Role: role})
	r.Add(observe.Restarts, uint64(restarted))
	read := host.NewReader(host.Options{}).Into(r.Set())
	o.hub.Poll(func(now time.Duration) {
		r.Put(observe.CurrentStep, float64(o.step.Load())) // where in training this is
		read(now)
	})
}

// finish completes result by what was counted, writes it, and returns a sentence for each thing that is missing from the files.
func (o *observation) finish(result *rundir.Result) []string {
	o.count(result)
	problems := o.hub.Incomplete()
	if o.board != nil {
		err := errors.Join(o.board.EndHParams(result.End, result.ExitCode == Done), o.board.Close())
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	if o.writer != nil {
		if err := errors.Join(o.writer.Finish(*result), o.writer.Close()); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// count sums the phases, waits and samples of the workers. Seconds are those of the one that took longest.
func (o *observation) count(result *rundir.Result) {
	result.Phases, result.Waited = map[string]time.Duration{}, nil
	var wall time.Duration
	var samples uint64
	for _, r := range o.hub.Latest() {
		if r.Frame.Source.Role != observe.Worker {
			continue
		}
		for p := range observe.Phase(observe.NumPhases) {
			result.Phases[p.String()] += time.Duration(r.Frame.Counter(observe.PhaseTime(p)))
		}
		result.AddWaited(r.Frame.Waited)
		wall = max(wall, time.Duration(r.Frame.Counter(observe.WallTime)))
		samples += r.Frame.Counter(observe.Samples)
	}
	result.Seconds = wall.Seconds()
	if wall > 0 {
		result.SamplesPerSec = float64(samples) / wall.Seconds()
	}
}

// abandon removes what was made for a run that never began.
func (o *observation) abandon() error {
	var errs []error
	if o.server != nil {
		errs = append(errs, o.server.Close())
		o.wait.Wait()
	}
	if o.board != nil {
		errs = append(errs, o.board.Close())
	}
	if o.writer != nil {
		errs = append(errs, o.writer.Close(), os.RemoveAll(o.writer.Dir()))
		if len(o.made) > 1 {
			errs = append(errs, os.Remove(o.made[0])) // only if it is empty, as it was made
		}
	}
	return errors.Join(errs...)
}
