package ps

import (
	"fmt"

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
