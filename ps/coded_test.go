package ps

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/transport"
)

// TestCase22Codec: what a codec drops is not lost: the sum that was applied and the residuals are the sum of the deltas. In the simulator, and
// over TCP.
func TestCase22Codec(t *testing.T) {
	for _, name := range []string{"topk:0.01", "1bit", "int8", "f16"} {
		for _, cols := range []int64{100, 3000} {
			t.Run(fmt.Sprintf("%s/%d", name, cols), func(t *testing.T) {
				x := newCase22(t, name, cols)
				j := newSimJob(sim.New(22, sim.Options{}), x.options)
				for k := range x.want {
					j.start(k, 0, func(w *Worker, _ func(time.Duration)) error { return x.work(w, k) })
				}
				j.run(t, time.Hour)
				for _, c := range j.clients {
					x.keep(c.state)
				}
				x.check(t)
			})
		}
		t.Run(name+"/tcp", func(t *testing.T) {
			if testing.Short() && name != "topk:0.01" {
				t.Skip("not run here: one codec over TCP is enough, each takes as long")
			}
			x := newCase22(t, name, 3000)
			j := newRealJob(t, transport.TCP{}, x.options)
			j.each(x.work)
			for _, c := range j.clients {
				c.Lock()
				x.keep(c.state)
				c.Unlock()
			}
			j.close()
			x.check(t)
		})
	}
}

// A case22 is two clients that add to two rows of a table through a codec.
type case22 struct {
	options simOptions
	cols    int64
	unit    float32   // of what is added
	within  float64   // of what may be off
	got     []float32 // what was applied
	left    []float64 // what was dropped
	want    [2][]float64
}

func newCase22(t *testing.T, name string, cols int64) *case22 {
	t.Helper()
	up, err := compress.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	x := &case22{cols: cols, unit: 1000, within: 1e-4} // float32 sums of 200 values
	if name == "topk:0.01" {                           // sums of these have no rounding, nor has what is dropped of them
		x.unit, x.within = 1024, 1e-5
	}
	spec := Spec{Name: "t", Rows: 2, Cols: cols, Mode: SSP, Staleness: 2}
	x.options = simOptions{clients: 2, servers: 2, lanes: 2, min: 16, tables: []Spec{spec}, client: Options{Up: up}}
	x.got, x.left = make([]float32, 2*cols), make([]float64, 2*cols)
	for k := range x.want {
		x.want[k] = make([]float64, 2*cols)
	}
	return x
}

// work is what client k does.
func (x *case22) work(w *Worker, k int) error {
	const rounds = 200
	tab, d := tableOf[float32](w, "t"), make([]float32, x.cols)
	for i := range rounds {
		row := int64(i % 2)
		for c := range d {
			d[c] = float32(int64(draw.Below(22, uint64(k), uint64(i)<<20|uint64(c), 2049))-1024) / x.unit
			x.want[k][row*x.cols+int64(c)] += float64(d[c])
		}
		if err := tab.DenseInc(row, 0, d); err != nil {
			return err
		}
		if _, err := w.Clock(bg); err != nil {
			return err
		}
	}
	if err := w.Barrier(bg); err != nil {
		return err
	}
	for range 3 { // so that a read may lack nothing
		if _, err := w.Clock(bg); err != nil {
			return err
		}
	}
	if k == 0 {
		_, err1 := tab.Get(bg, 0, x.got[:x.cols])
		_, err2 := tab.Get(bg, 1, x.got[x.cols:])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	return w.Finish(bg)
}

// keep adds up what a client has dropped.
func (x *case22) keep(s *ClientState) {
	for row, e := range s.byName["t"].residuals {
		for i, v := range e.Cells() {
			x.left[row*x.cols+int64(i)] += float64(v)
		}
	}
}

func (x *case22) check(t *testing.T) {
	t.Helper()
	dropped := 0.0
	for i, left := range x.left {
		dropped = max(dropped, math.Abs(left))
		want := x.want[0][i] + x.want[1][i]
		if diff := math.Abs(float64(x.got[i]) + left - want); diff > x.within {
			t.Fatalf("cell %d: applied %v and dropped %v, of %v", i, x.got[i], left, want)
		}
	}
	if dropped == 0 {
		t.Error("the codec dropped nothing")
	}
}

// TestCodecIntegers: half precision keeps integers to 2,048, and a mistake is told.
func TestCodecIntegers(t *testing.T) {
	spec := Spec{Name: "t", Rows: 1, Cols: 2049, Mode: BSP}
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: 2, min: 16, tables: []Spec{spec}, client: Options{Up: compress.F16{}}})
	j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
		tab, x := tableOf[float32](w, "t"), make([]float32, 2049)
		for i := range x {
			x[i] = float32(i)
		}
		if err := errors.Join(tab.DenseInc(0, 0, x), w.Barrier(bg)); err != nil {
			return err
		}
		if _, err := tab.Get(bg, 0, x); err != nil {
			return err
		}
		for i := range x {
			if x[i] != float32(i) {
				return fmt.Errorf("cell %d is %v", i, x[i])
			}
		}
		return w.Finish(bg)
	})
	j.run(t, time.Hour)
	p := j.p
	p.Exact = true
	if _, err := NewClientState(p, clientName(0), nil, Options{Up: compress.F16{}}); err == nil || !strings.Contains(err.Error(), "exact mode") {
		t.Errorf("exact mode takes a codec: %v", err)
	}
}

// TestCodedPiecesFit: what a codec makes of a long row fits messages, also where it is more than the cells are.
func TestCodedPiecesFit(t *testing.T) {
	p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 1}.withDefaults()
	spec := Spec{Name: "t", Rows: 1, Cols: maxPiece/4 + 1000}
	tab := newClientTable(newTable(&Definition{Spec: spec}, &p))
	for _, up := range []compress.Codec{compress.TopK{Share: 0.9}, compress.TopK{Share: 0.01}, compress.F16{}} {
		d, x := newDeltas[float32](tab, 0), make([]float32, spec.Cols)
		for i := range x {
			x[i] = float32(1 + i%100)
		}
		d.dense(0, 0, x)
		tab.residuals = nil
		var cells int64
		codedSections(d, up, func(s section, _ *hold) {
			if cells += int64(s.n); s.size() > maxPiece {
				t.Errorf("%s: %d cells are %d bytes, and a message has %d", up, s.n, s.size(), maxPiece)
			}
		})
		if cells != spec.Cols {
			t.Errorf("%s: %d of %d cells are sent", up, cells, spec.Cols)
		}
	}
}

// TestDropPlain: what a client before had dropped of cells that go as they are in this one is sent with the next round too: those of a cut
// that the codec cannot encode, of short rows, and of a client without a codec. Also where it is told of late.
func TestDropPlain(t *testing.T) {
	for cols, up := range map[int64]compress.Codec{150: compress.TopK{Share: 100} /* of shards of 75 */, 10: compress.F16{}, 100: nil} {
		spec := Spec{Name: "t", Rows: 1, Cols: cols, Mode: BSP}
		j := newRealJob(t, transport.NewMemory(), simOptions{clients: 1, servers: 2, min: 16, tables: []Spec{spec}, client: Options{Up: up}})
		j.each(func(w *Worker, client int) error {
			tab, x, got := tableOf[float32](w, "t"), make([]float32, cols), make([]float32, cols)
			for i := range x {
				x[i] = float32(i)
			}
			for round := range 3 {
				if err := j.clients[client].Drop("t", 0, x); err != nil {
					return err
				}
				if err := errors.Join(tab.DenseInc(0, 0, x), w.Barrier(bg)); err != nil {
					return err
				}
				if _, err := tab.Get(bg, 0, got); err != nil {
					return err
				}
				for i, v := range got {
					if want := 2 * float32(round+1) * x[i]; v != want {
						return fmt.Errorf("%d columns: after round %d cell %d is %v, want %v", cols, round, i, v, want)
					}
				}
			}
			return w.Finish(bg)
		})
		j.close()
	}
}

// TestFits: a client says of which tables its codec encodes nothing, and why.
func TestFits(t *testing.T) {
	specs := []Spec{{Name: "short", Rows: 9, Cols: 63}, {Name: "row", Rows: 9, Cols: 64}, {Name: "cut", Rows: 1, Cols: 300}, {Name: "sparse", Cols: 100, Sparse: true}}
	for name, want := range map[string][]string{ // of each table, what is in the error; empty: it is encoded
		"topk:0.01": {"63 cells are too short", "", "", "want dense ones"},
		"topk:200":  {"63 cells are too short", "of a vector of 36", "of a vector of 19", "want dense ones"},
	} {
		up, err := compress.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		j := newRealJob(t, transport.NewMemory(), simOptions{clients: 1, servers: 2, min: 16, tables: specs, client: Options{Up: up}})
		j.each(func(w *Worker, client int) error {
			for i, s := range specs {
				err := j.clients[client].Fits(s.Name)
				if (err == nil) != (want[i] == "") || err != nil && !strings.Contains(err.Error(), want[i]) {
					t.Errorf("%s, table %s: %v, want %q", name, s.Name, err, want[i])
				}
			}
			return w.Finish(bg)
		})
		j.close()
	}
}

// TestSetRate: what a codec has dropped counts as much after the learning rate has changed, also of a row that was not sent meanwhile.
func TestSetRate(t *testing.T) {
	const cols = 100
	j := newRealJob(t, transport.NewMemory(), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Cols: cols, Mode: BSP}}, client: Options{Up: compress.TopK{Share: 1}}})
	j.each(func(w *Worker, client int) error {
		tab, c := tableOf[float32](w, "t"), j.clients[client]
		push := func(row int64, rate, large, small float32) error { // the large one is sent
			x := make([]float32, cols)
			x[0], x[1] = large, small
			c.SetRate(float64(rate))
			return errors.Join(tab.DenseInc(row, 0, x), w.Barrier(bg))
		}
		if err := errors.Join(push(0, 1, 8, 3), push(1, 1, 8, 3), push(0, 0.5, 8, 0)); err != nil {
			return err
		}
		got := map[int64]float32{}
		c.Dropped(func(_ string, row int64, cells []float32) { got[row] = cells[1] })
		if want := map[int64]float32{0: 6, 1: 6}; !maps.Equal(got, want) {
			return fmt.Errorf("dropped at rate 1, and now worth %v at rate 0.5, want %v", got, want)
		}
		return w.Finish(bg)
	})
	j.close()
}

// TestSetCodec: a client that goes on in another's place sends what that would have sent, and what is no state of these tables changes
// nothing.
func TestSetCodec(t *testing.T) {
	const rounds = 6
	specs := []Spec{{Name: "a", Rows: 1, Cols: 300, Mode: BSP}, {Name: "b", Cols: 100, Mode: BSP}}
	run := func(codec string, from int, begin []byte, apply func(round int, a, b []float32)) (end []byte) {
		up, err := compress.Parse(codec)
		if err != nil {
			t.Fatal(err)
		}
		j := newRealJob(t, transport.NewMemory(), simOptions{clients: 1, servers: 2, min: 16, tables: specs, client: Options{Up: up}})
		j.each(func(w *Worker, client int) error {
			a, b := tableOf[float32](w, "a"), tableOf[float32](w, "b")
			c := j.clients[client]
			if begin != nil {
				for _, bad := range [][]byte{begin[:len(begin)-1], append(slices.Clone(begin), 0), {1, 1, 'c', 0}, {200}, {}} {
					if err := c.SetCodec(bad); err == nil {
						return fmt.Errorf("%d bytes are a codec's state", len(bad))
					}
				}
				if err := c.SetCodec(begin); err != nil {
					return err
				}
			}
			for i := from; i < rounds; i++ {
				x, was, now := make([]float32, 400), make([]float32, 400), make([]float32, 400)
				for k := range x {
					x[k] = float32(draw.Normal(5, uint64(i), uint64(k)))
				}
				get := func(to []float32) error {
					_, err1 := a.Get(bg, 0, to[:300])
					_, err2 := b.Get(bg, -7, to[300:])
					return errors.Join(err1, err2)
				}
				if err := errors.Join(get(was), a.DenseInc(0, 0, x[:300]), b.DenseInc(-7, 0, x[300:]), w.Barrier(bg), get(now)); err != nil {
					return err
				}
				apply(i, was, now)
				if from == 0 && i == 2 {
					end = c.AppendCodec(nil)
				}
			}
			return w.Finish(bg)
		})
		j.close()
		return end
	}
	for _, codec := range []string{"randomk:0.1", "powersgd:1"} {
		var kept []byte
		sent := map[int][]float32{}
		kept = run(codec, 0, nil, func(round int, was, now []float32) {
			for i := range now {
				now[i] -= was[i]
			}
			sent[round] = now
		})
		run(codec, 3, kept, func(round int, was, now []float32) {
			for i := range now {
				if d := now[i] - was[i] - sent[round][i]; d > 1e-5 || d < -1e-5 { // of sums that began elsewhere
					t.Errorf("%s: round %d changes cell %d by %v, want %v", codec, round, i, now[i]-was[i], sent[round][i])
					return
				}
			}
		})
	}
}
