package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestGemvIsDotOfRows(t *testing.T) {
	gemvIsDot[float32](t)
	gemvIsDot[float64](t)
}

func gemvIsDot[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for _, m := range []int{0, 1, 2, 3, 4, 5, 7, 8, 13, 16} {
		for _, n := range []int{0, 1, 15, 63, 64, 65, 100, 127, 784, 4096, 4097, 10000} {
			ld := n + m%3
			a, x := randoms[T](r, m*ld), randoms[T](r, n)
			want := make([]T, m)
			for i := range want {
				want[i] = Dot(GoExact, a[i*ld:][:n], x)
			}
			for _, isa := range exactISAs() {
				got := make([]T, m)
				Gemv(isa, m, n, a, ld, x, got)
				sameBits(t, fmt.Sprintf("%v %T %d×%d", isa, want, m, n), got, want)
			}
		}
	}
}

// linearCase runs LinearLeaves of a logistic regression on rows from to to, in a tree of its own.
func linearCase[T Float](isa ISA, from, to, n, ld int, x, w, y []T, t *LeafTree[T]) {
	t.Skip(from / LeafRows)
	LinearLeaves(isa, to-from, n, x[min(from*ld, len(x)):], ld, w, 0.5, func(first int, z []T) {
		for i := range z {
			z[i] -= y[from+first+i]
		}
	}, t)
}

// The fused step has the bits of Gemv, then GemvT, wherever it is cut, and on every ISA.
func TestLinearLeaves(t *testing.T) {
	linearLeaves[float32](t, 1e-5)
	linearLeaves[float64](t, 1e-13)
}

func linearLeaves[T Float](t *testing.T, epsilon float64) {
	r := rand.New(rand.NewPCG(4, 1))
	for _, m := range []int{0, 1, 3, 15, 16, 17, 40, 64, 101} {
		for _, n := range []int{1, 5, 64, 130, 300} {
			ld := n + m%2
			x, w, y := randoms[T](r, m*ld), randoms[T](r, n), randoms[T](r, m)
			z, want := make([]T, m), make([]T, n)
			var tree LeafTree[T]
			Gemv(GoExact, m, n, x, ld, w, z)
			for i := range z {
				z[i] = z[i] + 0.5 - y[i]
			}
			GemvT(GoExact, m, n, x, ld, z, want, &tree)
			for j := range n {
				sum, scale := 0.0, 1.0
				for i := range m {
					sum += float64(z[i]) * float64(x[i*ld+j])
					scale += math.Abs(float64(z[i]) * float64(x[i*ld+j]))
				}
				if !(math.Abs(sum-float64(want[j])) <= epsilon*scale) {
					t.Fatalf("%T %d×%d: column %d is %v, want %v", want, m, n, j, want[j], sum)
				}
			}
			for _, isa := range exactISAs() {
				for cut := 0; cut <= m; cut += LeafRows {
					var a, b LeafTree[T]
					a.Reset(n)
					b.Reset(n)
					linearCase(isa, 0, cut, n, ld, x, w, y, &a)
					linearCase(isa, cut, m, n, ld, x, w, y, &b)
					got := make([]T, n)
					for j := 0; j < n; j += 100 {
						SumLeaves(isa, []*LeafTree[T]{&a, &b}, j, got[j:min(j+100, n)])
					}
					sameBits(t, fmt.Sprintf("%v %T %d×%d cut at row %d", isa, want, m, n, cut), got, want)
				}
			}
		}
	}
}

// A LeafTree's sum does not depend on how its leaves are cut into runs.
func TestLeafTreeCutsKeepBits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		leaves := rapid.SliceOfN(rapid.Float32Range(-1e3, 1e3), 0, 70).Draw(rt, "leaves")
		push := func(tr *LeafTree[float32], from, to int) {
			tr.Skip(from)
			for _, x := range leaves[from:to] {
				tr.Leaf()[0] = x
				tr.Push(Go)
			}
		}
		var whole LeafTree[float32]
		whole.Reset(1)
		push(&whole, 0, len(leaves))
		var want, got [1]float32
		whole.Sum(Go, want[:])
		if want[0] != FoldSums(leaves) {
			rt.Fatalf("a tree of vectors gives %v, FoldSums %v", want, FoldSums(leaves))
		}
		var trees []*LeafTree[float32]
		for range 3 {
			tr := new(LeafTree[float32])
			tr.Reset(1)
			trees = append(trees, tr)
		}
		for from := 0; from < len(leaves); {
			to := rapid.IntRange(from+1, len(leaves)).Draw(rt, "to")
			push(trees[rapid.IntRange(0, 2).Draw(rt, "tree")], from, to)
			from = to
		}
		SumLeaves(Go, trees, 0, got[:])
		if got != want {
			rt.Fatalf("in three trees %v, in one %v", got, want)
		}
	})
}

// Columns do not know of one another, however many there are.
func TestSumLeavesManyColumns(t *testing.T) {
	const n, leaves = 5003, 11
	r := rand.New(rand.NewPCG(4, 2))
	x := randoms[float32](r, n*leaves)
	for _, isa := range Available() {
		trees := []*LeafTree[float32]{new(LeafTree[float32]), new(LeafTree[float32])}
		for _, tree := range trees {
			tree.Reset(n)
		}
		for i := range leaves {
			tree := trees[i/2%2] // runs of two leaves, in turn
			tree.Skip(i)
			copy(tree.Leaf(), x[i*n:][:n])
			tree.Push(isa)
		}
		got, want := make([]float32, n), make([]float32, n)
		for from := 0; from < n; from += 3000 {
			SumLeaves(isa, trees, from, got[from:min(from+3000, n)])
		}
		for j := range want {
			var column [leaves]float32
			for i := range column {
				column[i] = x[i*n+j]
			}
			want[j] = FoldSums(column[:])
		}
		sameBits(t, isa.String(), got, want)
	}
}

func TestReadSum(t *testing.T) {
	x := make([]float32, 300*256)
	for i := range x {
		x[i] = float32(i % 7)
	}
	want := Sum(Go, x)
	for _, isa := range Available() {
		if got := ReadSum(isa, x); !(math.Abs(float64(got-want)) <= 1) {
			t.Errorf("%v: read a sum of %v, want %v", isa, got, want)
		}
	}
}

// TestLinearRows: rows that lie apart, in any order, have the bits of the same rows one after the other.
func TestLinearRows(t *testing.T) {
	linearRows[float32](t)
	linearRows[float64](t)
}

func linearRows[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for _, m := range []int{0, 1, 7, 8, 9, 16, 37} {
		for _, n := range []int{1, 64, 130, 4200} {
			x, w, y := randoms[T](r, m*n), randoms[T](r, n), randoms[T](r, m)
			rows, near := make([][]T, m), make([]T, 0, m*n)
			for i, at := range r.Perm(m) {
				rows[i] = x[at*n : (at+1)*n]
				near = append(near, rows[i]...)
			}
			for _, isa := range Available() {
				var trees [2]LeafTree[T]
				var sums [2][]T
				var margins [2][]T
				for k := range trees {
					tree := &trees[k]
					tree.Reset(n)
					derive := func(first int, z []T) {
						if first != len(margins[k]) {
							t.Fatalf("%v: rows %d on come after %d", isa, first, len(margins[k]))
						}
						margins[k] = append(margins[k], z...)
						for i := range z {
							z[i] -= y[first+i]
						}
					}
					if k == 0 {
						LinearLeaves(isa, m, n, near, n, w, 0.5, derive, tree)
					} else {
						LinearRows(isa, rows, w, 0.5, derive, tree)
					}
					sums[k] = make([]T, n)
					tree.Sum(isa, sums[k])
				}
				what := fmt.Sprintf("%v %T %d×%d", isa, w, m, n)
				sameBits(t, what, sums[1], sums[0])
				sameBits(t, what+", margins", margins[1], margins[0])
			}
		}
	}
}

// TestLongRows: rows that a kernel does not pass over at once have the bits of Dot, and of the portable twin, in all their columns.
func TestLongRows(t *testing.T) {
	longRows[float32](t)
	longRows[float64](t)
}

func longRows[T Float](t *testing.T) {
	const m, n = 9, 16*BlockLen + 4500
	r := rand.New(rand.NewPCG(4, 3))
	x, w, d := randoms[T](r, m*n), randoms[T](r, n), randoms[T](r, LeafRows)
	want := make([]T, n)
	Leaf(GoExact, LeafRows, n, x, n, d, want)
	for _, isa := range exactISAs() {
		y, dots, g := make([]T, m), make([]T, m), make([]T, n)
		Gemv(isa, m, n, x, n, w, y)
		for i := range dots {
			dots[i] = Dot(isa, x[i*n:(i+1)*n], w)
		}
		Leaf(isa, LeafRows, n, x, n, d, g)
		sameBits(t, fmt.Sprintf("%v %T, margins", isa, w), y, dots)
		sameBits(t, fmt.Sprintf("%v %T, leaf", isa, w), g, want)
	}
}

// TestRowsThatDoNotFit: assembly is not told of a row that is shorter than the weights, nor is one left out.
func TestRowsThatDoNotFit(t *testing.T) {
	for what, f := range map[string]func(){
		"a short row": func() {
			var tree LeafTree[float32]
			tree.Reset(4)
			LinearRows(Best(), [][]float32{make([]float32, 4), make([]float32, 3, 4)}, make([]float32, 4), 0, func(int, []float32) {}, &tree)
		},
		"a leaf of nine rows": func() { Leaf(Best(), 9, 1, make([]float32, 9), 1, make([]float32, 9), make([]float32, 1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", what)
				}
			}()
			f()
		}()
	}
}

func TestLinearLeavesAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	const m, n = 100, 200
	x, w, g := randoms[float32](r, m*n), randoms[float32](r, n), make([]float32, n)
	var tree LeafTree[float32]
	derive := func(first int, z []float32) {}
	rows := make([][]float32, m)
	for i := range rows {
		rows[i] = x[i*n:][:n]
	}
	for _, isa := range Available() {
		step := func() {
			tree.Reset(n)
			LinearLeaves(isa, m, n, x, n, w, 0, derive, &tree)
			tree.Sum(isa, g)
			tree.Reset(n)
			LinearRows(isa, rows, w, 0, derive, &tree)
			tree.Sum(isa, g)
		}
		step()
		if a := testing.AllocsPerRun(3, step); a != 0 {
			t.Errorf("%v: %v allocations a step", isa, a)
		}
	}
}

func ExampleLeafTree() {
	var first, second LeafTree[float32]
	first.Reset(2)
	for _, leaf := range [][]float32{{1, 10}, {2, 20}, {3, 30}} {
		copy(first.Leaf(), leaf)
		first.Push(Best())
	}
	second.Reset(2)
	second.Skip(3) // another core sums the leaves from 3 on
	copy(second.Leaf(), []float32{4, 40})
	second.Push(Best())
	sum := make([]float32, 2)
	SumLeaves(Best(), []*LeafTree[float32]{&first, &second}, 0, sum)
	fmt.Println(sum)
	// Output: [10 100]
}

func BenchmarkGemv(b *testing.B) {
	const m, n = 32, 10000
	r := rand.New(rand.NewPCG(4, 1))
	a, x, y := randoms[float32](r, m*n), randoms[float32](r, n), make([]float32, m)
	for _, isa := range Available()[1:] {
		b.Run(fmt.Sprintf("%dx%d/%v", m, n, isa), func(b *testing.B) {
			b.SetBytes(4 * m * n)
			for b.Loop() {
				Gemv(isa, m, n, a, n, x, y)
			}
		})
	}
}

// The fused step against the fastest loop that reads the same 400 MB, alternating, each on one core and on two.
func BenchmarkLinearLeaves(b *testing.B) {
	const n = 10000
	x, w, g := make([]float32, n*n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = float32(i%97) - 48
	}
	for _, isa := range exactISAs()[1:] {
		for _, rows := range []int{10000, 500, 100} {
			for _, cores := range []int{1, 2} {
				b.Run(fmt.Sprintf("%v/%d/%d-cores", isa, rows, cores), func(b *testing.B) {
					trees := make([]LeafTree[float32], cores)
					var runs []*LeafTree[float32]
					for c := range trees {
						runs = append(runs, &trees[c])
					}
					both := func(f func(core int)) {
						var wg sync.WaitGroup
						for c := 1; c < cores; c++ {
							wg.Go(func() { f(c) })
						}
						f(0)
						wg.Wait()
					}
					// Each core takes a run of leaves of each batch.
					leaves := ceil(rows, LeafRows)
					from := func(core int) int { return min(rows, leaves*core/cores*LeafRows) }
					read := func(core int) {
						for batch := 0; batch < n; batch += rows {
							ReadSum(isa, x[(batch+from(core))*n:(batch+from(core+1))*n])
						}
					}
					step := func(batch int) {
						both(func(core int) {
							t := &trees[core]
							t.Reset(n)
							t.Skip(from(core) / LeafRows)
							LinearLeaves(isa, from(core+1)-from(core), n, x[(batch+from(core))*n:], n, w, 0, func(first int, z []float32) {}, t)
						})
						both(func(core int) { SumLeaves(isa, runs, n*core/cores, g[n*core/cores:n*(core+1)/cores]) })
					}
					best := [2]int64{1 << 62, 1 << 62}
					for b.Loop() {
						best[0] = min(best[0], nanos(func() { both(read) }))
						best[1] = min(best[1], nanos(func() {
							for batch := 0; batch < n; batch += rows {
								step(batch)
							}
						}))
					}
					b.ReportMetric(4*n*n/float64(best[0]), "read-GB/s")
					b.ReportMetric(4*n*n/float64(best[1]), "step-GB/s")
					b.ReportMetric(float64(best[0])/float64(best[1]), "of-read")
				})
			}
		}
	}
}
