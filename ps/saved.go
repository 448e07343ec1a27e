package ps

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/wire"
)

// Saved is a run of a row's cells in a snapshot, with the state of the table's optimizer there. It is valid during the call that gets it.
type Saved[T Number] struct {
	Row, From int64
	Cols      []int64 // of a sparse row: the columns of the cells; else nil, and they are From and on
	Cells     []T
	Slots     [][]float32
	Steps     uint32 // that the optimizer made there
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
		for r.Err() == nil && len(r.Rest()) > 0 {
			x := Saved[T]{Row: int64(r.Uint64("row")), From: int64(r.Uint64("column")), Steps: r.Uint32("steps")}
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
	if r.Err() == nil && (lo < 0 || lo > hi || hi-lo > int64(len(r.Rest()))) {
		r.Fail("hi", fmt.Errorf("cells %d to %d", lo, hi))
	}
	var steps []uint32
	for n := r.Uvarint("segments", uint64(len(r.Rest()))); n > 0 && r.Err() == nil; n-- {
		steps = append(steps, r.Uint32("steps"))
	}
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
		row := at / spec.Cols
		end := min((row+1)*spec.Cols, hi)
		x := Saved[T]{Row: row, From: at - row*spec.Cols, Cells: cells[at-lo : end-lo], Slots: views}
		for k, v := range state {
			views[k] = v[at-lo : end-lo]
		}
		if i := int(row - lo/spec.Cols); i < len(steps) {
			x.Steps = steps[i]
		}
		if err := f(x); err != nil {
			return err
		}
		at = end
	}
	return nil
}
