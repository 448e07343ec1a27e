package compare

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// manyRows are dense rows of which nothing but their number is looked at.
type manyRows struct {
	data.Dataset
	rows    int64
	columns int
}

func (m manyRows) Rows() int64 { return m.rows }

func (m manyRows) Schema() trivium.Schema {
	return trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{m.columns}}}}
}

// TestFullDiskInOneLine: what several files say of a full disk is one line.
func TestFullDiskInOneLine(t *testing.T) {
	one := &fs.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}
	if err := fullDisk("dir", errors.Join(one, one), nil); strings.Count(err.Error(), one.Error()) != 2 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
}

// TestTakes: what a trial's processes are expected to take is within a tenth of what they took (proportional set size, in MB, on Linux with
// huge pages where they are asked for), or a little more: a worker of a generated set holds its own rows, of files everything, a peer its own rows of either.
func TestTakes(t *testing.T) {
	images, err := data.Open(t.Context(), trivium.Data{}, data.Options{Unsummed: true, Walk: func(int64) data.BatchOptions {
		return data.BatchOptions{Span: -1} // none of them is drawn
	}})
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]data.Splits{
		"logistic":   {Train: manyRows{rows: 10_000, columns: 10_000}, Test: manyRows{rows: 2_000, columns: 10_000}},
		"drawn/mlp1": {Train: images.Train, Test: images.Test}, // four files of digits
	}
	peers, err := Peers(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	systems := append(Strategies(Host{}), peers...)
	for _, c := range []struct {
		set, system string
		workers     int
		measured    float64
	}{
		{"logistic", "local", 1, 423},
		{"logistic", "allreduce", 2, 533},
		{"logistic", "allreduce", 3, 461},
		{"logistic", "allreduce", 5, 485},
		{"logistic", "server-bsp", 3, 459 + 16},
		{"logistic", "server-ssp3-clock10", 3, 455 + 15},
		{"logistic", "server-ssp3-clock100", 3, 475 + 16},
		{"logistic", "pytorch-ddp", 3, 1900},
		{"logistic", "horovod", 3, 1086},
		{"logistic", "mxnet-sync", 3, 694 + 61},
		{"logistic", "tensorflow-mirrored", 3, 1467},
		{"drawn/mlp1", "allreduce", 3, 265},
		{"drawn/mlp1", "server-bsp", 3, 258 + 19},
	} {
		list, err := PickSystems(systems, []string{c.system})
		if err != nil {
			t.Fatal(err)
		}
		splits := sets[c.set]
		e := &evaluator{splits: &splits}
		e.task.Job.Data, e.task.Job.Last = trivium.Data{Source: c.set, Order: "index"}, trivium.LastDrop
		a := list[0].About()
		got := float64(e.takes(Cell{System: c.system, Workers: c.workers, Servers: a.Server, Batch: 100}, list[0])) / 1e6
		if got < 0.9*c.measured || got > 1.1*c.measured+64*float64(c.workers+a.Server) {
			t.Errorf("%s, %s, %d workers: %.0f MB, and it took %.0f", c.set, c.system, c.workers, got, c.measured)
		}
	}
	// What does not fit into the memory for data is streamed; a program's own source may hold it all the same.
	many, e := manyRows{rows: 1 << 30, columns: 100}, &evaluator{}
	if got := e.resident(many); got != 2*16384*100*4 {
		t.Errorf("%d bytes of a stream", got)
	}
	e.host.Sources = data.Sources{"": nil}
	if got := e.resident(many); got != 1<<30*100*4 {
		t.Errorf("%d bytes of a program's own", got)
	}
}

// TestTakesOfAllRows: images are bytes in memory and numbers in an update, which takes four times as much where it is of all rows.
func TestTakesOfAllRows(t *testing.T) {
	images, err := data.Open(t.Context(), trivium.Data{Rows: 1000}, data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"digits", "drawn/mlp1"} { // made late, and files
		e := &evaluator{splits: &data.Splits{Train: images.Train}}
		e.task.Job.Data = trivium.Data{Source: source, Order: "index"}
		some := e.holds(Cell{Workers: 2, Batch: 100}, About{})
		all := e.holds(Cell{Workers: 2, Batch: trivium.FullBatch}, About{})
		if want := images.Train.Rows() * 28 * 28 * 4 / 2; all-some != want {
			t.Errorf("%s: an update of all rows takes %d bytes more, want %d", source, all-some, want)
		}
	}
}

// TestPlacesOfLocalSGD: a trial of local SGD keeps parameters only after updates at which the workers average: else they are one worker's.
func TestPlacesOfLocalSGD(t *testing.T) {
	e := &evaluator{splits: &data.Splits{Train: manyRows{rows: 10_000, columns: 1}}}
	for _, batch := range []int{300, 1500, trivium.FullBatch} {
		for last := int64(1); last < 200; last += 7 {
			for _, u := range e.places(batch, last, 8, 40) {
				if u%8 != 0 || u > last {
					t.Errorf("batch %d, %d updates: a place after update %d", batch, last, u)
				}
			}
		}
	}
}
