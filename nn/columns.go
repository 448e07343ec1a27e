package nn

import (
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// columnParts divides the columns of a sparse batch among threads, so that each adds up the gradient of its own, whose entries it meets in their
// order: threads change no bit. A thread also makes its part of the gradient zero, so that it is in the thread's cache.
type columnParts struct {
	columns int
	seen    *kernel.Seen // of a row-sparse gradient
	touched []int32      // its rows
	sample  []int32
	cuts    []int // part i begins at cuts[i]
}

func newColumnParts(columns int, rowSparse bool) columnParts {
	p := columnParts{columns: columns}
	if rowSparse {
		p.seen = kernel.NewSeen(columns)
	}
	return p
}

// sampled is how many entries of a batch tell where to cut its columns, for each part: parts differ by a tenth or so.
const sampled = 64

// cut makes so many parts, with about as many of these entries each.
func (p *columnParts) cut(entries []int32, parts int) {
	if p.seen != nil {
		p.touched = kernel.Touched(p.touched[:0], entries, p.seen)
	}
	p.cuts = append(p.cuts[:0], 0)
	if parts > 1 && len(entries) > 0 {
		p.sample = p.sample[:0]
		for at := 0; at < len(entries); at += (len(entries)-1)/(sampled*parts) + 1 {
			p.sample = append(p.sample, entries[at])
		}
		slices.Sort(p.sample)
		for i := 1; i < parts; i++ {
			p.cuts = append(p.cuts, int(p.sample[i*len(p.sample)/parts]))
		}
	}
	p.cuts = append(p.cuts, p.columns)
}

// parts is how many there are.
func (p *columnParts) parts() int { return len(p.cuts) - 1 }

// names tells which rows of tensor i g has, if that is row-sparse.
func (p *columnParts) names(g trivium.Gradient, i int) {
	if p.seen != nil {
		g.Rows[i] = append(g.Rows[i][:0], p.touched...)
	}
}

// zero makes a part of tensor i of g zero, and returns the columns of that part.
func (p *columnParts) zero(g trivium.Gradient, i, part int) (from, to int) {
	from, to = p.cuts[part], p.cuts[part+1]
	if p.seen == nil {
		cols := g.Layout.Cols(i)
		clear(g.Tensor(i)[from*cols : to*cols])
		return from, to
	}
	a, _ := slices.BinarySearch(p.touched, int32(from))
	b, _ := slices.BinarySearch(p.touched, int32(to))
	g.ZeroRows(i, p.touched[a:b])
	return from, to
}
