package kmeans_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/kmeans"
	"github.com/trivium-ml/trivium/examples/pmls/pmlstest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

// corner starts with a centre in each group.
func corner(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
	return kmeans.From([]float32{7, 12, -13, 8, 12, -8, -8, -13}, s)
}

// example is what a test's processes know.
var example = pmlstest.Example{
	Models: nn.Models{"corner": corner},
	Sources: data.Sources{"groups": func(context.Context, trivium.Data) (*data.Splits, error) {
		return &data.Splits{Train: kmeans.Groups(1000, 1)}, nil
	}},
}

func TestMain(m *testing.M) {
	example.Enter()
	goleak.VerifyTestMain(m)
}

var corners = [][2]float64{{10, 10}, {-10, 10}, {10, -10}, {-10, -10}}

// TestCase27: 1,000 points around (±10, ±10), deviation 1, one start centre in each group, ten passes, batches of 100: centres within 0.3.
func TestCase27(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, o := range []server.Options{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.ASP}} {
			r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 100, Epochs: 10}, corner, kmeans.Groups(1000, 1), workers, o)
			check(t, o.Mode, r.Params, r.Metrics["train.loss"])
		}
	}
}

// TestCase27InProcesses is TestCase27 with workers and a server in processes of their own.
func TestCase27InProcesses(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for mode, consistency := range map[ps.Mode]string{ps.BSP: "bsp", ps.SSP: "ssp:3", ps.ASP: "asp"} {
			r := example.InProcesses(t, fmt.Sprintf("corner --data groups --batch 100 --epochs 10 --workers %d --consistency %s", workers, consistency))
			check(t, mode, r.Last().Params, r.Metrics["train.loss"])
		}
	}
}

func check(t *testing.T, mode ps.Mode, p trivium.Params, loss float64) {
	t.Helper()
	const points = 2500 + 1 // ten passes, and the start
	for c, want := range corners {
		row := p.Tensor(0)[3*c : 3*c+3]
		n := row[2]
		if n != points {
			t.Errorf("%s: centre %d has %v points, want %v", mode, c, n, points)
		}
		for i, x := range want {
			if got := float64(row[i] / n); !(math.Abs(got-x) <= 0.3) {
				t.Errorf("%s: centre %d: coordinate %d is %v, want %v", mode, c, i, got, x)
			}
		}
	}
	// Two coordinates of variance 1. Under ASP nothing bounds how old the centres are by which a worker measures its last rows: in a job
	// this short they may be those of the beginning.
	if mode != ps.ASP && !(loss < 2.2) {
		t.Errorf("%s: mean squared distance %v, want 2", mode, loss)
	}
}

// TestMeanWhileOthersAdd: what another worker adds between two reads makes no mean wrong.
func TestMeanWhileOthersAdd(t *testing.T) {
	points := func(n int) trivium.Batch { // all at (10, 10)
		in := trivium.Input{Form: trivium.Dense, Shape: []int{2}, Values: slices.Repeat([]float32{10}, 2*n)}
		return trivium.Batch{Rows: n, Inputs: []trivium.Input{in}}
	}
	var models [2]*kmeans.Model
	for i := range models {
		var err error
		if models[i], err = kmeans.From([]float32{10, 10}, trivium.Schema{Inputs: []trivium.InputSpec{{Form: trivium.Dense, Shape: []int{2}}}}); err != nil {
			t.Fatal(err)
		}
	}
	tables := models[0].Tables()
	for i := range tables {
		tables[i].Mode = ps.ASP
	}
	applied := make(chan struct{})
	workers := two(t, tables, func(_, client int, stamp ps.Clock, _ int) {
		if client == 1 && stamp == 1 {
			close(applied)
		}
	})
	both(t, func(i int) error {
		return errors.Join(models[i].Begin(t.Context(), workers[i], server.Part{Rank: i, Workers: 2}), workers[i].Barrier(t.Context()))
	})
	var once sync.Once
	workers[0].OnRead(func(string, ps.Clock, bool) {
		once.Do(func() {
			err := models[1].Round(t.Context(), workers[1], points(100))
			if _, e := workers[1].Clock(t.Context()); err != nil || e != nil {
				t.Error(err, e)
			}
			<-applied
		})
	})
	if err := models[0].Round(t.Context(), workers[0], points(1)); err != nil {
		t.Fatal(err)
	}
	if loss, _ := models[0].RoundLoss(); loss > 1e-6 {
		t.Errorf("a point on its centre has the squared distance %v", loss)
	}
}

// two returns workers of two clients, of which the first has the server too.
func two(t *testing.T, tables []ps.Spec, applied func(lane, client int, stamp ps.Clock, bytes int)) (workers [2]*ps.Worker) {
	network := transport.NewMemory()
	var ports [2]transport.Port
	var hosts [2]*ps.Host
	for i := range ports {
		port, err := network.Open(t.Context(), transport.Name{Role: "worker", ID: strconv.Itoa(i)}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = port.Close() })
		stream, err := port.Stream("ps", ps.StreamOptions())
		if err != nil {
			t.Fatal(err)
		}
		ports[i], hosts[i] = port, ps.Share(stream, nil)
		t.Cleanup(func() { _ = hosts[i].Close() })
	}
	first := ports[0].Name()
	if err := ports[1].Know(first, ports[0].Addr()); err != nil {
		t.Fatal(err)
	}
	place := ps.Placement{Directory: first, Servers: []transport.Name{first}, Clients: []transport.Name{first, ports[1].Name()}}
	if _, err := hosts[0].Direct(place, ps.DirectoryOptions{}); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		_ = hosts[0].Serve(t.Context(), place, ps.ServerOptions{Trace: ps.ServerTrace{Applied: applied}})
	})
	t.Cleanup(served.Wait)
	both(t, func(i int) error {
		c, err := hosts[i].Open(t.Context(), place, tables, ps.Options{})
		if err == nil {
			workers[i], err = c.Worker(t.Context())
		}
		return err
	})
	return workers
}

// both does f for two workers at once.
func both(t *testing.T, f func(i int) error) {
	var errs [2]error
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { errs[i] = f(i) })
	}
	wait.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
}

// TestChoice: without given centres, rows that lie apart are taken.
func TestChoice(t *testing.T) {
	r := pmlstest.Train(t, train.Env{}, trivium.Job{Batch: 100, Epochs: 5, Seed: 3}, func(_ string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		return kmeans.New("4", s, nil)
	}, kmeans.Groups(1000, 2), 2, server.Options{Mode: ps.SSP, Staleness: 1})
	if !(r.Metrics["train.loss"] < 2.2) {
		t.Errorf("mean squared distance %v, want 2", r.Metrics["train.loss"])
	}
}

// TestRefused: arguments and data that are none.
func TestRefused(t *testing.T) {
	for _, args := range []string{"", "0", "x"} {
		_, err := kmeans.New(args, trivium.Schema{}, nil)
		if _, ok := errors.AsType[*nn.ArgumentError](err); !ok {
			t.Errorf("%q: %v, want an ArgumentError", args, err)
		}
	}
	if _, err := kmeans.New("2", trivium.Schema{}, nil); err == nil {
		t.Error("no input is taken")
	}
}
