package ps

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/wire"
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
	t, cols, most := d.t, d.t.spec.Cols, mostCoded(up)
	for i, row := range d.rows {
		var x []float32
		if cols <= shortRow {
			x = d.short(int32(i))
		} else {
			d.touch(d.long[i], 0, cols)
			x = d.long[i].cells
		}
		e := t.residual(row)
		for from := int64(0); from < cols; {
			shard, _, end := t.cut.segment(row, from)
			to := min(end, cols, from+most)
			c := section{table: t.id, shard: uint32(shard), form: formRange, row: row, from: from, n: int(to - from)}
			cells, err := up.Encode(nil, x[from:to], e.Range(int(from), int(to)))
			if err != nil {
				e.Range(int(from), int(to)).Release(x[from:to])
				c.cells = raw.Bytes(x[from:to])
				emit(c, d.hold)
			} else {
				c.cells, c.coded = cells, true
				emit(c, nil)
			}
			from = to
		}
	}
}

// mostCoded is how many cells are encoded at once.
func mostCoded(up compress.Codec) int64 {
	most := int64(maxPiece / 4)
	for most > 1 && up.MaxLen(int(most)) > maxPiece { // the largest nine tenths of the cells, with their places, are more than all
		most /= 2
	}
	return most
}

// codes reports whether the rows are of a kind that codecs are for.
func (t *clientTable) codes() bool { return !t.spec.Sparse && t.spec.Cols >= codedFrom }

// release adds to d what a codec had dropped of its rows before they went as they are.
func release(d *deltas[float32]) {
	for _, row := range d.rows {
		if e := d.t.residuals[row]; e != nil {
			d.dense(row, 0, e.Cells())
			delete(d.t.residuals, row)
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
	s.cells, s.coded = raw.Bytes(x), false
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

// Compress has the client send its dense rows of float32 by a codec from now on, as Options.Up does from the start; nil: as they are, and
// with them what the codec before had dropped.
func (c *Client) Compress(up compress.Codec) {
	c.Lock()
	c.state.o.Up = up
	c.Unlock()
}

// Fits says why the codec encodes no row of a table, of which the first stands for all; nil: it does, or there is no codec.
func (c *Client) Fits(table string) error {
	c.Lock()
	defer c.Unlock()
	t, err := c.state.dense(table, 0)
	up := c.state.o.Up
	switch {
	case err != nil:
		return err
	case up == nil:
		return nil
	case !t.codes():
		return fmt.Errorf("ps: table %q: rows of %d cells are too short for a codec: want %d", table, t.spec.Cols, codedFrom)
	}
	longest := int64(0)
	t.cut.eachSpan(0, func(s span) { longest = max(longest, min(s.to-s.from, mostCoded(up))) })
	return compress.Fits(up, int(longest))
}

// SetRate says that what the codec takes and has dropped are gradients, and what they will be multiplied by; what was dropped before counts
// as much as when it was dropped. See compress.Residual.
func (c *Client) SetRate(rate float64) {
	c.Lock()
	defer c.Unlock()
	for _, t := range c.state.tables {
		if t.rate == rate {
			continue
		}
		t.rate = rate
		for _, row := range slices.Sorted(maps.Keys(t.residuals)) {
			t.residuals[row].SetRate(rate)
		}
	}
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
	t, err := c.state.dense(table, row)
	if err != nil {
		return err
	}
	if int64(len(cells)) != t.spec.Cols {
		return fmt.Errorf("ps: table %q, row %d: %d cells dropped: want all %d", table, row, len(cells), t.spec.Cols)
	}
	t.residual(row).Take(cells)
	return nil
}

// dense returns a table that has a row of which a codec may have dropped something.
func (c *ClientState) dense(table string, row int64) (*clientTable, error) {
	t := c.byName[table]
	switch {
	case t == nil:
		return nil, fmt.Errorf("ps: no table is called %q", table)
	case t.spec.Sparse || t.spec.Cell != Float32:
		return nil, fmt.Errorf("ps: table %q: no codec drops anything of its rows: want dense ones of float32", table)
	case t.spec.Rows > 0 && (row < 0 || row >= t.spec.Rows):
		return nil, fmt.Errorf("ps: table %q: row %d: want 0 to %d", table, row, t.spec.Rows-1)
	}
	return t, nil
}

// residual is what the codec keeps of a row.
func (t *clientTable) residual(row int64) *compress.Residual {
	if t.residuals == nil {
		t.residuals = map[int64]*compress.Residual{}
	}
	e := t.residuals[row]
	if e == nil {
		e = compress.NewResidual(int(t.spec.Cols))
		e.SetRate(t.rate)
		t.residuals[row] = e
	}
	return e
}

// AppendCodec appends what the codec keeps of all rows: what it has dropped, and from where it goes on to draw and to iterate.
func (c *Client) AppendCodec(p []byte) []byte {
	c.Lock()
	defer c.Unlock()
	var keys []byte
	var list []*compress.Residual
	for _, t := range c.state.tables {
		for _, row := range slices.Sorted(maps.Keys(t.residuals)) {
			keys = wire.AppendUvarint(wire.AppendString(keys, t.spec.Name), uint64(row))
			list = append(list, t.residuals[row])
		}
	}
	return compress.AppendStates(append(wire.AppendUvarint(p, uint64(len(list))), keys...), list)
}

// SetCodec has the codec go on where that of another client was when AppendCodec wrote p: with as many shards, it sends what that would
// have sent. An error says that p is of other tables, and changes nothing.
func (c *Client) SetCodec(p []byte) error {
	c.Lock()
	defer c.Unlock()
	kept := map[*clientTable]map[int64]*compress.Residual{}
	var list []*compress.Residual
	r := wire.NewReader("codec", p)
	for range r.Uvarint("rows", uint64(len(p))) {
		table, row := r.String("table", maxName), int64(r.Uvarint("row", math.MaxUint64))
		if r.Err() != nil {
			return fmt.Errorf("ps: %w", r.Err())
		}
		t, err := c.state.dense(table, row)
		if err != nil {
			return err
		}
		if kept[t] == nil {
			kept[t] = map[int64]*compress.Residual{}
		}
		kept[t][row] = compress.NewResidual(int(t.spec.Cols))
		list = append(list, kept[t][row])
	}
	if r.Err() != nil {
		return fmt.Errorf("ps: %w", r.Err())
	}
	if err := compress.SetStates(list, r.Rest()); err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	for _, t := range c.state.tables {
		t.residuals = kept[t]
	}
	return nil
}
