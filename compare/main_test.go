package compare

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/train/local"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

// TestMain is also where the processes of the tests begin: workers, fake peers, and comparisons that are killed.
func TestMain(m *testing.M) {
	if child, ok, err := launch.Enter(os.Args); ok {
		if err == nil {
			err = work(context.Background(), child, nil, nil)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "fake-peer":
			fakePeer(os.Args[2])
			os.Exit(0)
		case "killed-comparison":
			p := killedPlan(os.Args[2])
			p.Watch.Trialed = func(Trialed, Table) {
				fmt.Println("a trial is finished")
				_, _ = io.Copy(io.Discard, os.Stdin) // stands still as long as that is open
			}
			if _, err := Run(context.Background(), p); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

var topologies = processes.Topologies{
	{Name: "local", New: func(env train.Env, _ json.RawMessage) (trivium.Strategy, error) {
		return local.New(env, local.Options{}), nil
	}},
	{Name: "server", New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
		var o server.Options
		err := json.Unmarshal(options, &o)
		return server.New(env, o), err
	}},
	{Name: "allreduce", New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
		var o allreduce.Options
		err := json.Unmarshal(options, &o)
		return allreduce.New(env, o), err
	}},
}

func work(ctx context.Context, child launch.Child, network transport.Network, sources data.Sources) error {
	return workOn(ctx, child, network, sources, nil)
}

func workOn(ctx context.Context, child launch.Child, network transport.Network, sources data.Sources, models nn.Models) error {
	var a processes.Assignment
	if err := json.Unmarshal(child.Config, &a); err != nil {
		return err
	}
	return processes.Work(ctx, &a, processes.Options{
		Topologies: processes.Topologies{Trials(topologies)}, Build: "this", Network: network, Sources: sources, Models: models,
		Log: slog.New(slog.NewTextHandler(child.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// inMemory is a host whose processes are goroutines on a network in memory.
func inMemory() Host {
	network, sources := transport.NewMemory(), drawnOnce()
	return Host{
		Topologies: topologies, Build: "this", Version: "test", Network: network, Sources: sources,
		Launcher: func() launch.Launcher {
			return launch.NewGoroutines(func(ctx context.Context, c launch.Child) error { return work(ctx, c, network, sources) })
		},
	}
}

// drawnOnce are the generators, which draw the same rows once for all that ask: rows are read-only to everyone, so that the evaluator and the
// workers of every trial may share them.
func drawnOnce() data.Sources {
	list := data.Sources{}
	for name, generate := range data.Generators() {
		var mu sync.Mutex // held while rows are drawn: the others want the same ones
		made := map[string]data.Splits{}
		list[name] = func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
			mu.Lock()
			defer mu.Unlock()
			key := fmt.Sprintf("%+v", d)
			s, ok := made[key]
			if !ok {
				drawn, err := generate(ctx, d)
				if err != nil {
					return nil, err
				}
				s = *drawn
				s.Notes = slices.Clip(s.Notes) // whoever adds one makes a list of its own
				made[key] = s
			}
			return &s, nil
		}
	}
	return list
}

// byProcess is a host whose processes are this test.
func byProcess() Host { return Host{Topologies: topologies, Build: "this", Version: "test"} }

// digits is a small task of the paper's kind.
func digits() Task {
	t := paperTask("softmax", "softmax", trivium.Data{Source: "digits", Rows: 800, Train: "0:600", Test: "600:"}, Target{"test", "accuracy", 0.75, true}, 20)
	return t
}

// systems returns those of our rows.
func systems(t testing.TB, h Host, names ...string) []System {
	t.Helper()
	list, err := PickSystems(Strategies(h), names)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
