package ps

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/wire"
)

// Saved is rows of a snapshot that follow one another, whole, or a run of one row's cells, with the state of the table's optimizer there. It is valid
// during the call that gets it.
type Saved[T Number] struct {
	Row, From int64   // the first row, and its first column
	Rows      int     // 1 where it is not whole rows
	Cols      []int64 // of a sparse row: the columns of the cells; else nil, and they are From and on
	Cells     []T     // row by row
	Slots     [][]float32
	Steps     []uint32 // that the optimizer made of each row; nil: there is none
}

// ReadTable calls f with what a snapshot has of a table. m is from ReadManifest; the store is to have all objects of it.
func ReadTable[T Number](ctx context.Context, s Store, m *Manifest, name string, f func(Saved[T]) error) error {
	for i := range m.Tables {
		t := &m.Tables[i]
		if t.Name != name {
			continue
		}
		spec, err := t.spec()
		if err != nil {
			return err
		}
		if c := cellOf[T](); c != spec.Cell {
			return fmt.Errorf("ps: restore table %q: its cells are %s, and it is read as %s", name, spec.Cell, c)
		}
		for _, o := range t.Objects {
			if err := ctx.Err(); err != nil {
				return err
			}
			p, err := fetch(s, &o.file)
			if err != nil {
				return err
			}
			if err := readSaved(&spec, o, p, f); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("ps: restore: the snapshot has no table %q", name)
}

// readSaved reads an object as its shard wrote it.
func readSaved[T Number](spec *Spec, o *object, p []byte, f func(Saved[T]) error) error {
	r := wire.NewReader("ps object "+o.Key, p)
	readMagic(r, objectMagic)
	if c := Cell(r.Uvarint("cell", uint64(Int64))); c != spec.Cell {
		r.Fail("cell", fmt.Errorf("want %s, found %s", spec.Cell, c))
	}
	slots, size := int(r.Uvarint("slots", 8)), spec.Cell.Size()
	if o.Form != "cells" {
		steps := make([]uint32, 1)
		for r.Err() == nil && len(r.Rest()) > 0 {
			x := Saved[T]{Row: int64(r.Uint64("row")), From: int64(r.Uint64("column")), Rows: 1, Steps: steps}
			steps[0] = r.Uint32("steps")
			n := int(r.Uvarint("cells", wire.MaxFrame))
			if spec.Sparse {
				x.Cols = raw.Of[int64](rawBytes(r, "columns", 8*n))
			}
			x.Cells = raw.Of[T](rawBytes(r, "cells", n*size))
			for range slots {
				x.Slots = append(x.Slots, raw.Of[float32](rawBytes(r, "slot", 4*n)))
			}
			if r.Err() == nil {
				if err := f(x); err != nil {
					return err
				}
			}
		}
		return r.Err()
	}
	lo, hi := int64(r.Uint64("lo")), int64(r.Uint64("hi"))
	if r.Err() == nil && (lo < 0 || lo > hi || hi > 1<<62 || hi-lo > int64(len(r.Rest()))) {
		r.Fail("hi", fmt.Errorf("cells %d to %d", lo, hi))
	}
	steps := readSteps(r)
	cells := raw.Of[T](rawBytes(r, "cells", int(hi-lo)*size))
	state := make([][]float32, slots)
	for k := range state {
		state[k] = raw.Of[float32](rawBytes(r, "slot", 4*int(hi-lo)))
	}
	if err := r.Done(); err != nil {
		return err
	}
	views := make([][]float32, slots)
	for at := lo; at < hi; {
		row, from := at/spec.Cols, at%spec.Cols
		x := Saved[T]{Row: row, From: from, Rows: 1, Slots: views}
		end := min((row+1)*spec.Cols, hi)
		if whole := (hi - at) / spec.Cols; from == 0 && whole > 1 {
			x.Rows, end = int(whole), at+whole*spec.Cols
		}
		x.Cells = cells[at-lo : end-lo]
		for k, v := range state {
			views[k] = v[at-lo : end-lo]
		}
		if i := int(row - lo/spec.Cols); i+x.Rows <= len(steps) {
			x.Steps = steps[i : i+x.Rows]
		}
		if err := f(x); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// readSteps reads those of a cells object's segments.
func readSteps(r *wire.Reader) []uint32 {
	n := int(r.Uvarint("segments", uint64(len(r.Rest())/4)))
	if r.Err() != nil || n == 0 {
		return nil
	}
	steps := make([]uint32, n)
	for i := range steps {
		steps[i] = r.Uint32("steps")
	}
	return steps
}
