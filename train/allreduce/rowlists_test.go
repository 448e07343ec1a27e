package allreduce

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/transport"
)

// rowsLayout has row-sparse tensors with rows of one cell and of several, and a dense one between them.
func rowsLayout(tb testing.TB, rows int) *trivium.Layout {
	tb.Helper()
	l, err := trivium.NewLayout(
		trivium.Spec{Name: "v", Shape: []int{rows / 8, 9}, RowSparse: true}, trivium.Spec{Name: "b", Shape: []int{3}},
		trivium.Spec{Name: "w", Shape: []int{rows, 1}, RowSparse: true},
	)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestRowsTravel adds up rows among several workers: few of them, none, and so many that a bit for each is less than their numbers or that lists are
// more than sums, by turns, so that sections do not fit any more and are too long again. All have the same bits, which are those of the
// sum, and the rows that any has touched.
func TestRowsTravel(t *testing.T) {
	const rows = 60_000
	l := rowsLayout(t, rows)
	for _, ranks := range []int{2, 3, 5} {
		seed := rand.Uint64()
		network := transport.NewMemory()
		view := collective.View{Epoch: 1}
		for r := range ranks {
			view.Peers = append(view.Peers, transport.Name{Role: "worker", ID: fmt.Sprint(r)})
		}
		ports := make([]transport.Port, ranks)
		for r := range ports {
			var err error
			if ports[r], err = network.Open(t.Context(), view.Peers[r], transport.Options{}); err != nil {
				t.Fatal(err)
			}
			defer ports[r].Close()
		}
		workers := make([]*exchange, ranks)
		for r, port := range ports {
			for o, other := range ports {
				if err := port.Know(view.Peers[o], other.Addr()); o != r && err != nil {
					t.Fatal(err)
				}
			}
			s, err := port.Stream("test", transport.StreamOptions{})
			if err != nil {
				t.Fatal(err)
			}
			view.Self = r
			g, err := collective.New(s, view, collective.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			workers[r] = &exchange{g: g, rank: r, workers: ranks, own: trivium.NewGradient(l), total: trivium.NewGradient(l), sparse: newSparseRows(l, ranks, true)}
		}
		ways := map[bool]int{}
		for update, touched := range []int{300, 10, 0, 310, 40_000, 59_999, 2, 20_000, 30} {
			draw := rand.New(rand.NewPCG(seed, uint64(update)))
			want, any := make([]float64, l.Len()), make([][]bool, l.Tensors())
			for i := range any {
				any[i] = make([]bool, l.Rows(i))
			}
			for r, x := range workers {
				for k := range x.own.Flat {
					x.own.Flat[k], x.total.Flat[k] = float32(math.NaN()), float32(math.NaN()) // rows that are not touched hold anything
				}
				for _, i := range x.sparse.tensors {
					var list []int32
					n := min(touched, l.Rows(i))
					for _, row := range draw.Perm(l.Rows(i))[:n-n*r/(2*ranks)] { // each fewer than the one before
						list = append(list, int32(row))
					}
					slices.Sort(list)
					x.own.Touch(i, list)
					from, _ := l.Range(i)
					for _, row := range list {
						any[i][row] = true
						for k := range l.Cols(i) {
							at := from + int(row)*l.Cols(i) + k
							x.own.Flat[at] = float32(draw.NormFloat64())
							want[at] += float64(x.own.Flat[at])
						}
					}
				}
			}
			var wg sync.WaitGroup
			errs := make([]error, ranks)
			for r, x := range workers {
				wg.Go(func() {
					errs[r] = x.sparse.travel(t.Context(), x)
					if err := x.g.Commit(t.Context(), x.g.Step()); errs[r] == nil {
						errs[r] = err
					}
				})
			}
			wg.Wait()
			for r, x := range workers {
				if errs[r] != nil {
					t.Fatalf("seed %d: update %d: rank %d of %d: %v", seed, update, r, ranks, errs[r])
				}
				for _, i := range x.sparse.tensors {
					from, _ := l.Range(i)
					next := x.total.Rows[i]
					for row, touched := range any[i] {
						if has := len(next) > 0 && int(next[0]) == row; has != touched {
							t.Fatalf("seed %d: update %d: rank %d of %d: row %d of tensor %d is touched: %v, want %v", seed, update, r, ranks, row, i, has, touched)
						}
						if !touched {
							continue
						}
						next = next[1:]
						for k := range l.Cols(i) {
							at := from + row*l.Cols(i) + k
							got := x.total.Flat[at]
							if !(math.Abs(float64(got)-want[at]) <= 1e-5) || math.Float32bits(got) != math.Float32bits(workers[0].total.Flat[at]) {
								t.Fatalf("seed %d: update %d: rank %d of %d: row %d of tensor %d: %v, rank 0 has %v, want %v",
									seed, update, r, ranks, row, i, got, workers[0].total.Flat[at], want[at])
							}
						}
					}
				}
			}
			ways[workers[0].sparse.lists.cheap()]++
		}
		if ways[true] == 0 || (ways[false] == 0) != (ranks == 2) {
			t.Errorf("%d ranks: they went as lists or not: %v", ranks, ways)
		}
	}
}

// FuzzRowLists reads sections that a worker of another mind has sent: what is no list is an error, and what is one has ascending rows.
func FuzzRowLists(f *testing.F) {
	l := rowsLayout(f, 80)
	own := newRowLists(l, []int{0, 2}, 2)
	for _, touched := range [][]int32{nil, {1, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		g := trivium.NewGradient(l)
		g.Touch(0, touched)
		g.Touch(2, touched)
		own.pack(g)
		f.Add(raw.Bytes(slices.Concat(own.own, own.own)))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		s := newRowLists(l, []int{0, 2}, 2)
		s.all = slices.Clone(raw.Of[int32](p))
		if s.all = s.all[:len(s.all)/2*2]; len(s.all) < 2*len(s.tensors) || s.hear() != nil || 2*s.need > len(s.all) {
			return
		}
		g := trivium.NewGradient(l)
		if s.sum(g) != nil {
			return
		}
		for _, i := range s.tensors {
			for k, row := range g.Rows[i] {
				if int(row) >= l.Rows(i) || k > 0 && row <= g.Rows[i][k-1] {
					t.Errorf("the rows of tensor %d are %v", i, g.Rows[i])
				}
			}
		}
	})
}

// TestBrokenLists: what is no list of rows is said to be none, with the rank that has sent it.
func TestBrokenLists(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "w", Shape: []int{40, 1}, RowSparse: true})
	if err != nil {
		t.Fatal(err)
	}
	const bit39, bits0to2 = 1 << 7, 7
	for what, c := range map[string]struct {
		section []int32
		want    string
	}{
		"a row twice":     {[]int32{2, 5, 5, 0, 0}, "rank 1 has sent a list of rows of w that is none"},
		"not ascending":   {[]int32{2, 5, 4, 0, 0}, "rank 1 has sent a list of rows of w that is none"},
		"before the rows": {[]int32{1, -1, 0}, "rank 1 has sent a list of rows of w that is none"},
		"behind the rows": {[]int32{1, 40, 0}, "rank 1 has sent a list of rows of w that is none"},
		"bits behind":     {[]int32{3, 3, bit39 << 1, 0, 0, 0}, "rank 1 has sent a list of rows of w that is none"},
		"too few bits":    {[]int32{5, bits0to2, bit39, 0, 0, 0, 0, 0}, "rank 1 has sent a list of rows of w that is none"},
		"less than none":  {[]int32{-1}, "rank 1 says that it has touched -1 of 40 rows of w"},
		"more than all":   {[]int32{41}, "rank 1 says that it has touched 41 of 40 rows of w"},
		"a list":          {[]int32{2, 5, 39, 0, 0}, ""},
		"bits":            {[]int32{4, bits0to2, bit39, 0, 0, 0, 0}, ""},
	} {
		s := newRowLists(l, []int{0}, 2)
		s.all = slices.Concat(make([]int32, len(c.section)), c.section) // rank 0 has touched nothing
		err := s.hear()
		if err == nil {
			err = s.sum(trivium.NewGradient(l))
		}
		if got := fmt.Sprint(err); err == nil && c.want != "" || err != nil && got != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestRowOfOne: a row that one worker alone has touched is what that has, also where it is -0.
func TestRowOfOne(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "w", Shape: []int{40, 1}, RowSparse: true})
	if err != nil {
		t.Fatal(err)
	}
	s := newRowLists(l, []int{0}, 2)
	s.all = []int32{1, 7, math.MinInt32, 1, 9, math.MinInt32} // of each: how many rows, which, and the bits of its cell
	g := trivium.NewGradient(l)
	if err := cmp.Or(s.hear(), s.sum(g)); err != nil {
		t.Fatal(err)
	}
	if a, b := g.Flat[7], g.Flat[9]; !slices.Equal(g.Rows[0], []int32{7, 9}) || a != 0 || b != 0 || !math.Signbit(float64(a)) || !math.Signbit(float64(b)) {
		t.Errorf("rows %v are %v and %v", g.Rows[0], a, b)
	}
}

// BenchmarkRowLists is what a worker of two does with the rows of a batch beside sending them: 2,000 and 2,000 of a million, of which the most popular
// are in both.
func BenchmarkRowLists(b *testing.B) {
	const all, some = 1_000_000, 2000
	for _, cols := range []int{1, 8, 16} {
		b.Run(fmt.Sprintf("cols=%d", cols), func(b *testing.B) {
			l, err := trivium.NewLayout(trivium.Spec{Name: "v", Shape: []int{all, cols}, RowSparse: true})
			if err != nil {
				b.Fatal(err)
			}
			s := newRowLists(l, []int{0}, 2)
			var sections [2][]int32
			g := trivium.NewGradient(l)
			own := trivium.NewGradient(l)
			for r := range sections {
				draw := rand.New(rand.NewPCG(9, uint64(r)))
				var rows []int32
				for range some {
					rank := uint64(math.Pow(all, draw.Float64()))
					rows = append(rows, int32(rank*2_654_435_761%all))
				}
				slices.Sort(rows)
				own.Touch(0, slices.Compact(rows))
				s.pack(own)
				sections[r] = slices.Clone(s.own)
			}
			s.part = max(len(sections[0]), len(sections[1]))
			s.all = make([]int32, 2*s.part)
			for r, x := range sections {
				copy(s.all[r*s.part:], x)
			}
			if err := s.hear(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.pack(own)
				if err := s.sum(g); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(g.Rows[0])), "ns/row")
		})
	}
}
