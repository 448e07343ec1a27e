package ps

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/tensor/kernel"
)

// The runs of a long row are those of its touched groups, whatever lies between which words, and what is added to touches no others.
func TestRuns(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 2000 {
		cols := int64(1 + r.IntN(5*64*group))
		groups := (cols + group - 1) / group
		l := &longRow[float32]{cells: make([]float32, cols), touched: make([]uint64, (groups+63)/64)}
		in := make([]bool, groups)
		for g := 0; g < len(in); { // runs of all lengths
			n, is := 1+r.IntN(1+r.IntN(200)), r.IntN(3) > 0
			if r.IntN(2) > 0 {
				n += 63 - (g+n+63)%64 // to the end of a word
			}
			for ; n > 0 && g < len(in); n, g = n-1, g+1 {
				if in[g] = is; is {
					l.touched[g/64] |= 1 << (g % 64)
				}
			}
		}
		from := r.Int64N(cols)
		to := from + 1 + r.Int64N(cols-from)
		var want, got []int64 // columns, from and to by turns
		for c := from; c < to; c++ {
			switch {
			case !in[c/group]:
			case len(want) > 0 && want[len(want)-1] == c:
				want[len(want)-1] = c + 1
			default:
				want = append(want, c, c+1)
			}
		}
		for a, b := range l.runs(from, to) {
			got = append(got, a, b)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d columns, of %d to %d: runs %v, want %v", cols, from, to, got, want)
		}
		// What is added to some columns touches their groups, and leaves all else.
		want32 := make([]float32, cols)
		for c := range l.cells {
			if l.cells[c] = float32(math.NaN()); in[c/group] {
				want32[c] = r.Float32()
				l.cells[c] = want32[c]
			}
		}
		x := make([]float32, to-from)
		for i := range x {
			x[i] = r.Float32()
			want32[from+int64(i)] += x[i]
			in[(from+int64(i))/group] = true
		}
		d := &deltas[float32]{isa: kernel.Best()}
		d.denseLong(0, l, from, x)
		if r.IntN(2) > 0 { // as for an optimizer, which steps all: the rest gets what adds nothing
			d.touch(l, 0, cols)
			for g := range in {
				in[g] = true
			}
		}
		for g := range int64(len(l.touched)) * 64 {
			is := l.touched[g/64]>>(g%64)&1 != 0
			if is != (g < groups && in[g]) {
				t.Fatalf("%d columns, added to %d to %d: group %d of %d is touched: %v", cols, from, to, g, groups, is)
			}
			if a, b := g*group, min((g+1)*group, cols); is && !slices.Equal(l.cells[a:b], want32[a:b]) {
				t.Fatalf("%d columns, added to %d to %d: group %d of %d: %v, want %v", cols, from, to, g, groups, l.cells[a:b], want32[a:b])
			}
		}
		if d.over != nil {
			t.Fatalf("%d columns, added to %d to %d: an overflow: %v", cols, from, to, d.over)
		}
	}
}

// TestOverlayOfCells: single columns get what the whole row would get, in whatever order it was added.
func TestOverlayOfCells(t *testing.T) {
	p := Placement{Servers: []Name{serverName(0)}}.withDefaults()
	for _, spec := range []Spec{{Cols: 3000, Sparse: true}, {Cols: 3000}, {Cols: 300}} {
		tab := newClientTable(newTable(&Definition{Spec: spec}, &p))
		d := newDeltas[float64](tab, 0)
		r := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			d.inc(7, r.Int64N(spec.Cols), r.Float64())
		}
		var cols []int64
		for c := r.Int64N(3); c < spec.Cols; c += 1 + r.Int64N(3) {
			cols = append(cols, c)
		}
		row, cells := make([]float64, spec.Cols), make([]float64, len(cols))
		d.overlay(7, 0, row)
		d.overlayCells(7, cols, cells)
		for k, c := range cols {
			if cells[k] != row[c] {
				t.Fatalf("%d columns, sparse %v: column %d gets %v, in the row %v", spec.Cols, spec.Sparse, c, cells[k], row[c])
			}
		}
	}
}
