package processes

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

type trains func(context.Context) (trivium.Result, error)

func (f trains) Train(ctx context.Context, _ *trivium.Job) (trivium.Result, error) { return f(ctx) }

// A pausing driver has one worker, which has ended while the driver took nothing, as one that was stopped.
type pausing struct {
	*testing.T
	Driver
	ctx    context.Context
	worker transport.Name
	end    func()     // the worker's context
	over   chan error // what Work returns
}

// pause makes one, after a pause of ten minutes, in which the worker's signs of life have taken all credit. After six of them the worker does its
// work. It is for a bubble.
func pause(t *testing.T, work func(env train.Env)) *pausing {
	t.Helper()
	network := transport.NewMemory()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	port, err := network.Open(ctx, transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = port.Close() // never fails
	})
	stream := func(name string) transport.Stream {
		s, err := port.Stream(name, transport.StreamOptions{MaxFrame: maxMessage})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	jobs, metas := stream(jobStream), stream(metaStream)
	go func() { _ = meta.Serve(ctx, meta.NewMemory(meta.Options{}), metas) }()
	job, err := (&trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits"}, Batch: 1, Epochs: 1, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 1},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	a := Assignment{Run: "test", Workers: 1, Job: job, Topology: "waits", Threads: 1, Driver: port.Name(), DriverAddr: port.Addr()}
	o := Options{Network: network, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Topologies: Topologies{{
		Name: "waits", Bare: true, New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
			return trains(func(context.Context) (trivium.Result, error) {
				time.Sleep(6 * time.Minute)
				work(env)
				return trivium.Result{Reason: trivium.Finished, Steps: 7}, nil
			}), nil
		},
	}}}
	d := &pausing{T: t, Driver: Driver{stream: jobs}, ctx: ctx, worker: a.Name(), over: make(chan error, 1)}
	var working context.Context
	working, d.end = context.WithCancel(ctx)
	go func() { d.over <- Work(working, &a, o) }()
	d.hears(kindReady)
	d.tells(kindBegin)
	time.Sleep(10 * time.Minute)
	return d
}

func (d *pausing) tells(kind uint8) {
	d.Helper()
	if err := d.send(d.ctx, d.worker, kind, nil); err != nil {
		d.Fatal(err)
	}
}

// hears waits for a message of that kind.
func (d *pausing) hears(kind uint8) {
	d.Helper()
	waiting, cancel := context.WithTimeout(d.ctx, time.Minute)
	defer cancel()
	for {
		ev, err := d.stream.Recv(waiting)
		if err != nil {
			d.Fatalf("kind %d does not come: %v", kind, err)
		}
		if ev.Release(); ev.What == transport.Received && ev.Kind == kind {
			return
		}
	}
}

// TestResultAfterAPause: a worker that ended while its driver took nothing tells its result once the driver goes on: else that would wait for
// it for ever, since the worker lives. It gives up where the driver has told the end, and where it is itself to end.
func TestResultAfterAPause(t *testing.T) {
	for name, then := range map[string]func(d *pausing){
		"the driver goes on": func(d *pausing) {
			d.hears(kindResult)
			d.tells(kindEnd)
		},
		"the driver has told the end": func(d *pausing) { d.tells(kindEnd) },
		"the worker is to end":        func(d *pausing) { d.end() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := pause(t, func(train.Env) {})
				then(d)
				began := time.Now()
				select {
				case err := <-d.over:
					if err != nil {
						t.Error(err)
					}
				case <-d.ctx.Done():
				}
				if took := time.Since(began); took > 3*tellWait {
					t.Errorf("the worker ends %v later, want at most %v", took, 3*tellWait)
				}
			})
		})
	}
}

// TestTrainingGoesOnInAPause: a worker trains on, and observes, while its driver takes nothing. What it says of that meanwhile comes when the driver
// goes on, in its order and before the result; of much, not all.
func TestTrainingGoesOnInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		d := pause(t, func(env train.Env) {
			began := time.Now()
			w := env.Watch
			w.Begin(train.Progress{})
			for step := range int64(1000) {
				time.Sleep(10 * time.Millisecond)
				w.Progress(train.Progress{Step: step + 1})
				if step%100 == 99 {
					w.Evaluated(train.Progress{Step: step + 1}, map[string]float64{"test.loss": 1})
				}
			}
			w.Notice(observe.Info, "last")
			took = time.Since(began)
		})
		kinds := map[uint8]int{}
		last := uint8(0)
		for {
			ev, err := d.stream.Recv(d.ctx)
			if err != nil {
				t.Fatal(err)
			}
			kind := ev.Kind
			ev.Release()
			if kind == kindResult {
				break
			}
			if kind == kindAlive || kind == kindObservation {
				continue
			}
			kinds[kind]++
			last = kind
		}
		d.tells(kindEnd)
		if kinds[kindBegin] != 1 || kinds[kindEvaluated] != 10 || kinds[kindProgress] == 0 || last != kindSaid {
			t.Errorf("of each kind come %v, at last %d", kinds, last)
		}
		if err := <-d.over; err != nil {
			t.Error(err)
		}
		if want := 1000 * 10 * time.Millisecond; took != want {
			t.Errorf("1,000 updates take %v while the driver takes nothing, want %v", took, want)
		}
	})
}
