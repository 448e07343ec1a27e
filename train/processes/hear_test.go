package processes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// TestHearsay: who is lost is told by whoever reports it first, then by a worker, and never by one that was itself ended for that.
func TestHearsay(t *testing.T) {
	job := func() *Driver {
		d := &Driver{Workers: 3, Servers: 1, stopped: true}
		for i, n := range []transport.Name{{Role: "worker", ID: "0"}, {Role: "worker", ID: "1"}, {Role: "worker", ID: "2"}, {Role: "server", ID: "0"}} {
			d.workers = append(d.workers, &part{index: i, serves: n.Role == "server", name: n})
		}
		return d
	}
	type report struct {
		by   int
		lost string
	}
	for _, c := range []struct {
		name    string
		reports []report
		want    int
		text    string // the report that is kept
		hearsay bool   // the end of the process that is named may say more
	}{
		{"a server alone", []report{{3, "worker/1"}}, 1, "3: worker/1", true},
		{"a worker knows more than a server", []report{{3, "worker/1"}, {2, "worker/1"}}, 1, "2: worker/1", true},
		{"the first worker is believed", []report{{0, "worker/1"}, {2, "server/0"}}, 1, "0: worker/1", true},
		{"a server after a worker", []report{{0, "worker/1"}, {3, "worker/2"}}, 1, "0: worker/1", true},
		{"a worker that was ended by the driver", []report{{3, "worker/1"}, {2, "driver/0"}}, 1, "3: worker/1", true},
		{"a worker that lost the driver", []report{{2, "driver/0"}}, 2, "2: driver/0", false},
		{"and another after it", []report{{2, "driver/0"}, {0, "worker/2"}}, 2, "2: driver/0", false},
	} {
		d := job()
		for _, r := range c.reports {
			d.finished(t.Context(), d.workers[r.by], &result{Reason: trivium.Failed, Fault: faultUnreachable, Lost: r.lost, Error: string(rune('0'+r.by)) + ": " + r.lost})
		}
		if d.lost == nil || d.lost.Index != c.want || d.lost.Text != c.text || d.hearsay != c.hearsay || !d.lost.Lost {
			t.Errorf("%s: %+v, hearsay %v", c.name, d.lost, d.hearsay)
		}
	}
}

func apart(json.RawMessage) bool { return true }

// TestSamplesOfWhoIsLost: a job counts the rows that its workers told of, also where worker 0 is lost and has no result.
func TestSamplesOfWhoIsLost(t *testing.T) {
	for _, c := range []struct {
		topology Topology
		want     int64
	}{{Topology{}, 800}, {Topology{Shards: true}, 1700}, {Topology{Apart: apart}, 850}} {
		d := &Driver{Workers: 2, Topology: c.topology, lost: &WorkerError{Lost: true, Step: 8}}
		for i := range 2 {
			d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}})
		}
		d.workers[0].at.Samples = 800
		d.finished(t.Context(), d.workers[1], &result{Reason: trivium.Finished, Steps: 9, Samples: 900})
		if r, _ := d.verdict(); r.Samples != c.want || r.Steps != 8 {
			t.Errorf("%+v: %d samples after update %d, want %d after 8", c.topology, r.Samples, r.Steps, c.want)
		}
	}
}

// TestResultOfWhoIsLost: where worker 0 is lost, the job's result has the epochs and the metrics that it told of.
func TestResultOfWhoIsLost(t *testing.T) {
	d := &Driver{Workers: 1, lost: &WorkerError{Lost: true, Step: 25}}
	d.workers = []*part{{name: transport.Name{Role: "worker", ID: "0"}, hello: true}}
	tell := func(kind uint8, at position) {
		t.Helper()
		f, err := message(kind, at)
		if err != nil {
			t.Fatal(err)
		}
		d.hear(t.Context(), &transport.Event{From: d.workers[0].name, Kind: f.Kind, Payload: f.Payload}, nil)
	}
	want := func(epochs int, loss float64) {
		t.Helper()
		if r, _ := d.verdict(); r.Epochs != epochs || r.Metrics["test.loss"] != loss {
			t.Errorf("%d epochs, metrics %v, want %d and %g", r.Epochs, r.Metrics, epochs, loss)
		}
	}
	want(0, 0) // it had said nothing
	tell(kindBegin, position{Epoch: 1, Rows: 100})
	want(0, 0)
	tell(kindEvaluated, position{Step: 20, Epoch: 2, Row: 100, Rows: 100, Metrics: map[string]float64{"test.loss": 0.5}})
	want(2, 0.5)
	tell(kindProgress, position{Step: 25, Epoch: 3, Row: 50, Rows: 100})
	want(2, 0.5)
}

// TestReasonOfWhoIsLost: a job whose machine was given up has failed, also where the worker there was only asked to end by it, and says so
// when it is heard again. A worker that says itself what is wrong has the reason.
func TestReasonOfWhoIsLost(t *testing.T) {
	for _, c := range []struct {
		lost bool
		says trivium.Reason
		want trivium.Reason
	}{{true, trivium.Interrupted, trivium.Failed}, {true, trivium.Finished, trivium.Failed}, {false, trivium.Diverged, trivium.Diverged}} {
		d := &Driver{Workers: 2, stopped: true, lost: &WorkerError{Index: 1, Lost: c.lost}}
		for i := range 2 {
			d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}})
		}
		d.finished(t.Context(), d.workers[0], &result{Reason: trivium.Interrupted, Steps: 9})
		d.finished(t.Context(), d.workers[1], &result{Reason: c.says, Steps: 9})
		if r, err := d.verdict(); r.Reason != c.want || err == nil {
			t.Errorf("%+v: %s, %v", c, r.Reason, err)
		}
	}
}

// TestStepOfWhoFailed: a result that does not say how far its worker was takes nothing back of what that said before.
func TestStepOfWhoFailed(t *testing.T) {
	d := &Driver{Workers: 1, stopped: true}
	p := &part{name: transport.Name{Role: "worker", ID: "0"}}
	p.at.Step, p.at.Samples = 575, 5750
	d.workers = []*part{p}
	d.finished(t.Context(), p, &result{Reason: trivium.Failed, Fault: faultUnreachable, Lost: "worker/0", Error: "it was silent"})
	if d.lost == nil || d.lost.Step != 575 || p.at.Samples != 5750 {
		t.Errorf("lost %+v, %d samples", d.lost, p.at.Samples)
	}
}

// TestStepOfWhoIsLost: the update after which a process is said to be lost is the one that the job's result names, and never before the newest
// checkpoint, though that process told of its own progress a while ago.
func TestStepOfWhoIsLost(t *testing.T) {
	d := &Driver{Workers: 2, Topology: Topology{Apart: apart}, stopped: true}
	for i := range 2 {
		d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}})
	}
	tell := func(index int, kind uint8, at position) {
		t.Helper()
		f, err := message(kind, at)
		if err != nil {
			t.Fatal(err)
		}
		d.hear(t.Context(), &transport.Event{From: d.workers[index].name, Kind: f.Kind, Payload: f.Payload}, nil)
	}
	tell(1, kindProgress, position{Step: 128})
	tell(0, kindCheckpointed, position{Step: 134, Name: "step-000000000134"})
	d.workers[0].gone = true // so that it is not who is late
	d.late()
	want := func(step int64) {
		t.Helper()
		r, err := d.verdict()
		if text := fmt.Sprintf("worker 1 is lost after update %d: ", step); err == nil || !strings.Contains(err.Error(), text) || r.Steps != step {
			t.Errorf("%v, and the result is of %d updates, want %d", err, r.Steps, step)
		}
	}
	want(134)
	d.finished(t.Context(), d.workers[0], &result{Reason: trivium.Failed, Steps: 145})
	want(145)
}

// TestDivergedIsTold: of a loss that is not finite a driver says what the worker says, which may have found it after its last update.
func TestDivergedIsTold(t *testing.T) {
	for _, e := range []*trivium.DivergedError{{Step: 44, Loss: math.Inf(1), Tensor: "w"}, {Step: 45, Loss: math.NaN(), Largest: "b"}} {
		out := result{Reason: trivium.Diverged, Steps: 44}
		out.failed(fmt.Errorf("train: %w", e))
		p, err := control.Append(nil, out)
		if err != nil {
			t.Fatal(err)
		}
		var in result
		if err := control.Decode("result", p, &in); err != nil {
			t.Fatal(err)
		}
		d := &Driver{Workers: 1, stopped: true, workers: []*part{{name: transport.Name{Role: "worker", ID: "0"}}}}
		d.finished(t.Context(), d.workers[0], &in)
		if d.lost == nil || d.lost.Text != e.Error() {
			t.Errorf("%+v, want %q", d.lost, e)
		}
	}
}

// TestExitOfWhoIsLost: how a process ended says more than what others say of it, and less of another one.
func TestExitOfWhoIsLost(t *testing.T) {
	l := launch.NewGoroutines(func(context.Context, launch.Child) error { return errors.New("out of memory") })
	defer l.Close()
	p, err := l.Start(t.Context(), launch.Spec{Name: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	for index, want := range []string{"says 2", "out of memory"} {
		d := &Driver{Workers: 3, Log: slog.New(slog.DiscardHandler)}
		for i := range 3 {
			d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}, process: p})
		}
		d.finished(t.Context(), d.workers[2], &result{Reason: trivium.Failed, Fault: faultUnreachable, Lost: "worker/1", Error: "says 2"})
		d.exited(t.Context(), d.workers[index])
		if d.lost.Index != 1 || !strings.Contains(d.lost.Text, want) {
			t.Errorf("worker %d ends: %v, want %q", index, d.lost, want)
		}
	}
}

// TestSignalledAfterHello: a worker that has said hello heeds a signal, and says that it was asked to end. One that a signal ends all the same is lost.
func TestSignalledAfterHello(t *testing.T) {
	for _, hello := range []bool{false, true} {
		p, end := launch.NewProcess("worker/0", func(os.Signal) error { return nil })
		end(launch.Exit{Signal: syscall.SIGTERM, At: time.Now()})
		d := &Driver{Workers: 1, Log: slog.New(slog.DiscardHandler)}
		d.workers = []*part{{name: transport.Name{Role: "worker", ID: "0"}, process: p, hello: hello}}
		d.exited(t.Context(), d.workers[0])
		if (d.lost != nil) != hello || d.stopped == hello {
			t.Errorf("it has said hello: %v; lost: %v, the job is interrupted: %v", hello, d.lost, d.stopped)
		}
	}
}

// TestSilentAfterLoss: a process that others have lost, and that says nothing to the driver either, is not waited for until the job's
// limit. What they say of it stays. One whose link is lost has ended, and how it did is on its way.
func TestSilentAfterLoss(t *testing.T) {
	d := &Driver{Workers: 4, Silence: 20 * time.Second, Log: slog.New(slog.DiscardHandler)}
	var killed [4]bool
	for i := range killed {
		var end func(launch.Exit)
		var p *launch.Process
		p, end = launch.NewProcess("worker", func(sig os.Signal) error {
			killed[i] = true
			end(launch.Exit{Code: -1, Signal: sig})
			return nil
		})
		d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}, process: p, hello: true})
	}
	d.finished(t.Context(), d.workers[2], &result{Reason: trivium.Failed, Fault: faultUnreachable, Lost: "worker/1", Error: "says 2"})
	d.hear(t.Context(), &transport.Event{From: d.workers[3].name, What: transport.LinkLost}, nil)
	for range quietTicks / 2 {
		d.workers[0].quiet = 0 // it still ends in good order
		d.listen()
	}
	if killed != [4]bool{1: true} {
		t.Fatalf("killed are %v, want the second alone", killed)
	}
	d.workers[0].gone, d.workers[2].gone, d.workers[3].gone = true, true, true
	d.exited(t.Context(), d.workers[1])
	if d.lost.Index != 1 || d.lost.Text != "says 2" {
		t.Errorf("%+v", d.lost)
	}
}

// TestAliveAfterLoss: however short a silence is borne, who gives its signs of life as ever is not killed because the job has failed.
func TestAliveAfterLoss(t *testing.T) {
	d := &Driver{Workers: 2, Silence: time.Second, Log: slog.New(slog.DiscardHandler)}
	killed := 0
	for i := range d.Workers {
		p, _ := launch.NewProcess("worker", func(os.Signal) error {
			killed++
			return nil
		})
		d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}, process: p, hello: true})
	}
	d.finished(t.Context(), d.workers[1], &result{Reason: trivium.Failed, Fault: faultOther, Error: "no space"})
	for range 10 {
		d.hear(t.Context(), &transport.Event{What: transport.Received, From: d.workers[0].name, Kind: kindAlive}, nil)
		for range aliveEvery / (d.Silence / quietTicks) {
			d.listen()
		}
	}
	if killed > 0 {
		t.Errorf("it was killed %d times", killed)
	}
}

// TestOneTakesNothing: a worker that takes nothing at present keeps no other from hearing that the job is to end.
func TestOneTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		open := func(n transport.Name) (transport.Port, transport.Stream) {
			port, err := network.Open(t.Context(), n, transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = port.Close() })
			s, err := port.Stream(jobStream, transport.StreamOptions{MaxFrame: maxMessage, Window: maxMessage})
			if err != nil {
				t.Fatal(err)
			}
			return port, s
		}
		d := &Driver{Workers: 3, Log: slog.New(slog.DiscardHandler)}
		var port transport.Port
		port, d.stream = open(transport.Name{Role: "driver", ID: "0"})
		var streams []transport.Stream
		for i := range d.Workers {
			n := transport.Name{Role: "worker", ID: fmt.Sprint(i)}
			p, s := open(n)
			if err := port.Know(n, p.Addr()); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
			d.workers = append(d.workers, &part{index: i, name: n, hello: true})
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 2 { // the second one waits
			go func() {
				rows := transport.Frame{Kind: kindRows, Priority: transport.Data, Payload: make([]byte, maxMessage)}
				_ = d.stream.Send(ctx, d.workers[0].name, rows) // its end is cancel's
			}()
		}
		synctest.Wait()
		d.stop(ctx, kindStop, nil)
		hearing, deaf := context.WithTimeout(ctx, time.Second)
		defer deaf()
		for _, s := range streams[1:] {
			ev, err := s.Recv(hearing)
			if err != nil || ev.Kind != kindStop {
				t.Fatalf("%v hears %+v, %v", s.Self(), ev, err)
			}
			ev.Release()
		}
	})
}

// TestLate: who keeps the others waiting is named, with what it has not done.
func TestLate(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(d *Driver)
		want string
	}{
		"start": {
			func(d *Driver) { d.workers[1].hello, d.workers[2].hello, d.workers[1].ready = false, false, nil },
			"worker 1 is lost after update 0: it did not start within 1m0s; likewise server 0",
		},
		"data": {
			func(d *Driver) { d.workers[1].ready = nil },
			"worker 1 is lost after update 0: it had not opened its data after 30m0s",
		},
		"interrupted": {
			func(d *Driver) { d.stopped, d.workers[0].result, d.workers[1].at.Step = true, &result{}, 7 },
			"worker 1 is lost after update 7: it did not end within 2m0s",
		},
		"a server at the end": {
			func(d *Driver) {
				d.workers[0].result, d.workers[1].result, d.workers[0].at.Step = &result{}, &result{}, 9
				d.workers[2].hello = false // there is no stream to tell it on
				d.release(t.Context(), time.NewTimer(time.Hour))
				d.workers[2].hello = true
			},
			"server 0 is lost after update 9: it did not end within 10s",
		},
	} {
		d := &Driver{Workers: 2, Servers: 1, Hello: time.Minute, Open: 30 * time.Minute, Grace: 10 * time.Second, limit: 2 * time.Minute}
		for i, n := range []transport.Name{{Role: "worker", ID: "0"}, {Role: "worker", ID: "1"}, {Role: "server", ID: "0"}} {
			d.workers = append(d.workers, &part{index: i, serves: n.Role == "server", name: n, hello: true, ready: &ready{}})
		}
		c.set(d)
		d.late()
		if d.lost == nil || d.lost.Error() != c.want || d.workers[d.lost.Index].title() != d.lost.Name {
			t.Errorf("%s: %v, want %s", name, d.lost, c.want)
		}
	}
}

// TestFailed: what a worker ended with is of the class that decides the job's exit code, and names who is lost.
func TestFailed(t *testing.T) {
	peer := transport.Name{Job: "job", Role: "server", ID: "1"}
	for _, c := range []struct {
		err   error
		fault fault
		lost  string
	}{
		{nil, faultNone, ""},
		{errors.New("no such column"), faultOther, ""},
		{&train.JobError{Err: errors.New("batch 0")}, faultMisuse, ""},
		{&train.JobError{Err: io.EOF}, faultMisuse, ""}, // of a file, not of a link
		{&trivium.DivergedError{Step: 3}, faultDiverged, ""},
		{&train.LostError{Peer: peer, Why: "killed"}, faultUnreachable, "server/1"},
		{&cluster.OutError{Self: peer, Epoch: 2}, faultUnreachable, "server/1"},
		{cluster.ErrNoQuorum, faultUnreachable, ""},
		{transport.ErrLinkLost, faultUnreachable, ""},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("allreduce: %w", err)
		}
		var r result
		if r.failed(err); r.Fault != c.fault || r.Lost != c.lost || (r.Error == "") != (err == nil) {
			t.Errorf("%v: fault %d of %q, %q", err, r.Fault, r.Lost, r.Error)
		}
	}
}

// TestUnreadIsAlive: a worker whose signs of life wait to be read, as this process has much else to do, is not taken for silent.
func TestUnreadIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewMemory()
		var driver string
		open := func(n transport.Name) transport.Stream {
			port, err := network.Open(t.Context(), n, transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = port.Close() })
			driver = cmp.Or(driver, port.Addr())
			if err := port.Know(transport.Name{ID: "driver"}, driver); err != nil {
				t.Fatal(err)
			}
			s, err := port.Stream(jobStream, transport.StreamOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		d := &Driver{Workers: 2, Silence: 20 * time.Second, Log: slog.New(slog.DiscardHandler), stream: open(transport.Name{ID: "driver"})}
		for i := range d.Workers {
			p, _ := launch.NewProcess("worker", func(os.Signal) error { return nil })
			d.workers = append(d.workers, &part{index: i, name: transport.Name{Role: "worker", ID: fmt.Sprint(i)}, process: p, hello: true})
		}
		speaks := open(d.workers[0].name)
		for range 2 * quietTicks {
			time.Sleep(d.tick())
			if err := speaks.Send(t.Context(), d.stream.Self(), transport.Frame{Kind: kindAlive, Priority: transport.Control}); err != nil {
				t.Fatal(err)
			}
			d.attend()
			d.listen()
		}
		if d.workers[0].quiet > 1 || d.lost == nil || d.lost.Index != 1 {
			t.Errorf("the first is quiet for %d ticks; lost is %v, want the second", d.workers[0].quiet, d.lost)
		}
	})
}

// TestSilentThread: of a worker that is a thread of this very process it is not said that it was stopped, or that its machine is gone.
func TestSilentThread(t *testing.T) {
	threads := launch.NewGoroutines(func(ctx context.Context, _ launch.Child) error {
		<-ctx.Done()
		return nil
	})
	defer threads.Close()
	p, err := threads.Start(t.Context(), launch.Spec{Name: "worker/0"})
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{Silence: time.Second}
	if s := d.silent(&part{process: p}); !strings.Contains(s, "thread of this process") || strings.Contains(s, "stopped") {
		t.Error(s)
	}
}
