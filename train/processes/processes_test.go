package processes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/average"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

var topology = processes.Topology{
	Name: "average", Check: average.Check, Shards: true,
	New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
		return nearby{average.New(env, average.Options{}), env.Near}, nil
	},
}

// nearby reports whether its workers are processes of this host, as they were told.
type nearby struct {
	trivium.Strategy
	near bool
}

func (n nearby) Report() ([]byte, error) { return json.Marshal(n.near) }

func options() processes.Options {
	return processes.Options{Topologies: processes.Topologies{topology}, Build: "this"}
}

// TestMain is also where the workers of the tests with real processes begin.
func TestMain(m *testing.M) {
	if child, ok, err := launch.Enter(os.Args); ok {
		if err == nil {
			for variable, sig := range map[string]os.Signal{interrupted: os.Interrupt, hungUp: syscall.SIGHUP, terminated: syscall.SIGTERM} {
				if child.Name == os.Getenv(variable) {
					signal.Reset(sig)
					self, _ := os.FindProcess(os.Getpid())
					_ = self.Signal(sig)
					select {}
				}
			}
			o := options()
			asked := make(chan struct{})
			o.Asked = asked
			if child.Name == os.Getenv(stopped) {
				close(asked)
			}
			err = work(context.Background(), child, o)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Variables with the name of a process: one that ends itself as a Ctrl-C, a hangup or a SIGTERM does, or is asked to end before it has begun.
const (
	interrupted = "TRIVIUM_TEST_INTERRUPTED"
	hungUp      = "TRIVIUM_TEST_HUNG_UP"
	terminated  = "TRIVIUM_TEST_TERMINATED"
	stopped     = "TRIVIUM_TEST_STOPPED"
)

func work(ctx context.Context, child launch.Child, o processes.Options) error {
	var a processes.Assignment
	if err := json.Unmarshal(child.Config, &a); err != nil {
		return err
	}
	o.Log = slog.New(slog.NewTextHandler(child.Stderr, nil))
	return processes.Work(ctx, &a, o)
}

func job() *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 1500, Train: "0:1200", Test: "1200:"},
		Batch: 60, Epochs: 4, Seed: 9, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.5},
	}
}

// driver returns the driver of a job with three workers: goroutines on a network in memory, or, where change is nil, child processes.
func driver(t *testing.T, change func(index string, o *processes.Options)) *processes.Driver {
	t.Helper()
	d := &processes.Driver{
		Run: "test", Job: job(), Topology: topology, Workers: 3, Threads: 1, Build: "this", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Grace: 30 * time.Second,
	}
	var network transport.Network
	if change == nil {
		d.Network = processes.Network{Dir: t.TempDir(), Secret: []byte("secret")}
		network, _ = d.Network.Open() // it has no error
		d.Launcher = launch.NewChildren()
	} else {
		memory := transport.NewMemory()
		network = memory
		d.Launcher = launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
			o := options()
			o.Network = memory
			change(c.Name, &o)
			return work(ctx, c, o)
		})
	}
	var err error
	d.Port, err = network.Open(t.Context(), transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{Secret: d.Network.Secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Launcher.Close(), d.Port.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func same(string, *processes.Options) {}

// TestTrain: threads, processes and shipped data end in the same bits, with all that a command shows.
func TestTrain(t *testing.T) {
	var first *checkpoint.Checkpoint
	for _, how := range []string{"goroutines", "processes", "shipped"} {
		t.Run(how, func(t *testing.T) {
			change := same
			if how == "processes" {
				change = nil
			}
			d := driver(t, change)
			if how == "shipped" {
				splits, err := data.Open(t.Context(), d.Job.Data, data.Options{})
				if err != nil {
					t.Fatal(err)
				}
				d.Data = splits
			}
			store := blob.Dir(t.TempDir())
			var facts processes.Facts
			d.Ready = func(f processes.Facts) (blob.Store, error) {
				facts = f
				return store, nil
			}
			d.Observe = observe.NewHub(observe.Options{})
			var saw train.Progress
			var metrics map[string]float64
			saved := ""
			d.Watch = train.Watch{
				Begin: func(p train.Progress) {
					if saw = p; d.Data != nil {
						t.Error("the driver keeps the data that all workers have")
					}
				},
				Progress:     func(p train.Progress) { saw = p },
				Evaluated:    func(_ train.Progress, m map[string]float64) { metrics = maps.Clone(m) },
				Checkpointed: func(_ train.Progress, name string) { saved = name },
			}
			r, err := d.Train(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.Reason != trivium.Finished || r.Samples != 4*1200 || r.Metrics["test.accuracy"] < 0.75 {
				t.Errorf("result %+v", r)
			}
			if facts.Rows != 1200 || facts.Schema.Labels.Width != 10 || facts.Checksum == "" {
				t.Errorf("facts %+v", facts)
			}
			if saw.Samples != 4*1200 || saw.Rows != 1200 || metrics["test.accuracy"] != r.Metrics["test.accuracy"] {
				t.Errorf("the last progress was %+v, the last evaluation %v", saw, metrics)
			}
			if near := fmt.Sprint(how == "processes"); string(d.Report) != near {
				t.Errorf("the workers were told %q of being processes of this host, not %q", d.Report, near)
			}
			c, name, err := checkpoint.Latest(t.Context(), store)
			if err != nil || name != saved {
				t.Fatalf("checkpoint %q, told was %q: %v", name, saved, err)
			}
			if first == nil {
				first = c
			}
			for i, x := range c.Params.Flat {
				if x != first.Params.Flat[i] {
					t.Fatalf("cell %d is %v, under goroutines %v", i, x, first.Params.Flat[i])
				}
			}
			d.Observe.Collect(false)
			var samples uint64
			measured := 0 // processes
			for _, r := range d.Observe.Latest() {
				if r.Frame.Source.Role == observe.Worker {
					samples += r.Frame.Counter(observe.Samples)
				}
				if r.Frame.Source.Role == observe.Process {
					measured++
				}
			}
			if samples != 4*1200 {
				t.Errorf("the hub has counted %d samples", samples)
			}
			if want := map[bool]int{true: d.Workers}[change == nil]; measured != want { // goroutines are of the driver's, which its caller measures
				t.Errorf("%d workers report what their process takes, want %d", measured, want)
			}
		})
	}
}

// TestChecksumOnce: of rows that all workers generate, the first takes the checksum, or none, where the driver's caller has it.
func TestChecksumOnce(t *testing.T) {
	for _, summed := range []bool{false, true} {
		facts, sums := checksums(t, summed)
		if (facts == "") != summed || sums != [3]string{facts} {
			t.Errorf("summed %v: the run's checksum is %q, those of the workers %q", summed, facts, sums)
		}
	}
}

// checksums are that of a run, and those of its workers.
func checksums(t *testing.T, summed bool) (run string, sums [3]string) {
	d := driver(t, func(_ string, o *processes.Options) {
		watched := topology
		watched.New = func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
			sums[env.Rank] = env.Splits.Checksum
			return topology.New(env, options)
		}
		o.Topologies = processes.Topologies{watched}
	})
	d.Job.Data.Order, d.Job.Epochs, d.Summed = "index", 1, summed
	d.Ready = func(f processes.Facts) (blob.Store, error) {
		run = f.Checksum
		return blob.Dir(t.TempDir()), nil
	}
	if _, err := d.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	return run, sums
}

// TestInterrupt: the model so far is averaged and saved.
func TestInterrupt(t *testing.T) {
	d := driver(t, same)
	d.Job.Epochs = 1 << 20
	store := blob.Dir(t.TempDir())
	d.Ready = func(processes.Facts) (blob.Store, error) { return store, nil }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.Watch.Progress = func(p train.Progress) {
		if p.Step > 10 {
			cancel()
		}
	}
	r, err := d.Train(ctx)
	if err != nil || r.Reason != trivium.Interrupted || r.Steps <= 10 {
		t.Fatalf("result %+v, %v", r, err)
	}
	c, name, err := checkpoint.Latest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	again := driver(t, same)
	again.Job.Epochs = c.Progress.Epoch + 2
	again.Resume, again.ResumeFrom = name, store
	began := train.Progress{}
	again.Watch.Begin = func(p train.Progress) { began = p }
	r, err = again.Train(t.Context())
	if err != nil || r.Reason != trivium.Finished || began.Step != c.Progress.Step {
		t.Errorf("resumed at update %d, want %d: %+v, %v", began.Step, c.Progress.Step, r, err)
	}
}

// TestInterruptBeforeUpdates: a job that is interrupted before its first update is so, at whatever its workers are then.
func TestInterruptBeforeUpdates(t *testing.T) {
	for when, change := range map[string]func(interrupt func(), name string, o *processes.Options){
		"data": func(interrupt func(), _ string, o *processes.Options) {
			o.Sources = data.Sources{"digits": func(ctx context.Context, _ trivium.Data) (*data.Splits, error) {
				interrupt()
				<-ctx.Done()
				return nil, ctx.Err()
			}}
		},
		"others train": func(interrupt func(), name string, o *processes.Options) {
			slow := topology
			slow.New = func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
				env.Watch.Begin = func(train.Progress) { interrupt() }
				return trains(func(ctx context.Context) (trivium.Result, error) {
					if name == "worker/2" {
						<-ctx.Done()
					}
					return average.New(env, average.Options{}).Train(ctx, job())
				}), nil
			}
			o.Topologies = processes.Topologies{slow}
		},
	} {
		t.Run(when, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			d := driver(t, func(name string, o *processes.Options) { change(interrupt, name, o) })
			if r, err := d.Train(ctx); err != nil || r.Reason != trivium.Interrupted {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// An apartNetwork is one on which all reach the driver, and no worker another.
type apartNetwork struct{ transport.Network }

func (n apartNetwork) Open(ctx context.Context, self transport.Name, o transport.Options) (transport.Port, error) {
	p, err := n.Network.Open(ctx, self, o)
	return apartPort{p}, err
}

type apartPort struct{ transport.Port }

func (apartPort) Addr() string { return "behind a firewall" }

// TestWorkersApart: a job whose workers do not reach one another ends, and says so; one that is interrupted meanwhile is interrupted.
func TestWorkersApart(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := driver(t, func(_ string, o *processes.Options) {
				o.Topologies[0].Bare = true
				o.Network = apartNetwork{o.Network}
			})
			d.Servers = 1
			ctx, interrupt := context.WithTimeout(t.Context(), time.Hour)
			defer interrupt()
			d.Ready = func(processes.Facts) (blob.Store, error) {
				if interrupted {
					time.AfterFunc(time.Second, interrupt)
				}
				return blob.Dir(t.TempDir()), nil
			}
			began := time.Now()
			r, err := d.Train(ctx)
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("it took %v", took)
			}
			if interrupted {
				if err != nil || r.Reason != trivium.Interrupted {
					t.Errorf("interrupted: %+v, %v", r, err)
				}
				return
			}
			lost, ok := errors.AsType[*processes.WorkerError](err)
			if !ok || !lost.Lost || !strings.Contains(err.Error(), "the workers did not all reach one another within 1m30s: does a firewall") {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestTooMany: more processes than a group may have are refused before any is started.
func TestTooMany(t *testing.T) {
	d := driver(t, func(string, *processes.Options) { t.Error("a worker was started") })
	d.Workers, d.Servers = 200, 100
	_, err := d.Train(t.Context())
	if _, ok := errors.AsType[*train.JobError](err); !ok || !strings.Contains(err.Error(), "0 to 56 servers beside 200 workers, found 100") {
		t.Error(err)
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(index string, o *processes.Options)
		job    func(*trivium.Job)
		want   []string
		misuse bool
	}{
		{"another build", func(name string, o *processes.Options) {
			if name == "worker/2" {
				o.Build = "that"
			}
		}, nil, []string{"worker 2", "on " + hostname(t), "build that, want this", "was its file replaced"}, true},
		{"other data", func(name string, o *processes.Options) {
			o.Sources = data.Sources{"digits": func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
				s, err := data.Digits(ctx, d)
				if err == nil && name == "worker/1" {
					s.Checksum = "another"
				}
				return s, err
			}}
		}, nil, []string{"the data differs", "worker 1", "another", "--ship-data"}, true},
		{"a text that is no UTF-8", func(_ string, o *processes.Options) {
			o.Sources = data.Sources{"digits": func(context.Context, trivium.Data) (*data.Splits, error) { return nil, errors.New("no \xff here") }}
		}, nil, []string{"no \uFFFD here"}, true},
		{"no such data", same, func(j *trivium.Job) { j.Data = trivium.Data{Source: "nowhere.csv"} }, []string{"nowhere.csv"}, true},
		{"no such model", same, func(j *trivium.Job) { j.Model = "oracle" }, []string{"oracle"}, true},
		{"diverging", same, func(j *trivium.Job) { j.Model, j.Optimizer.Rate = "mlp:10", 1e30 }, []string{"loss"}, false},
		{"a topology's own", same, func(j *trivium.Job) { j.Exact = true }, []string{"exact mode"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := driver(t, c.change)
			if c.job != nil {
				c.job(d.Job)
			}
			d.Ready = func(processes.Facts) (blob.Store, error) { return blob.Dir(t.TempDir()), nil }
			_, err := d.Train(t.Context())
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v does not say %q", err, w)
				}
			}
			var misuse *train.JobError
			var diverged *trivium.DivergedError
			if c.misuse != errors.As(err, &misuse) || c.misuse == errors.As(err, &diverged) {
				t.Errorf("error %v is the user's to mend: %v", err, !c.misuse)
			}
		})
	}
}

// TestWorkerThatDoesNotStart: its last words are in the error.
func TestWorkerThatDoesNotStart(t *testing.T) {
	d := driver(t, same)
	_ = d.Launcher.Close()
	d.Launcher = launch.NewGoroutines(func(context.Context, launch.Child) error { return errors.New("no such card") })
	_, err := d.Train(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such card") {
		t.Errorf("error %v", err)
	}
}
