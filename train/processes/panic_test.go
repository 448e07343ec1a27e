package processes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// TestPanicGetsOut: a panic of a user's model leaves Work, so that the process prints it and ends. It was kept, and the worker with it, by what
// Work waits for, until the driver had heard nothing for so long that it killed the process, and nobody was told why.
func TestPanicGetsOut(t *testing.T) {
	o := options()
	o.Topologies = processes.Topologies{{Name: "panics", Bare: true, New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
		return trains(func(ctx context.Context) (trivium.Result, error) {
			if env.Rank == 1 {
				panic("of the model")
			}
			<-ctx.Done()
			return trivium.Result{}, context.Cause(ctx)
		}), nil
	}}}
	memory := transport.NewMemory()
	o.Network = memory
	d := driver(t, same)
	_ = errors.Join(d.Launcher.Close(), d.Port.Close())
	d.Topology, d.Workers = o.Topologies[0], 2
	d.Launcher = launch.NewGoroutines(func(ctx context.Context, c launch.Child) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return work(ctx, c, o)
	})
	var err error
	if d.Port, err = memory.Open(t.Context(), transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = d.Train(t.Context())
	if lost, ok := errors.AsType[*processes.WorkerError](err); !ok || lost.Index != 1 || !strings.Contains(err.Error(), "panic: of the model") {
		t.Errorf("error %v", err)
	}
}
