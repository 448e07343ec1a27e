package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// TestColumnParts: the parts of the columns are all of them, and have about as many entries, also where half of the entries are of one column.
func TestColumnParts(t *testing.T) {
	const columns, entries, parts = 1 << 20, 10_000, 4
	for name, column := range map[string]func(u float64) int32{
		"even":    func(u float64) int32 { return int32(u * columns) },
		"crowded": func(u float64) int32 { return int32(u * u * u * u * columns) },
		"heavy":   func(u float64) int32 { return int32(max(0, u-0.5) * columns) },
		"one":     func(float64) int32 { return columns - 1 },
	} {
		p := newColumnParts(columns, false)
		all := make([]int32, entries)
		for e := range all {
			all[e] = column(float64(draw.Unit(1, 2, uint64(e)))/2 + 0.5)
		}
		p.cut(all, parts)
		cuts := p.cuts
		if len(cuts) != parts+1 || cuts[0] != 0 || cuts[parts] != columns || !slices.IsSorted(cuts) {
			t.Errorf("%s: cut at %v of %d columns", name, cuts, columns)
			continue
		}
		if name == "heavy" || name == "one" {
			continue
		}
		for i := range parts {
			n := 0
			for _, c := range all {
				if cuts[i] <= int(c) && int(c) < cuts[i+1] {
					n++
				}
			}
			if n < entries/parts*8/10 || n > entries/parts*12/10 {
				t.Errorf("%s: part %d has %d of %d entries", name, i, n, entries)
			}
		}
	}
}

// TestSparseGradients: a sparse batch makes exactly its rows of the gradient new, whatever a batch before has left there, with the bits that one thread
// gives them.
func TestSparseGradients(t *testing.T) {
	const columns, rows, entries = 20_000, 60, 12
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{columns}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2},
	}
	x := trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{columns}, Ptr: []int64{0}}
	y := trivium.Labels{Kind: trivium.Class, Width: 2}
	for r := range uint64(2 * rows) {
		for e := range uint64(entries) {
			u := float64(draw.Unit(7, 1, r*entries+e))
			x.Index, x.Values = append(x.Index, int32(u*u*columns)), append(x.Values, draw.Unit(7, 2, r*entries+e))
		}
		x.Ptr = append(x.Ptr, int64(len(x.Index)))
		y.Class = append(y.Class, int32(r%2))
	}
	all := trivium.Batch{Rows: 2 * rows, Inputs: []trivium.Input{x}, Labels: y}
	var first, second trivium.Batch
	all.SliceInto(&first, 0, rows)
	all.SliceInto(&second, rows, 2*rows)
	want := slices.Clone(x.Index[rows*entries:])
	slices.Sort(want)
	want = slices.Compact(want)
	for _, name := range []string{"logistic", "softmax", "fm:3", "fm:4", "fm:8", "fm:16", "mlp:5"} {
		for _, threads := range []int{1, 2, 5} {
			cpu := tensor.NewCPU(threads, false)
			m, err := Standard().Build(name, schema, cpu)
			if err != nil {
				t.Fatal(err)
			}
			p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
			m.Init(3, p)
			for i := range p.Flat {
				p.Flat[i] += draw.Unit(7, 3, uint64(i)) / 8
			}
			for _, b := range []trivium.Batch{first, second} {
				before := slices.Clone(g.Flat)
				if _, _, err := m.Grad(t.Context(), p, b, g, nil); err != nil {
					t.Fatal(err)
				}
				for i := range g.Layout.Tensors() { // of rows that the batch does not have, what was there before
					if g.Layout.Spec(i).RowSparse {
						from, _ := g.Layout.Range(i)
						for k, v := range g.Tensor(i) {
							if _, ok := slices.BinarySearch(g.Rows[i], int32(k/g.Layout.Cols(i))); !ok && v != before[from+k] {
								t.Fatalf("%s, %d threads: cell %d of tensor %d is not of the batch, and has changed", name, threads, k, i)
							}
						}
					}
				}
			}
			cpu.Close()
			fresh, one := trivium.NewGradient(m.Layout()), tensor.NewCPU(1, false)
			if m, err = Standard().Build(name, schema, one); err != nil {
				t.Fatal(err)
			}
			if _, _, err := m.Grad(t.Context(), p, second, fresh, nil); err != nil {
				t.Fatal(err)
			}
			one.Close()
			sparse := 0
			for i := range g.Layout.Tensors() {
				have, alone, cols := g.Tensor(i), fresh.Tensor(i), g.Layout.Cols(i)
				if !g.Layout.Spec(i).RowSparse {
					if !slices.Equal(have, alone) {
						t.Errorf("%s, %d threads: tensor %d has not the bits of one thread", name, threads, i)
					}
					continue
				}
				sparse++
				if !slices.Equal(g.Rows[i], want) {
					t.Errorf("%s, %d threads: rows %v of tensor %d, want %v", name, threads, g.Rows[i], i, want)
				}
				for _, r := range want {
					if a, b := have[int(r)*cols:][:cols], alone[int(r)*cols:][:cols]; !slices.Equal(a, b) {
						t.Errorf("%s, %d threads: row %d of tensor %d is %v, and by one thread %v", name, threads, r, i, a, b)
					}
				}
			}
			if sparse == 0 {
				t.Errorf("%s has no row-sparse tensor", name)
			}
		}
	}
}

// TestRowsAreColumns: every row-sparse tensor of the models that ship says that its rows are the columns of the input, so that servers send those alone.
func TestRowsAreColumns(t *testing.T) {
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{sparseRows}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2},
	}
	for name, tables := range map[string]int{"logistic": 1, "svm": 1, "softmax": 1, "mlp:4": 1, "fm:4": 2} {
		m, err := Standard().Build(name, schema, tensor.NewCPU(1, false))
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for i := range m.Layout().Tensors() {
			if s := m.Layout().Spec(i); s.RowSparse && s.Columns == "x" {
				named++
			}
		}
		if named != tables {
			t.Errorf("%s names the rows of %d tensors, want %d", name, named, tables)
		}
	}
}

// TestRowSparseTables: of tables that products with a batch's sparse rows read, those are row-sparse that are read once. One that is not learnt names no
// row.
func TestRowSparseTables(t *testing.T) {
	const columns = 20_000
	type build func(b *graph.Builder, w *graph.Variable, product func(w graph.Value) graph.Value) graph.Value
	for name, c := range map[string]struct {
		build  build
		sparse bool
		rows   []int32
	}{
		"once": {func(_ *graph.Builder, w *graph.Variable, product func(graph.Value) graph.Value) graph.Value {
			return product(w.Read())
		}, true, []int32{3, 9}},
		"not learnt": {func(_ *graph.Builder, w *graph.Variable, product func(graph.Value) graph.Value) graph.Value {
			return graph.StopGradient(product(w.Read()))
		}, true, nil},
		"read for two products": {func(_ *graph.Builder, w *graph.Variable, product func(graph.Value) graph.Value) graph.Value {
			v := w.Read()
			return graph.Add(product(v), product(v))
		}, false, nil},
		"read twice": {func(_ *graph.Builder, w *graph.Variable, product func(graph.Value) graph.Value) graph.Value {
			return graph.Add(product(w.Read()), product(w.Read()))
		}, false, nil},
		"of a decay, too": {func(_ *graph.Builder, w *graph.Variable, product func(graph.Value) graph.Value) graph.Value {
			v := w.Read()
			return graph.Add(product(v), graph.Sum(graph.Square(v), nil, false))
		}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := graph.NewBuilder()
			batch, entries := graph.Axis("batch"), graph.Axis("entries")
			indptr, indices, values := b.Input("x.indptr", graph.I64, batch.Plus(1)), b.Input("x.indices", graph.I32, entries), b.Input("x.values", graph.F32, entries)
			w := b.Variable("w", graph.F32, []int{columns, 1}, graph.Constant(0.5))
			bias := b.Variable("b", graph.F32, []int{1}, graph.Constant(0.25)).Read()
			scores := graph.Add(c.build(b, w, func(w graph.Value) graph.Value { return graph.SparseMatMul(indptr, indices, values, w) }), bias)
			loss := graph.Sum(graph.Square(scores), []int{1}, false)
			m, err := FromGraph(tensor.NewCPU(1, false), NetSpec{Loss: loss, Scores: scores, Task: trivium.Regression})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Layout().Spec(0).RowSparse; got != c.sparse {
				t.Fatalf("row-sparse: %v", got)
			}
			p, g := trivium.NewParams(m.Layout()), trivium.NewGradient(m.Layout())
			m.Init(1, p)
			x := trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{columns}, Ptr: []int64{0, 1, 3}, Index: []int32{9, 3, 9}, Values: []float32{1, 2, 3}}
			if _, _, err := m.Grad(t.Context(), p, trivium.Batch{Rows: 2, Inputs: []trivium.Input{x}}, g, nil); err != nil {
				t.Fatal(err)
			}
			if c.sparse && !slices.Equal(g.Rows[0], c.rows) {
				t.Errorf("rows %v, want %v", g.Rows[0], c.rows)
			}
			if name == "once" { // scores ½+¼ and 5·½+¼, of which the derivatives are twice as much
				if a, b := g.Tensor(0)[3], g.Tensor(0)[9]; a != 11 || math.Abs(float64(b)-18) > 1e-6 {
					t.Errorf("the gradient of rows 3 and 9 is %v and %v, want 11 and 18", a, b)
				}
			}
		})
	}
}
