//go:build unix

package allreduce_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/traintest"
	"github.com/trivium-ml/trivium/transport"
)

var keptTo int // cores, by what narrows a worker

// TestMain is also where the workers of the tests with real processes begin.
func TestMain(m *testing.M) {
	if child, ok, err := launch.Enter(os.Args); ok {
		var a processes.Assignment
		if err == nil {
			err = json.Unmarshal(child.Config, &a)
		}
		if err == nil {
			ctx := context.Background()
			narrow := processes.Narrow(ctx, &a)
			if narrow == nil {
				narrow = func() { runtime.GOMAXPROCS(1) } // what is measured is of as many threads everywhere
			}
			err = processes.Work(ctx, &a, processes.Options{
				Topologies: processes.Topologies{topology()}, Models: models(), Build: "this", Narrow: func() {
					narrow()
					keptTo = mayRunOn()
				},
			})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func topology() processes.Topology {
	return processes.Topology{Name: "allreduce", New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
		var o allreduce.Options
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		if env.Observe == nil {
			env.Observe = observe.NewHub(observe.Options{})
		}
		return &timed{allreduce.New(env, o), env.Observe}, nil
	}}
}

// A timed strategy says on its standard error when its training ended, and how.
type timed struct {
	trivium.Strategy
	hub *observe.Hub
}

// Train implements trivium.Strategy.
func (s *timed) Train(ctx context.Context, job *trivium.Job) (trivium.Result, error) {
	sums := &sumsSeen{begin: time.Now().Add(-s.hub.Now())}
	s.hub.Attach("sums", sums)
	start, before := time.Now(), used()
	r, err := s.Strategy.Train(ctx, job)
	end := time.Now()
	s.hub.Collect(true)
	ends := []byte("null")
	if strings.HasPrefix(job.Model, "emulated:") {
		ends, _ = json.Marshal(sums.ends) // numbers
	}
	fmt.Fprintf(os.Stderr, "%d %d %d %d %s %v; threads: %d on %d cores%s\n", end.UnixNano(), end.Sub(start).Nanoseconds(), r.Steps, used()-before, ends, err, runtime.GOMAXPROCS(0), keptTo, sums)
	return r, err
}

// A sumsSeen is what the events of a run say of its sums, and when they were there.
type sumsSeen struct {
	begin time.Time // of the hub's clock
	mu    sync.Mutex
	text  string
	ends  [][2]int64 // by update: when the backward pass ended, and the sum was there, in nanoseconds since 1970; 0: not seen
}

func (*sumsSeen) Frame(observe.Frame) error { return nil }

func (s *sumsSeen) Step(_ observe.Source, step observe.Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for int64(len(s.ends)) < step.Step {
		s.ends = append(s.ends, [2]int64{})
	}
	p := &step.Phases
	computed := s.begin.Add(step.Start + p[observe.Load] + p[observe.Compute])
	s.ends[step.Step-1] = [2]int64{computed.UnixNano(), computed.Add(p[observe.Push] + p[observe.Pull] + p[observe.WaitBarrier]).UnixNano()}
	return nil
}

func (s *sumsSeen) Event(e observe.Event) error {
	if e.Kind == "collective" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.text += "; " + e.Text
	}
	return nil
}

func (s *sumsSeen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// used is the processor time of this process.
func used() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// A said is what a worker says at its end.
type said struct {
	at, took, steps, cpu int64
	ends                 [][2]int64 // of an emulated model: sumsSeen's
	err                  string
}

// A tape is an output that is read while it is written.
type tape struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *tape) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// driver returns the driver of a job in n processes, which say their end to the tapes.
func driver(t testing.TB, job *trivium.Job, n int, o allreduce.Options) (*processes.Driver, []*tape) {
	t.Helper()
	return driverOver(t, job, n, o, false)
}

// driverOver is driver with TCP between the workers, or unix sockets and shared memory.
func driverOver(t testing.TB, job *trivium.Job, n int, o allreduce.Options, tcp bool) (*processes.Driver, []*tape) {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	tapes := make([]*tape, n)
	for i := range tapes {
		tapes[i] = new(tape)
	}
	d := &processes.Driver{
		Run: "test", Job: job, Topology: topology(), Options: options, Workers: n, Threads: 1, Build: "this", Log: slog.New(slog.DiscardHandler),
		Grace: 30 * time.Second, Launcher: launch.NewChildren(), Output: func(i int) io.Writer { return tapes[i] },
		Network: processes.Network{Dir: t.TempDir(), Secret: []byte("secret")},
	}
	if tcp {
		d.Network.Listen, d.Network.Apart = "127.0.0.1:0", true
	}
	network, err := d.Network.Open()
	if err != nil {
		t.Fatal(err)
	}
	if d.Port, err = network.Open(t.Context(), transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{Secret: d.Network.Secret}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Launcher.Close(), d.Port.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, tapes
}

func read(t testing.TB, w *tape) (s said) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.b.String()
	var ends string
	_, err := fmt.Sscan(text, &s.at, &s.took, &s.steps, &s.cpu, &ends)
	if err := errors.Join(err, json.Unmarshal([]byte(ends), &s.ends)); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	s.err = text
	return s
}

// TestShareMemory: two processes of one host sum their gradients in shared memory, on the threads that they compute with, and three where the
// order of sums may be chosen by measurements; over TCP, or else of three, in frames. Where the host has a core for each, and no more, each keeps to
// its own.
func TestShareMemory(t *testing.T) {
	for _, c := range []struct {
		workers   int
		tcp       bool
		calibrate bool
		shared    bool
	}{{2, false, false, runtime.GOOS == "linux"}, {2, true, false, false}, {3, false, false, false}, {3, false, true, runtime.GOOS == "linux"}, {3, true, true, false}} {
		if testing.Short() && c.workers == 3 { // processes with the race detector begin slowly
			continue
		}
		job := digits()
		job.Model, job.Steps = buckets(), 6
		d, tapes := driverOver(t, job, c.workers, allreduce.Options{Calibrate: c.calibrate}, c.tcp)
		if _, err := d.Train(t.Context()); err != nil {
			t.Fatal(err)
		}
		told := read(t, tapes[0]).err
		cores := mayRunOn()
		if _, err := os.Stat("/proc/self/schedstat"); cores == c.workers && err == nil { // by which who keeps to a core sees that others want it
			cores = 1
		}
		if !strings.Contains(told, fmt.Sprintf("threads: 1 on %d cores;", cores)) || strings.Contains(told, ", shared memory:") != c.shared || !strings.Contains(told, "sum of ") {
			t.Errorf("%d workers, TCP %v, calibrate %v: %s", c.workers, c.tcp, c.calibrate, told)
		}
	}
}

// TestKilledWorker kills a process in the middle of an update: the others are told by their links, and return the same error, which names it, at
// once. Three sum in frames, two in shared memory where there is some. A machine that is busy with something else can hold up one of them for
// longer, and have it hear other words, as the driver's, which learns of it too: then it is done again, nine times at most. Who is told by no link
// waits for a timer of the group, of 40 ms, which the limit leaves no room for where the race detector does not slow all down.
func TestKilledWorker(t *testing.T) {
	limit, sizes := 3*10*time.Millisecond, []int{3, 2}
	if testing.Short() { // processes with the race detector begin slowly, and end so
		limit, sizes = 200*time.Millisecond, sizes[:1]
	}
	for _, workers := range sizes {
		well := false
		for range 10 {
			took, told, same := killedWorker(t, workers)
			if well = took <= limit && told && same; well || t.Failed() {
				break
			}
		}
		if !well && !t.Failed() {
			t.Errorf("%d workers: ten times it took longer than %v until all had returned, want 10ms, or no link had told it, or the errors differed", workers, limit)
		}
	}
}

// killedWorker returns how long it took until the others had returned, whether each was told, else one found out as it sent, and whether all
// had the same error.
func killedWorker(t *testing.T, workers int) (took time.Duration, told, same bool) {
	t.Helper()
	job := digits()
	job.Epochs = 1 << 20
	d, tapes := driver(t, job, workers, allreduce.Options{})
	_, killed := traintest.SignalInTraining(t, &d.Started, &d.Watch, 1, syscall.SIGKILL)
	_, err := d.Train(t.Context())
	var lost *processes.WorkerError
	if !errors.As(err, &lost) || lost.Index != 1 || !lost.Lost || !strings.Contains(err.Error(), "was killed") {
		t.Fatalf("error %v", err)
	}
	told, same = true, true
	first := ""
	for i := range workers {
		if i == 1 {
			continue
		}
		s := read(t, tapes[i])
		one := time.Duration(s.at - killed.UnixNano())
		t.Logf("worker %d returned %v after the kill: %s", i, one, s.err)
		if !strings.Contains(s.err, "worker/1") {
			t.Errorf("worker %d does not name the one that was killed: %s", i, s.err)
		}
		took = max(took, one)
		told = told && !strings.Contains(s.err, "send to")
		if i == 0 {
			first = words(s)
			if shared := strings.Contains(s.err, ", shared memory:"); shared != (workers == 2 && runtime.GOOS == "linux") {
				t.Errorf("%d workers sum in shared memory: %v: %s", workers, shared, s.err)
			}
		}
		same = same && words(s) == first
	}
	return took, told, same
}

// words are the error that a worker returned, without its numbers before and its sums behind.
func words(s said) string {
	text, _, _ := strings.Cut(s.err, "; threads: ")
	fields := strings.SplitN(text, " ", 6)
	return fields[len(fields)-1]
}

// TestShippedRows: workers that get all rows from the driver train what those do that open them.
func TestShippedRows(t *testing.T) {
	job := digits()
	job.Exact, job.Steps = true, 12
	workers := 3
	if testing.Short() { // processes with the race detector begin slowly
		workers, job.Steps = 2, 6
	}
	var metrics []map[string]float64
	for _, ship := range []bool{false, true} {
		d, _ := driver(t, job, workers, allreduce.Options{})
		if ship {
			splits, err := train.OpenData(t.Context(), train.Env{}, job)
			if err != nil {
				t.Fatal(err)
			}
			defer splits.Close()
			d.Data = splits
		}
		r, err := d.Train(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Steps != job.Steps || r.Metrics["test.loss"] == 0 {
			t.Errorf("shipped: %v: %s after %d updates, %v", ship, r.Reason, r.Steps, r.Metrics)
		}
		metrics = append(metrics, r.Metrics)
	}
	if !maps.Equal(metrics[0], metrics[1]) {
		t.Errorf("with rows of their own %v, with rows that were shipped %v", metrics[0], metrics[1])
	}
}
