package ps

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/protocol"
)

// A Kept is what the optimizer of a table keeps of rows that follow one another at a lane, whole, or of a part of one row.
type Kept struct {
	Table     string
	Optimizer trivium.Optimizer // the table's
	Row, From int64             // the first row, and its first column
	Rows      int
	Cols      int         // so many cells of each row
	Steps     []uint32    // that were made of each row
	Slots     [][]float32 // of the cells, row by row
}

// EachKept calls f with the state of all optimizers of this process's lanes, of dense tables. A lane makes no step while f has what is its. What f
// gets is valid until it returns.
func (h *Host) EachKept(f func(Kept) error) error {
	h.mu.Lock()
	lanes := slices.Clone(h.parts[forServer])
	h.mu.Unlock()
	for _, p := range lanes {
		if p == nil {
			continue
		}
		if err := p.look(func(m protocol.Machine) error { return m.(*ServerState).eachKept(f) }); err != nil {
			return err
		}
	}
	return nil
}

// look calls f with the machine, between two of its steps.
func (p *part) look(f func(protocol.Machine) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f(p.m)
}

func (s *ServerState) eachKept(f func(Kept) error) error {
	for _, t := range s.tables {
		if t.opt == nil || t.spec.Sparse {
			continue
		}
		for _, k := range t.here {
			if err := t.shards[k].kept(f); err != nil {
				return fmt.Errorf("ps: the optimizer's state of table %q: %w", t.spec.Name, err)
			}
		}
	}
	return nil
}

// kept calls f with the optimizer's state here.
func (s *shard[T]) kept(f func(Kept) error) error {
	x := Kept{Table: s.t.spec.Name, Optimizer: s.t.opt}
	if s.live == nil {
		for _, r := range s.rows {
			x.Row, x.From, x.Rows, x.Cols, x.Steps, x.Slots = r.row, r.from, 1, len(r.cells), []uint32{r.steps}, r.slots
			if err := f(x); err != nil {
				return err
			}
		}
		return nil
	}
	_, segments := s.t.cut.sizes(s.index)
	x.Rows = 1
	if s.t.cut.wholeRows() { // end to end
		x.Rows = segments
	}
	x.Slots = make([][]float32, len(s.live.slots))
	for i := 0; i < segments; i += x.Rows {
		a, b, from := s.span(int32(i))
		x.Row, x.From, x.Cols = s.first+int64(i), from, b-a
		x.Steps = s.live.steps[i : i+x.Rows]
		for k, v := range s.live.slots {
			x.Slots[k] = v[a : a+x.Rows*x.Cols]
		}
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}
