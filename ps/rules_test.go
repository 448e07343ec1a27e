package ps

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// twice is MXNet's test rule: a cell grows by twice the sum of the gradients.
type twice struct{}

func (twice) Slots() int { return 0 }

func (twice) Elementwise() bool { return true }

func (twice) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, _ [][]float32) {
	for i := range u {
		u[i] = 2 * g[i]
	}
}

// TestCase9ServerRule is MXNet's dist_sync_kvstore.
func TestCase9ServerRule(t *testing.T) {
	const workers, rounds = 3, 5
	for _, size := range []int64{3, 1200} {
		for _, servers := range []int{1, 2} {
			if testing.Short() && (size == 1200) != (servers == 2) {
				continue // all in the full run
			}
			rows := int64(2)
			if size == 1200 {
				rows = 1200
			}
			dense := Spec{Name: "dense", Rows: rows, Cols: size, Mode: BSP, Optimizer: "twice", Init: Init{Kind: Constant, A: 1}}
			sparse := dense
			sparse.Name, sparse.Rows = "sparse", 2
			j := newSimJob(sim.New(9, sim.Options{}), simOptions{
				clients: workers, servers: servers, tables: []Spec{dense, sparse}, server: ServerOptions{Updaters: map[string]trivium.Optimizer{"twice": twice{}}},
			})
			for r := range workers {
				j.start(r, 0, func(w *Worker, _ func(time.Duration)) error {
					a, b := tableOf[float32](w, "dense"), tableOf[float32](w, "sparse")
					row, g := make([]float32, size), make([]float32, size)
					for i := range g {
						g[i] = float32(r + 1)
					}
					for k := range rounds {
						for i := range rows {
							if err := a.DenseInc(i, 0, g); err != nil {
								return err
							}
						}
						if err := b.DenseInc(int64(r%2), 0, g); err != nil {
							return err
						}
						if _, err := w.Clock(bg); err != nil {
							return err
						}
						for _, c := range []struct {
							t    Table[float32]
							row  int64
							want float32
						}{{a, rows - 1, float32(1 + 12*(k+1))}, {b, 0, float32(1 + 8*(k+1))}, {b, 1, float32(1 + 4*(k+1))}} {
							if _, err := c.t.Get(bg, c.row, row); err != nil {
								return err
							}
							for i, x := range row {
								if x != c.want {
									return fmt.Errorf("%s, round %d: row %d, cell %d is %v, want %v", c.t.Spec().Name, k, c.row, i, x, c.want)
								}
							}
						}
					}
					return w.Finish(bg)
				})
			}
			j.run(t, time.Hour)
		}
	}
}

// TestCase10SparseRows is ElasticDL's: a row that is named twice is stepped once, with the sum.
func TestCase10SparseRows(t *testing.T) {
	for _, spec := range []Spec{{Rows: 10, Cols: 4}, {Cols: 4}, {Cols: 4, Sparse: true}} {
		spec.Name, spec.Mode, spec.Optimizer = "t", BSP, "sgd rate=0.1"
		j := newSimJob(sim.New(10, sim.Options{}), simOptions{clients: 1, servers: 2, min: 4, tables: []Spec{spec}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			tab, row := tableOf[float32](w, "t"), make([]float32, 4)
			for _, rows := range [][]int64{{1, 3}, {1, 3, 3, 5}} {
				for _, r := range rows {
					if err := tab.DenseInc(r, 0, []float32{1, 1, 1, 1}); err != nil {
						return err
					}
				}
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			for r, want := range []float32{0, -0.2, 0, -0.3, 0, -0.1} {
				if _, err := tab.Get(bg, int64(r), row); err != nil {
					return err
				}
				for _, x := range row {
					if !(math.Abs(float64(x-want)) <= 1e-7) {
						return fmt.Errorf("%+v: row %d is %v, want %v", spec, r, row, want)
					}
				}
			}
			return w.Finish(bg)
		})
		j.run(t, time.Hour)
	}
}

// TestCase23SameBits: Adam at the server under BSP has the same bits for any number of servers and lanes; in exact mode also of workers,
// and they are those of one loop over the tree.
func TestCase23SameBits(t *testing.T) {
	const leaves, rounds, cols, rows = 16, 6, 300, 9
	grad := func(v, round, i int) float32 {
		x := draw.Unit(uint64(round), 70, uint64(v*10000+i))
		if i%7 == 0 {
			return float32(math.Copysign(0, -1))
		}
		return x * float32(math.Pow(2, float64(i%11)))
	}
	touched := func(v, round int, row int64) bool {
		return draw.Bits(uint64(round), 71, uint64(v*100)+uint64(row))%3 == 0
	}
	run := func(t *testing.T, workers, servers, lanes int, exact bool) (dense []float32, sparse [][]float32) {
		d := Spec{Name: "dense", Rows: 1, Cols: cols, Mode: BSP, Optimizer: "adam rate=0.01", Init: Init{Kind: Uniform, A: -1, B: 1, Seed: 5}}
		s := d
		s.Name, s.Rows, s.Cols = "sparse", rows, 10
		j := newSimJob(sim.New(23, sim.Options{}), simOptions{clients: workers, servers: servers, lanes: lanes, min: 16, most: 5, exact: exact, tables: []Spec{d, s}})
		for k := range workers {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				a, b := tableOf[float32](w, "dense"), tableOf[float32](w, "sparse")
				for r := range rounds {
					for _, p := range shards.Owned(k, workers, leaves) {
						id := p.Node
						if !exact {
							id = 0
						}
						g, weight := treeSum(p.From, p.To, func(v int) []float32 {
							g := make([]float32, cols)
							for i := range g {
								g[i] = grad(v, r, i)
							}
							return g
						})
						if err := errors.Join(a.IncPart(id, 0, 0, g), w.Weight(id, weight)); err != nil {
							return err
						}
						for row := range int64(rows) {
							if g := treeRow(p.From, p.To, func(v int) []float32 {
								if !touched(v, r, row) {
									return nil
								}
								g := make([]float32, 10)
								for i := range g {
									g[i] = grad(v+50, r, i)
								}
								return g
							}); g != nil {
								if err := b.IncPart(id, row, 0, g); err != nil {
									return err
								}
							}
						}
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
				}
				if k == 0 {
					dense = make([]float32, cols)
					if _, err := a.Get(bg, 0, dense); err != nil {
						return err
					}
					for row := range int64(rows) {
						x := make([]float32, 10)
						if _, err := b.Get(bg, row, x); err != nil {
							return err
						}
						sparse = append(sparse, x)
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, time.Hour)
		return dense, sparse
	}
	same := func(what string, a, b []float32) {
		t.Helper()
		for i := range a {
			if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
				t.Fatalf("%s: cell %d is %v, want %v", what, i, b[i], a[i])
			}
		}
	}
	dense, sparse := run(t, 3, 1, 1, false)
	for _, servers := range []int{1, 2, 5} {
		for _, lanes := range []int{1, 4} {
			d, s := run(t, 3, servers, lanes, false)
			same(fmt.Sprint(servers, lanes), dense, d)
			for r := range s {
				same(fmt.Sprint(servers, lanes, " row ", r), sparse[r], s[r])
			}
		}
	}
	// The loop in one place.
	rule, err := optimizerOf(&Spec{Optimizer: "adam rate=0.01"}, nil, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	init := Init{Kind: Uniform, A: -1, B: 1, Seed: 5}
	step := func(n int64, row int64, steps int64, cells, g []float32, slots [][]float32, weight float64) {
		l, err := trivium.NewLayout(trivium.Spec{Name: "r", Shape: []int{len(cells)}})
		if err != nil {
			t.Fatal(err)
		}
		g = slices.Clone(g)
		divide(kernel.Best(), g, weight)
		rule.Apply(steps, l, 0, cells, g, g, slots)
		kernel.AddInto(kernel.Best(), cells, g)
	}
	dense, sparse = make([]float32, cols), nil
	fill(&init, 0, 0, dense)
	slots := [][]float32{make([]float32, cols), make([]float32, cols)}
	var rowSlots [][][]float32
	steps := make([]int64, rows)
	for row := range int64(rows) {
		x := make([]float32, 10)
		fill(&init, row, 0, x)
		sparse = append(sparse, x)
		rowSlots = append(rowSlots, [][]float32{make([]float32, 10), make([]float32, 10)})
	}
	for r := range rounds {
		g, weight := treeSum(0, leaves, func(v int) []float32 {
			g := make([]float32, cols)
			for i := range g {
				g[i] = grad(v, r, i)
			}
			return g
		})
		step(0, 0, int64(r+1), dense, g, slots, weight)
		for row := range int64(rows) {
			g := treeRow(0, leaves, func(v int) []float32 {
				if !touched(v, r, row) {
					return nil
				}
				g := make([]float32, 10)
				for i := range g {
					g[i] = grad(v+50, r, i)
				}
				return g
			})
			if g != nil {
				steps[row]++
				step(0, row, steps[row], sparse[row], g, rowSlots[row], weight)
			}
		}
	}
	for _, workers := range []int{1, 2, 3, 4, 5, 8} {
		for _, servers := range []int{1, 3} {
			d, s := run(t, workers, servers, 1, true)
			same(fmt.Sprint("exact ", workers, servers), dense, d)
			for r := range s {
				same(fmt.Sprint("exact ", workers, servers, " row ", r), sparse[r], s[r])
			}
		}
	}
}

// treeSum adds leaves from to to-1 by the tree's definition, and counts them as their weights.
func treeSum(from, to int, leaf func(v int) []float32) ([]float32, float64) {
	g := treeRow(from, to, leaf)
	return g, float64(to - from)
}

// treeRow is the sum by definition; a missing side is left out.
func treeRow(from, to int, leaf func(v int) []float32) []float32 {
	n := to - from
	if n == 1 {
		return leaf(from)
	}
	half := 1
	for 2*half < n {
		half *= 2
	}
	a, b := treeRow(from, from+half, leaf), treeRow(from+half, to, leaf)
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// TestTreeOfCells: in exact mode partial sums are added along the tree also where rows travel as single cells, since they are sparse or
// few of their cells are not zero.
func TestTreeOfCells(t *testing.T) {
	const leaves, rows, cols = 16, 5, 30
	for _, spec := range []Spec{{Rows: rows}, {Sparse: true}, {Sparse: true, Optimizer: "sgd rate=0.1"}} {
		spec.Name, spec.Cols, spec.Mode = "t", cols, BSP
		run := func(workers int) (bits []uint32) {
			j := newSimJob(sim.New(23, sim.Options{}), simOptions{clients: workers, servers: 2, exact: true, tables: []Spec{spec}})
			for k := range workers {
				j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
					tab := tableOf[float32](w, "t")
					for _, p := range shards.Owned(k, workers, leaves) {
						for row := range int64(rows) {
							g := treeRow(p.From, p.To, func(v int) []float32 {
								g := make([]float32, cols)
								for i := 0; i < cols; i += 10 {
									g[i] = draw.Unit(uint64(v), 70, uint64(row*cols)+uint64(i)) * float32(math.Pow(2, float64(v%11)))
								}
								return g
							})
							if err := tab.IncPart(p.Node, row, 0, g); err != nil {
								return err
							}
						}
					}
					if err := w.Barrier(bg); err != nil {
						return err
					}
					if k == 0 {
						x := make([]float32, cols)
						for row := range int64(rows) {
							if _, err := tab.Get(bg, row, x); err != nil {
								return err
							}
							for _, y := range x {
								bits = append(bits, math.Float32bits(y))
							}
						}
					}
					return w.Finish(bg)
				})
			}
			j.run(t, time.Hour)
			return bits
		}
		want := run(1)
		for _, workers := range []int{3, 4, 16} {
			if got := run(workers); !slices.Equal(got, want) {
				t.Errorf("sparse %v, optimizer %q: %d workers come to other bits than one", spec.Sparse, spec.Optimizer, workers)
			}
		}
	}
}

// TestTreeOfInfinities: in exact mode sums that overflow to both sides have the NaN of one process, not that of the processor.
func TestTreeOfInfinities(t *testing.T) {
	const workers, cols = 4, 30
	for _, spec := range []Spec{{Rows: 1}, {Sparse: true}} {
		for _, step := range []int{1, 10} { // all cells of the row, and few of them
			spec.Name, spec.Cols, spec.Mode = "t", cols, BSP
			j := newSimJob(sim.New(24, sim.Options{}), simOptions{clients: workers, servers: 1, exact: true, tables: []Spec{spec}})
			x := make([]float32, cols)
			for k := range workers {
				j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
					tab, g := tableOf[float32](w, "t"), make([]float32, cols)
					for i := 0; i < cols; i += step {
						if g[i] = 3e38; k >= workers/2 {
							g[i] = -3e38
						}
					}
					for _, p := range shards.Owned(k, workers, workers) {
						if err := tab.IncPart(p.Node, 0, 0, g); err != nil {
							return err
						}
					}
					if err := w.Barrier(bg); err != nil {
						return err
					}
					if k == 0 {
						if _, err := tab.Get(bg, 0, x); err != nil {
							return err
						}
					}
					return w.Finish(bg)
				})
			}
			j.run(t, time.Hour)
			for i := 0; i < cols; i += step {
				if bits := math.Float32bits(x[i]); bits != 0x7fc00000 {
					t.Fatalf("sparse %v, every %d cells: cell %d has the bits %x", spec.Sparse, step, i, bits)
				}
			}
		}
	}
}

// TestStepsOfRows: what an optimizer makes of rows that are added to in part does not depend on the number of servers that have them.
func TestStepsOfRows(t *testing.T) {
	for _, spec := range []Spec{{Rows: 2, Cols: 520, Sparse: true}, {Rows: 2, Cols: 1100}, {Rows: 2, Cols: 1100, Partition: Hash}} {
		spec.Name, spec.Mode, spec.Optimizer = "t", BSP, "adam rate=0.01"
		var want []float32
		for _, servers := range []int{1, 2, 5} {
			got := make([]float32, spec.Cols)
			j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: servers, min: 16, tables: []Spec{spec}})
			j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
				tab := tableOf[float32](w, "t")
				for round := range int64(6) {
					for col := round % 2 * 480; col < 520; col++ { // every other round has the last of them alone
						if err := tab.Inc(1, col, float32(1+col+round)); err != nil {
							return err
						}
					}
					if err := w.Barrier(bg); err != nil {
						return err
					}
				}
				if _, err := tab.Get(bg, 1, got); err != nil {
					return err
				}
				return w.Finish(bg)
			})
			j.run(t, time.Hour)
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("sparse %v, %s: %d servers come to other bits than one", spec.Sparse, spec.partition(), servers)
			}
		}
	}
}
