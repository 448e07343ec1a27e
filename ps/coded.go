package ps

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trivium-ml/trivium/compress"
)

const (
	// codedFrom is the number of cells from which a row is worth a codec.
	codedFrom = 64
	// maxCodec is the length of a codec's name in a message, in bytes.
	maxCodec = 64
)

// codedSections emits d's rows, all of each, so that what the codec dropped of a row is sent with its next round wherever it lies. The cuts
// are those of the shards and of full pieces, the same in every round, as its residuals are. What a codec cannot encode, such as the
// 100 largest of 64 cells, goes as it is.
func codedSections(d *deltas[float32], up compress.Codec, emit emitter) {
	t := d.t
	if t.residuals == nil {
		t.residuals = map[int64]*compress.Residual{}
	}
	cols := t.spec.Cols
	for i, row := range d.rows {
		var x []float32
		if cols <= shortRow {
			x = d.short(int32(i))
		} else {
			d.touch(d.long[i], 0, cols)
			x = d.long[i].cells
		}
		e := t.residuals[row]
		if e == nil {
			e = compress.NewResidual(int(cols))
			t.residuals[row] = e
		}
		for from := int64(0); from < cols; {
			shard, _, end := t.cut.segment(row, from)
			to := min(end, cols, from+maxPiece/4)
			c := section{table: t.id, shard: uint32(shard), form: formRange, row: row, from: from, n: int(to - from)}
			cells, err := up.Encode(nil, x[from:to], e.Range(int(from), int(to)))
			if err != nil {
				c.cells = asBytes(x[from:to])
				emit(c, d.hold)
			} else {
				c.cells, c.coded = cells, true
				emit(c, nil)
			}
			from = to
		}
	}
}

// decode makes a coded section a plain one.
func (s *section) decode(c compress.Codec, sp *Spec) error {
	if c == nil || s.form != formRange || sp.Cell != Float32 || s.n > maxPiece/4 {
		return fmt.Errorf("%d cells of %s in form %d are coded, and cannot be", s.n, sp.Cell, s.form)
	}
	x := make([]float32, s.n)
	if err := c.Decode(x, s.cells); err != nil {
		return err
	}
	s.cells, s.coded = asBytes(x), false
	return nil
}

// codecs are those that batches named.
type codecs map[string]compress.Codec

// maxCodecs bounds a server's memory for what clients name.
const maxCodecs = 64

func (cs *codecs) of(name string) (compress.Codec, error) {
	if name == "" {
		return nil, nil
	}
	if c, ok := (*cs)[name]; ok {
		return c, nil
	}
	c, err := compress.Parse(name)
	if err != nil {
		return nil, err
	}
	if *cs == nil || len(*cs) >= maxCodecs {
		*cs = codecs{}
	}
	(*cs)[name] = c
	return c, nil
}

// Compress has the client send its dense rows of float32 by a codec from now on, as Options.Up does from the start; nil: as they are.
func (c *Client) Compress(up compress.Codec) {
	c.Lock()
	c.state.o.Up = up
	c.Unlock()
}

// Dropped calls f with what the codec has dropped of each row until now, in the order of tables and rows. f must not keep cells.
func (c *Client) Dropped(f func(table string, row int64, cells []float32)) {
	c.Lock()
	defer c.Unlock()
	for _, t := range c.state.tables {
		for _, row := range slices.Sorted(maps.Keys(t.residuals)) {
			f(t.spec.Name, row, t.residuals[row].Cells())
		}
	}
}

// Drop adds to what the codec has dropped of a row: what a client before had not sent is sent with this one's next round of the row.
func (c *Client) Drop(table string, row int64, cells []float32) error {
	c.Lock()
	defer c.Unlock()
	t := c.state.byName[table]
	if t == nil {
		return fmt.Errorf("ps: no table is called %q", table)
	}
	if t.spec.Sparse || t.spec.Cell != Float32 || t.spec.Cols < codedFrom || int64(len(cells)) != t.spec.Cols {
		return fmt.Errorf("ps: table %q, row %d: %d cells dropped of %d: want all of a dense row of %d float32 or more", table, row, len(cells), t.spec.Cols, codedFrom)
	}
	if t.spec.Rows > 0 && (row < 0 || row >= t.spec.Rows) {
		return fmt.Errorf("ps: drop %q: row %d: want 0 to %d", table, row, t.spec.Rows-1)
	}
	if t.residuals == nil {
		t.residuals = map[int64]*compress.Residual{}
	}
	e := t.residuals[row]
	if e == nil {
		e = compress.NewResidual(len(cells))
		t.residuals[row] = e
	}
	for i, x := range cells {
		e.Cells()[i] += x
	}
	return nil
}
