package server_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestScheduleOfRowsAtWorkers: a schedule counts the updates of a row that all workers make, also where each worker's optimizer sees its own.
func TestScheduleOfRowsAtWorkers(t *testing.T) {
	j := job()
	j.Model, j.Data = "logistic", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
	j.Batch, j.Epochs, j.Steps, j.Optimizer = 4, 0, 120, trivium.OptimizerSpec{Name: "sgd", Rate: 0.01, Schedule: "linear:40"}
	want := alone(t, train.Env{}, j)
	for _, mode := range []ps.Mode{ps.BSP, ps.ASP} {
		got, err := (&crew{workers: 4, servers: 1, o: server.Options{Mode: mode, OptimizerAt: server.AtWorker}}).paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		var along, all float64
		for i, x := range want.Params.Flat { // it begins at 0
			along, all = along+float64(x)*float64(got.Params.Flat[i]), all+float64(x)*float64(x)
		}
		if r := along / all; !(math.Abs(r-1) <= 0.2) { // a row that half of the examples have goes 1.8 times as far where own touches are counted
			t.Errorf("%v: the model moves %.3f times as far as one process moves it", mode, r)
		}
	}
}

// TestRowsAtWorkersGoAsFar: rows that few workers have in an update go as far as under local, also where each worker's optimizer sees its own
// gradients: under rules that add up squares, or average them, and where L2 is beside a velocity.
func TestRowsAtWorkersGoAsFar(t *testing.T) {
	for _, o := range []trivium.OptimizerSpec{
		{Name: "adagrad", Rate: 0.02},
		{Name: "rmsprop", Rate: 0.002},
		{Name: "adam", Rate: 0.01, L2: 1e-3},
		{Name: "momentum", Rate: 0.1, L2: 0.01},
		{Name: "ftrl", Rate: 0.1, L1: 0.01},
	} {
		if testing.Short() && o.Name != "adam" {
			continue // all in the full run
		}
		j := job()
		j.Model, j.Data = "logistic", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
		j.Batch, j.Epochs, j.Optimizer = 12, 10, o
		want := alone(t, train.Env{}, j)
		got, err := (&crew{workers: 3, servers: 1, o: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}}).paced(t, j)
		if err != nil {
			t.Fatal(err)
		}
		var along, all float64
		for i, x := range want.Params.Flat { // it begins at 0
			along, all = along+float64(x)*float64(got.Params.Flat[i]), all+float64(x)*float64(x)
		}
		t.Logf("%s: the model moves %.3f times as far as one process moves it", o.Name, along/all)
		if r := along / all; !(math.Abs(r-1) < 0.05) {
			t.Errorf("%s: the model moves %.3f times as far as one process moves it", o.Name, r)
		}
	}
}

// TestRowsAsLocal: rows that a server steps together have the bits that one process gives them, rows whose first update comes late among them,
// under rules that count steps, that begin with the first, and that do neither.
func TestRowsAsLocal(t *testing.T) {
	for _, o := range []trivium.OptimizerSpec{
		{Name: "ftrl", Rate: 0.05, L1: 0.001},
		{Name: "adam", Rate: 0.01},
		{Name: "momentum", Rate: 0.1, Schedule: "linear:40"},
		{Name: "adagrad", Rate: 0.02, ClipValue: 0.01},
	} {
		j := job()
		j.Model, j.Data = "fm:4", trivium.Data{Source: "wide", Rows: 1500, Train: "0:1200", Test: "1200:"}
		j.Batch, j.Epochs, j.Steps, j.Optimizer = 6, 0, 60, o
		want := alone(t, train.Env{}, j)
		for _, mode := range []ps.Mode{ps.BSP, ps.SSP} {
			got, err := (&crew{workers: 1, servers: 2, o: server.Options{Mode: mode}}).Train(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			other := 0
			for i, x := range want.Params.Flat {
				if math.Float32bits(x) != math.Float32bits(got.Params.Flat[i]) {
					other++
				}
			}
			if other > 0 {
				t.Errorf("%s, %v: %d of %d cells have other bits", o.Name, mode, other, len(want.Params.Flat))
			}
		}
	}
}
