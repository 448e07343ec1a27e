package ps

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// oneByOne hides that an updater steps rows together.
type oneByOne struct{ trivium.Optimizer }

// inOrder checks what a Gatherer is promised.
type inOrder struct {
	Gatherer
	t *testing.T
}

func (o inOrder) ApplyRows(steps []uint32, l *trivium.Layout, p, g, u []float32, slots [][]float32) {
	if o.Counting() && !slices.IsSorted(steps) || len(p)%len(steps) != 0 || l.Len() < len(p) {
		o.t.Errorf("%d cells of %d, in steps %v", len(p), l.Len(), steps)
	}
	o.Gatherer.ApplyRows(steps, l, p, g, u, slots)
}

// TestRowsStepTogether: rows that are gathered have the bits of rows that are stepped one by one, under every rule, with gradients of several
// clients, more of them than are gathered at once, with and without weights.
func TestRowsStepTogether(t *testing.T) {
	for _, o := range []trivium.OptimizerSpec{
		{Name: "sgd", L2: 0.1},
		{Name: "sgd", Schedule: "linear:9", ClipValue: 0.5},
		{Name: "momentum"},
		{Name: "adagrad"},
		{Name: "adam", Decay: 0.1},
		{Name: "ftrl", L1: 0.1},
	} {
		rule, err := optim.New(o, kernel.Best())
		if err != nil {
			t.Fatal(err)
		}
		for _, cols := range []int64{1, 3, gatherShort, gatherShort + 1} {
			rows := int64(9000) / cols
			var both [2]*shard[float32]
			for i, opt := range []trivium.Optimizer{inOrder{rule.(Gatherer), t}, oneByOne{rule}} {
				p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 1}.withDefaults()
				tab := newTable(&Definition{Spec: Spec{Name: "t", Rows: rows, Cols: cols, Optimizer: "it", Init: Init{Kind: Uniform, A: -1, B: 1}}}, &p)
				if err := tab.equip(map[string]trivium.Optimizer{"it": opt}); err != nil {
					t.Fatal(err)
				}
				both[i] = newShard[float32](tab, 0, nil)
				both[i].tells()
			}
			name := fmt.Sprintf("%s of rows of %d", rule, cols)
			if want := cols <= gatherShort; both[1].t.gather != nil || (both[0].t.gather != nil) != want {
				t.Errorf("%s: gathered %v, want %v", name, both[0].t.gather != nil, want)
			}
			for round := range uint64(6) {
				var part roundPart
				for client := range uint64(3) {
					for piece := range int64(2) { // of a client, which follow one another
						c := section{form: formRows}
						var cells []float32
						for r := piece * rows / 2; r < (piece+1)*rows/2; r++ {
							if draw.Below(round, client, uint64(r), 3) > 0 || round == 3 && (piece > 0 || r < 5*int64(client)) { // there each begins within the one before
								continue
							}
							c.rows = append(c.rows, r)
							for k := range cols {
								cells = append(cells, float32(draw.Normal(round, client, uint64(r*cols+k))))
							}
						}
						c.n, c.cells = len(cells), raw.Bytes(cells)
						if round != 3 || c.n > 0 {
							part.secs = append(part.secs, &c)
						}
					}
				}
				if round%2 == 1 {
					part.sum, part.divide = 7, true
				}
				if round == 5 { // one client alone
					part.secs = part.secs[:1]
				}
				for _, s := range both {
					s.apply(&part)
				}
			}
			a, b := both[0].live, both[1].live
			same := func(x, y []float32) bool {
				return slices.EqualFunc(x, y, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
			}
			if !same(a.cells, b.cells) || !slices.Equal(a.steps, b.steps) || !slices.EqualFunc(a.slots, b.slots, same) {
				t.Errorf("%s: other bits than one by one", name)
			}
			if !slices.EqualFunc(both[0].segs, both[1].segs, func(x, y segment) bool { return x.version == y.version }) {
				t.Errorf("%s: other versions", name)
			}
		}
	}
}

// TestInOrder: rows come in the order of how many steps they had, and those of as many in theirs, however far apart the numbers are.
func TestInOrder(t *testing.T) {
	for _, most := range []uint32{1, 200, 300, 70_000, 1 << 25, math.MaxUint32} {
		const n, cols = 900, 2
		g := &gather{cols: cols, sums: make([]float32, n*cols), g: make([]float32, n*cols), keys: make([]uint64, n), sorted: make([]uint64, n)}
		g.steps, g.rows = make([]uint32, n), make([]int32, n)
		type entry struct{ steps, place uint32 }
		var want []entry
		least, largest := uint32(math.MaxUint32), uint32(0)
		for i := range uint32(n) {
			k := uint32(1 + draw.Below(uint64(most), 1, uint64(i), uint64(most)))
			g.steps[i], want = k, append(want, entry{k, i})
			g.segs = append(g.segs, int32(3*i))
			g.sums[cols*i], g.sums[cols*i+1] = float32(i), -float32(i)
			least, largest = min(least, k), max(largest, k)
		}
		slices.SortStableFunc(want, func(a, b entry) int { return cmp.Compare(a.steps, b.steps) })
		rows := g.inOrder(least, largest)
		for i, x := range want {
			if v := float32(x.place); g.steps[i] != x.steps || rows[i] != int32(3*x.place) || g.g[cols*i] != v || g.g[cols*i+1] != -v {
				t.Fatalf("up to %d steps: at %d there is row %d with %d steps and %v, want row %d with %d", most, i, rows[i], g.steps[i], g.g[cols*i], 3*x.place, x.steps)
			}
		}
	}
}

// A rowWatcher notes the gradients of the rows that it steps.
type rowWatcher struct {
	*optim.Rule
	got *[]float32
}

func (w rowWatcher) ApplyRows(steps []uint32, l *trivium.Layout, p, g, out []float32, slots [][]float32) {
	*w.got = append(*w.got, g...)
	w.Rule.ApplyRows(steps, l, p, g, out, slots)
}

// TestSumsOfSections: a row is stepped by the sum of what the sections have of it, in their order, wherever the rows of each begin and end; what one
// section alone has is left as it is, also where it is -0.
func TestSumsOfSections(t *testing.T) {
	rule, err := optim.New(trivium.OptimizerSpec{Name: "sgd", Rate: 1}, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	const all, cols = 20_000, 2
	var got []float32
	p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 1}.withDefaults()
	tab := newTable(&Definition{Spec: Spec{Name: "t", Rows: all, Cols: cols, Optimizer: "it"}}, &p)
	if err := tab.equip(map[string]trivium.Optimizer{"it": rowWatcher{rule.(*optim.Rule), &got}}); err != nil {
		t.Fatal(err)
	}
	if tab.cut.shards != 1 {
		t.Fatalf("%d shards", tab.cut.shards)
	}
	s := newShard[float32](tab, 0, newRoom(tab, []int{0}))
	sums := map[int64][cols]float32{}
	var secs []*section
	for i, of := range []struct{ from, to, step int64 }{{0, all, 7}, {3, 9000, 2}, {9001, all, 2}, {all - 1, all, 1}, {0, all, 5}} {
		c := &section{form: formRows}
		var x []float32
		for row := of.from; row < of.to; row += of.step {
			v := [cols]float32{float32(row+int64(i)) / 3, float32(math.Copysign(0, -1))}
			c.rows, x = append(c.rows, row), append(x, v[:]...)
			if sum, ok := sums[row]; ok {
				v[0] += sum[0]
			}
			sums[row] = v
		}
		c.n, c.cells = len(x), raw.Bytes(x)
		secs = append(secs, c)
	}
	s.apply(&roundPart{secs: secs, sum: 1})
	if len(got) != cols*len(sums) {
		t.Fatalf("%d cells were stepped of %d rows", len(got), len(sums))
	}
	for i, row := range slices.Sorted(maps.Keys(sums)) {
		want, have := sums[row], got[cols*i:]
		if have[0] != want[0] || have[1] != 0 || !math.Signbit(float64(have[1])) {
			t.Fatalf("row %d is stepped by %v, want %v", row, have[:cols], want)
		}
	}
}

// BenchmarkFarRows steps rows of a cell, and of eight, that lie far apart: 2,000 draws of a million, most of them rare, as features are.
func BenchmarkFarRows(b *testing.B) {
	const all, some, rounds = 1_000_000, 2000, 100
	for _, cols := range []int64{1, 8} {
		for _, name := range []string{"adagrad", "adam"} {
			rule, err := optim.New(trivium.OptimizerSpec{Name: name}, kernel.Best())
			if err != nil {
				b.Fatal(err)
			}
			for _, rule := range []trivium.Optimizer{rule, oneByOne{rule}} {
				_, together := rule.(Gatherer)
				b.Run(fmt.Sprintf("cols=%d/%s/together=%v", cols, name, together), func(b *testing.B) {
					p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 1}.withDefaults()
					tab := newTable(&Definition{Spec: Spec{Name: "t", Rows: all, Cols: cols, Optimizer: "it"}}, &p)
					if err := tab.equip(map[string]trivium.Optimizer{"it": rule}); err != nil {
						b.Fatal(err)
					}
					var here []int
					for k := range tab.cut.shards {
						here = append(here, k)
					}
					r := newRoom(tab, here)
					shards := make([]*shard[float32], len(here))
					for k := range shards {
						shards[k] = newShard[float32](tab, k, r)
					}
					secs := make([][]*section, rounds)
					for k := range secs {
						var ids []int64
						for i := range uint64(some) { // the rank is by a power law, and rows are anywhere
							rank := uint64(math.Pow(all, float64(draw.Unit(1, uint64(k), i))))
							ids = append(ids, int64(draw.Mix(rank)%all))
						}
						slices.Sort(ids)
						secs[k] = make([]*section, len(here))
						for _, id := range slices.Compact(ids) {
							at := tab.cut.shardOf(id, 0)
							if secs[k][at] == nil {
								secs[k][at] = &section{form: formRows}
							}
							c := secs[k][at]
							c.rows, c.n = append(c.rows, id), c.n+int(cols)
							c.cells = append(c.cells, raw.Bytes(slices.Repeat([]float32{0.5}, int(cols)))...)
						}
					}
					rows, round := 0, 0
					for b.Loop() {
						for k, c := range secs[round%rounds] {
							if c != nil {
								shards[k].apply(&roundPart{secs: []*section{c}, sum: 7, divide: true})
								rows += len(c.rows)
							}
						}
						round++
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
				})
			}
		}
	}
}
