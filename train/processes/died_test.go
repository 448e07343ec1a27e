package processes_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

type trains func(context.Context) (trivium.Result, error)

func (f trains) Train(ctx context.Context, _ *trivium.Job) (trivium.Result, error) { return f(ctx) }

// TestDeathIsTold: a worker dies after all were asked to end, when the driver tells nobody to give up. The server hears of it from the
// driver, and from nobody else here: the worker's links and its beats go on.
func TestDeathIsTold(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var begun, wait sync.WaitGroup
	begun.Add(3)
	killed, heard, over := make(chan struct{}), make(chan error, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(over) })
	o := options()
	o.Topologies = processes.Topologies{{Name: "waits", Bare: true, New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
		return trains(func(ctx context.Context) (trivium.Result, error) {
			begun.Done()
			<-ctx.Done()
			switch {
			case env.Role == observe.Server:
				heard <- context.Cause(ctx)
				release()
			case env.Rank == 1:
				close(killed)
			}
			<-over
			return trivium.Result{Reason: trivium.Interrupted}, nil
		}), nil
	}}}
	memory := transport.NewMemory()
	o.Network = memory
	last, end := context.WithCancel(context.WithoutCancel(ctx))
	d := driver(t, same)
	_ = errors.Join(d.Launcher.Close(), d.Port.Close())
	d.Topology, d.Workers, d.Servers = o.Topologies[0], 2, 1
	d.Launcher = launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
		if c.Name != "worker/1" {
			return work(ctx, c, o)
		}
		wait.Go(func() { _ = work(last, c, o) })
		<-killed
		return errors.New("killed")
	})
	var err error
	if d.Port, err = memory.Open(ctx, transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{}); err != nil {
		t.Fatal(err)
	}
	wait.Go(func() {
		begun.Wait()
		interrupt()
	})
	_, err = d.Train(ctx)
	if lost, ok := errors.AsType[*processes.WorkerError](err); !ok || lost.Index != 1 {
		t.Errorf("error %v", err)
	}
	select {
	case err := <-heard:
		if lost, ok := errors.AsType[*train.LostError](err); !ok || lost.Peer.ID != "1" {
			t.Errorf("the server was ended by %v", err)
		}
	default:
		t.Error("the server has heard nothing")
		release()
	}
	end()
	wait.Wait()
}
