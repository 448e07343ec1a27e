package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

var topology = processes.Topology{
	Name: "server",
	New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
		var o server.Options
		err := json.Unmarshal(options, &o)
		return server.New(env, o), err
	},
}

// TestRate: how far a job of several members is, and so its rate, is that of all workers. Here rank 0 is the slow one: what it has done
// itself, times their number, would be an eighth of the others' part. Members are goroutines and time is virtual, so that a busy machine
// makes no other slow.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := small(job())
		rows, updates := int64(1600), int64(300)
		if testing.Short() {
			rows, updates = 400, 75
		}
		j.Epochs = 1 << 20
		d := together(t, j, server.Options{Mode: ps.ASP, Slow: server.Slow{Factor: 8, Unit: 20 * time.Millisecond}})
		d.Topology.Apart = func(json.RawMessage) bool { return true }
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const enough = 30 // updates of rank 0, of 160 ms each; it hears of the others' from time to time
		var last train.Progress
		d.Watch.Progress = func(p train.Progress) {
			if last.Step < enough {
				last = p
			}
			if p.Step >= enough {
				stop()
			}
		}
		r, err := d.Train(ctx)
		if err != nil || r.Reason != trivium.Interrupted {
			t.Fatalf("%+v, %v", r, err)
		}
		// In an update of rank 0 the others make eight each.
		own := last.Step/6*rows + last.Step%6*updates
		t.Logf("%d rows in %v, in %d updates of the slow worker", last.Samples, last.Elapsed, last.Step)
		if last.Samples < 4*own || last.Samples > 6*own || last.SamplesPerSec() < 4*float64(own)/last.Elapsed.Seconds() {
			t.Errorf("%d rows are counted, %.0f a second, of %d of rank 0's updates, times the workers", last.Samples, last.SamplesPerSec(), own)
		}
		if own := r.Steps/6*rows + r.Steps%6*updates; r.Samples < 4*own {
			t.Errorf("in the end %d rows are counted, of %d updates of the slow worker", r.Samples, r.Steps)
		}
	})
}

// together returns the driver of a job whose members are goroutines of this process.
func together(t *testing.T, j *trivium.Job, o server.Options) *processes.Driver {
	t.Helper()
	network := transport.NewMemory()
	return drive(t, j, o, network, transport.Options{}, launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
		var a processes.Assignment
		if err := json.Unmarshal(c.Config, &a); err != nil {
			return err
		}
		return processes.Work(ctx, &a, processes.Options{Topologies: processes.Topologies{topology}, Build: "this", Network: network, Log: slog.New(slog.NewTextHandler(c.Stderr, nil))})
	}))
}

// drive returns the driver of a job of three workers and a server.
func drive(t testing.TB, j *trivium.Job, o server.Options, network transport.Network, port transport.Options, launcher launch.Launcher) *processes.Driver {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	d := &processes.Driver{
		Run: "test", Job: j, Topology: topology, Options: options, Workers: 3, Servers: 1, Threads: 1, Build: "this",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Grace: 30 * time.Second, Launcher: launcher,
	}
	if d.Port, err = network.Open(t.Context(), transport.Name{Job: "test", Role: "driver", ID: "0"}, port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Launcher.Close(), d.Port.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}
