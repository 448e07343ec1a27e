package data

import (
	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// A slot is where one block of a window lies: rows [start, start+n) of batch.
type slot struct {
	batch *trivium.Batch
	start int
	id    int64 // of the block's first row, counted from the data set's
}

// A window is some blocks of an epoch's order, at hand, with the random order of their rows.
type window struct {
	slots   []slot
	pixels  *pixels // of the slots' rows, of which each batch lacks the input then; nil: there are none
	rows    []int   // of each slot
	apart   bool    // long dense rows stay where they are: the slots outlive the batches
	shuffle shuffler
}

// appendRows appends the rows that local names to dst. Large copies are shared out by team, if it is not nil.
func (w *window) appendRows(dst *trivium.Batch, local []uint32, team *copyTeam) {
	dst.Rows += len(local)
	for k := range dst.Inputs {
		in := &dst.Inputs[k]
		switch in.Form {
		case trivium.Dense:
			w.appendDense(in, k, local, team)
		default:
			w.appendSparse(in, k, local)
		}
	}
	w.appendLabels(&dst.Labels, local)
	if dst.Weights != nil {
		for _, l := range local {
			s := &w.slots[l>>blockShift]
			dst.Weights = append(dst.Weights, s.batch.Weights[s.start+int(l&blockMask)])
		}
	}
}

func (w *window) appendDense(in *trivium.Input, k int, local []uint32, team *copyTeam) {
	n := in.RowLen()
	if w.apart && w.pixels == nil && n >= apartFrom {
		for _, l := range local {
			s := &w.slots[l>>blockShift]
			row := s.start + int(l&blockMask)
			in.Rows = append(in.Rows, s.batch.Inputs[k].Values[row*n:(row+1)*n:(row+1)*n])
		}
		return
	}
	in.Rows = nil // of a walk before
	at := len(in.Values)
	in.Values = extend(in.Values, len(local)*n)
	team.copy(copying{dst: in.Values[at:], n: n, w: w, k: k, local: local, pixels: w.pixels})
}

// apartFrom is the length of rows, in values, from which on copying one costs more than to say where it lies.
const apartFrom = 512

// A copying writes rows of n values each to dst.
type copying struct {
	dst    []float32
	n      int
	w      *window // the rows that local names, of its input k; nil: the pixels from row from on
	k      int
	local  []uint32
	pixels *pixels
	from   int
}

// rows writes the rows [from, to) of dst.
func (c *copying) rows(from, to int) {
	dst := c.dst[from*c.n : to*c.n]
	if c.w == nil {
		c.pixels.into(dst, c.from+from)
		return
	}
	at := 0
	local := c.local[from:to]
	for i, l := range local {
		if i+fetchAhead < len(local) {
			c.fetch(local[i+fetchAhead])
		}
		s := &c.w.slots[l>>blockShift]
		row := s.start + int(l&blockMask)
		if c.pixels != nil {
			c.pixels.into(dst[at:at+c.n], row)
		} else {
			copy(dst[at:at+c.n], s.batch.Inputs[c.k].Values[row*c.n:(row+1)*c.n])
		}
		at += c.n
	}
}

// fetchAhead is how many rows ahead the beginning of one is asked for.
const fetchAhead = 2

func (c *copying) fetch(l uint32) {
	s := &c.w.slots[l>>blockShift]
	from := (s.start + int(l&blockMask)) * c.n
	if c.pixels != nil {
		kernel.Fetch(c.pixels.of[from : from+c.n])
	} else {
		kernel.Fetch(s.batch.Inputs[c.k].Values[from : from+c.n])
	}
}

const (
	minTeamBytes = 64 << 10 // below it a copy takes less than sharing it out
	teamPieces   = 8        // a copy is cut into, for teams of any size
)

// A copyTeam shares a copy out to the threads of run. Rows that were not used for a while come from main memory, whose bandwidth one core
// does not exhaust.
type copyTeam struct {
	run   func(n int, f func(i, worker int))
	piece func(i, worker int) // one function for all copies: making one allocates
	at    copying
}

// copy is all of c. A nil team is the caller alone.
func (t *copyTeam) copy(c copying) {
	rows := len(c.dst) / max(c.n, 1)
	if t == nil || 4*len(c.dst) < minTeamBytes {
		c.rows(0, rows)
		return
	}
	t.at = c
	t.run(teamPieces, t.piece)
	t.at = copying{}
}

// of returns a team for the threads of run, t if there is one; nil: there are no threads.
func (t *copyTeam) of(run func(n int, f func(i, worker int))) *copyTeam {
	if run == nil {
		return nil
	}
	if t == nil {
		t = new(copyTeam)
		t.piece = func(i, _ int) {
			rows := len(t.at.dst) / t.at.n
			t.at.rows(i*rows/teamPieces, (i+1)*rows/teamPieces)
		}
	}
	t.run = run
	return t
}

// sparseAhead is how many rows before its turn a row is asked for.
const sparseAhead = 4

func (w *window) appendSparse(in *trivium.Input, k int, local []uint32) {
	n := 1 // values of one element
	if in.Form == trivium.Ragged {
		n = in.RowLen()
	}
	end := in.Ptr[len(in.Ptr)-1]
	at := func(i int) (src *trivium.Input, from, to int64) {
		s := &w.slots[local[i]>>blockShift]
		src = &s.batch.Inputs[k]
		r := s.start + int(local[i]&blockMask)
		return src, src.Ptr[r], src.Ptr[r+1]
	}
	for i := range local {
		if ahead := i + sparseAhead; ahead < len(local) {
			src, from, to := at(ahead)
			if src.Index != nil {
				kernel.Fetch(src.Index[from:to])
			}
			if src.Values != nil {
				kernel.Fetch(src.Values[from*int64(n) : to*int64(n)])
			}
		}
		src, from, to := at(i)
		if src.Index != nil {
			in.Index = append(in.Index, src.Index[from:to]...)
		}
		if src.Values != nil {
			in.Values = append(in.Values, src.Values[from*int64(n):to*int64(n)]...)
		}
		end += to - from
		in.Ptr = append(in.Ptr, end)
	}
}

func (w *window) appendLabels(y *trivium.Labels, local []uint32) {
	switch y.Kind {
	case trivium.Class:
		for _, l := range local {
			s := &w.slots[l>>blockShift]
			y.Class = append(y.Class, s.batch.Labels.Class[s.start+int(l&blockMask)])
		}
	case trivium.Real:
		for _, l := range local {
			s := &w.slots[l>>blockShift]
			r := (s.start + int(l&blockMask)) * y.Width
			y.Real = append(y.Real, s.batch.Labels.Real[r:r+y.Width]...)
		}
	case trivium.MultiHot:
		end := y.Ptr[len(y.Ptr)-1]
		for _, l := range local {
			s := &w.slots[l>>blockShift]
			src := &s.batch.Labels
			r := s.start + int(l&blockMask)
			from, to := src.Ptr[r], src.Ptr[r+1]
			y.Index = append(y.Index, src.Index[from:to]...)
			end += to - from
			y.Ptr = append(y.Ptr, end)
		}
	}
}

// appendIDs appends the global ids of the rows: those of the batch, else the row's place counted from first.
func (w *window) appendIDs(dst *trivium.Batch, local []uint32, first int64) {
	for _, l := range local {
		s := &w.slots[l>>blockShift]
		off := int(l & blockMask)
		if ids := s.batch.IDs; ids != nil {
			dst.IDs = append(dst.IDs, ids[s.start+off])
		} else {
			dst.IDs = append(dst.IDs, first+s.id+int64(off))
		}
	}
}

// shape makes dst an empty batch of the same inputs and labels as the window's rows.
func (w *window) shape(dst *trivium.Batch) {
	shapeBatch(dst, w.slots[0].batch)
	if w.pixels != nil {
		dst.Inputs = append(dst.Inputs, w.pixels.input)
	}
}

// shapeBatch makes dst an empty batch of the same inputs and labels as src.
func shapeBatch(dst, src *trivium.Batch) {
	*dst = trivium.Batch{Labels: trivium.Labels{Kind: src.Labels.Kind, Width: src.Labels.Width}}
	for i := range src.Inputs {
		in := &src.Inputs[i]
		out := trivium.Input{Name: in.Name, Form: in.Form, Shape: in.Shape}
		if in.Index != nil || in.Form == trivium.CSR { // of rows without entries they may be nil
			out.Index = []int32{}
		}
		if in.Values != nil || in.Form == trivium.CSR {
			out.Values = []float32{}
		}
		dst.Inputs = append(dst.Inputs, out)
	}
	if src.Weights != nil {
		dst.Weights = []float32{}
	}
	emptyBatch(dst)
}

// emptyBatch removes the rows of b and keeps its memory.
func emptyBatch(b *trivium.Batch) {
	b.Rows = 0
	for i := range b.Inputs {
		in := &b.Inputs[i]
		in.Values, in.Index, in.Rows = in.Values[:0], in.Index[:0], in.Rows[:0]
		if in.Form != trivium.Dense {
			in.Ptr = append(in.Ptr[:0], 0)
		}
	}
	l := &b.Labels
	l.Class, l.Real, l.Index = l.Class[:0], l.Real[:0], l.Index[:0]
	if l.Kind == trivium.MultiHot {
		l.Ptr = append(l.Ptr[:0], 0)
	}
	b.Weights, b.IDs = b.Weights[:0], b.IDs[:0]
}

// extend returns s with n more elements, whose contents are unspecified.
func extend[T any](s []T, n int) []T {
	if need := len(s) + n; need > cap(s) {
		t := make([]T, len(s), max(need, cap(s)+cap(s)/4))
		copy(t, s)
		s = t
	}
	return s[:len(s)+n]
}
