package data

import "github.com/trivium-ml/trivium"

// A slot is where one block of a window lies: rows [start, start+n) of batch.
type slot struct {
	batch *trivium.Batch
	start int
	id    int64 // of the block's first row, counted from the data set's
}

// A window is some blocks of an epoch's order, at hand, with the random order of their rows.
type window struct {
	slots   []slot
	rows    []int // of each slot
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
	at := len(in.Values)
	in.Values = extend(in.Values, len(local)*n)
	if team == nil || 4*len(local)*n < minTeamBytes {
		w.copyDense(in.Values[at:], k, n, local)
		return
	}
	team.w, team.dst, team.k, team.n, team.local = w, in.Values[at:], k, n, local
	team.run(teamPieces, team.piece)
}

// copyDense copies input k of the rows, of n values each, to dst.
func (w *window) copyDense(dst []float32, k, n int, local []uint32) {
	at := 0
	for _, l := range local {
		s := &w.slots[l>>blockShift]
		r := (s.start + int(l&blockMask)) * n
		copy(dst[at:at+n], s.batch.Inputs[k].Values[r:r+n])
		at += n
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
	w     *window
	dst   []float32
	k, n  int
	local []uint32
}

// of returns a team for the threads of run, t if there is one; nil: there are no threads.
func (t *copyTeam) of(run func(n int, f func(i, worker int))) *copyTeam {
	if run == nil {
		return nil
	}
	if t == nil {
		t = new(copyTeam)
		t.piece = func(i, _ int) {
			from, to := i*len(t.local)/teamPieces, (i+1)*len(t.local)/teamPieces
			t.w.copyDense(t.dst[from*t.n:to*t.n], t.k, t.n, t.local[from:to])
		}
	}
	t.run = run
	return t
}

func (w *window) appendSparse(in *trivium.Input, k int, local []uint32) {
	n := 1 // values of one element
	if in.Form == trivium.Ragged {
		n = in.RowLen()
	}
	end := in.Ptr[len(in.Ptr)-1]
	for _, l := range local {
		s := &w.slots[l>>blockShift]
		src := &s.batch.Inputs[k]
		r := s.start + int(l&blockMask)
		from, to := src.Ptr[r], src.Ptr[r+1]
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

// shapeBatch makes dst an empty batch of the same inputs and labels as src.
func shapeBatch(dst, src *trivium.Batch) {
	*dst = trivium.Batch{Labels: trivium.Labels{Kind: src.Labels.Kind, Width: src.Labels.Width}}
	for i := range src.Inputs {
		in := &src.Inputs[i]
		out := trivium.Input{Name: in.Name, Form: in.Form, Shape: in.Shape}
		if in.Index != nil {
			out.Index = []int32{}
		}
		if in.Values != nil {
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
		in.Values, in.Index = in.Values[:0], in.Index[:0]
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
