package data

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/wire"
)

const (
	shipInputs = 64      // that a shipped batch may have
	shipDims   = 8       // of a shape
	shipRows   = 1 << 24 // of one shipped batch
	shipValues = 1 << 28 // of one array of it
)

// AppendBatch appends b as bytes: how a data set travels to a process that cannot open it.
func AppendBatch(p []byte, b *trivium.Batch) []byte {
	p = wire.AppendUvarint(p, uint64(b.Rows))
	p = wire.AppendUvarint(p, uint64(len(b.Inputs)))
	for i := range b.Inputs {
		in := &b.Inputs[i]
		p = wire.AppendString(p, in.Name)
		p = append(p, byte(in.Form))
		p = wire.AppendUvarint(p, uint64(len(in.Shape)))
		for _, d := range in.Shape {
			p = wire.AppendUvarint(p, uint64(d))
		}
		lo, hi, n := 0, b.Rows, in.RowLen()
		if in.Form != trivium.Dense {
			lo, hi = int(in.Ptr[0]), int(in.Ptr[b.Rows])
			p = appendLengths(p, in.Ptr[:b.Rows+1])
			if in.Form == trivium.CSR {
				n = 1
			}
		}
		sparse := in.Form == trivium.CSR // which has both arrays, if they are empty and nil
		p = append(p, flag(sparse || in.Index != nil)|flag(sparse || in.Values != nil)<<1)
		if sparse || in.Index != nil {
			p = wire.AppendInt32s(p, in.Index[lo:hi])
		}
		if sparse || in.Values != nil {
			p = wire.AppendFloat32s(p, in.Values[lo*n:hi*n])
		}
	}
	y := &b.Labels
	p = append(p, byte(y.Kind))
	p = wire.AppendUvarint(p, uint64(y.Width))
	switch y.Kind {
	case trivium.Class:
		p = wire.AppendInt32s(p, y.Class)
	case trivium.Real:
		p = wire.AppendFloat32s(p, y.Real)
	case trivium.MultiHot:
		p = appendLengths(p, y.Ptr[:b.Rows+1])
		p = wire.AppendInt32s(p, y.Index[y.Ptr[0]:y.Ptr[b.Rows]])
	}
	p = append(p, flag(b.Weights != nil)|flag(b.IDs != nil)<<1)
	if b.Weights != nil {
		p = wire.AppendFloat32s(p, b.Weights)
	}
	for _, id := range b.IDs {
		p = wire.AppendUint64(p, uint64(id))
	}
	return p
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func appendLengths(p []byte, ptr []int64) []byte {
	for i := range len(ptr) - 1 {
		p = wire.AppendUvarint(p, uint64(ptr[i+1]-ptr[i]))
	}
	return p
}

// DecodeBatch reads what AppendBatch wrote. The batch is valid in itself, or there is an error.
func DecodeBatch(p []byte) (*trivium.Batch, error) {
	r := wire.NewReader("batch", p)
	b := &trivium.Batch{Rows: int(r.Uvarint("rows", shipRows))}
	for range r.Uvarint("inputs", shipInputs) {
		b.Inputs = append(b.Inputs, readInput(r, b.Rows))
		if r.Err() != nil {
			break
		}
	}
	y := &b.Labels
	y.Kind = trivium.LabelKind(readByte(r, "label kind", byte(trivium.MultiHot)))
	y.Width = int(r.Uvarint("label width", shipValues))
	switch y.Kind {
	case trivium.Class:
		y.Class = r.Int32s("classes", shipValues)
	case trivium.Real:
		y.Real = r.Float32s("real labels", shipValues)
	case trivium.MultiHot:
		y.Ptr = readLengths(r, b.Rows)
		y.Index = r.Int32s("classes", shipValues)
	}
	has := readByte(r, "weights and ids", 3)
	if has&1 != 0 {
		b.Weights = r.Float32s("weights", shipRows)
	}
	if has&2 != 0 && r.Err() == nil {
		if len(r.Rest())/8 < b.Rows {
			r.Fail("ids", fmt.Errorf("%d rows, %d bytes are left", b.Rows, len(r.Rest())))
		} else {
			b.IDs = make([]int64, b.Rows)
			for i := range b.IDs {
				b.IDs[i] = int64(r.Uint64("id"))
			}
		}
	}
	if err := r.Done(); err != nil {
		return nil, err
	}
	return b, b.Validate()
}

func readInput(r *wire.Reader, rows int) (in trivium.Input) {
	in.Name = r.String("input name", 1<<10)
	in.Form = trivium.Form(readByte(r, "form", byte(trivium.Ragged)))
	size := 1
	for range r.Uvarint("dimensions", shipDims) {
		d := int(r.Uvarint("shape", shipValues))
		in.Shape = append(in.Shape, d)
		if size *= d; size > shipValues {
			r.Fail("shape", fmt.Errorf("%v has more than %d values", in.Shape, shipValues))
			return in
		}
	}
	if in.Form != trivium.Dense {
		in.Ptr = readLengths(r, rows)
	}
	has := readByte(r, "arrays", 3)
	if in.Form == trivium.Dense && has != 2 || in.Form == trivium.CSR && has != 3 {
		r.Fail("arrays", errors.New("a dense input has values, a sparse one columns and values"))
		return in
	}
	if has&1 != 0 {
		in.Index = r.Int32s("columns", shipValues)
	}
	if has&2 != 0 {
		in.Values = r.Float32s("values", shipValues)
	}
	return in
}

func readByte(r *wire.Reader, field string, limit byte) byte {
	return byte(r.Uvarint(field, uint64(limit)))
}

// readLengths reads one length a row and returns the offsets.
func readLengths(r *wire.Reader, rows int) []int64 {
	if len(r.Rest()) < rows { // a length takes a byte at least
		r.Fail("lengths", fmt.Errorf("%d rows, %d bytes are left", rows, len(r.Rest())))
		return nil
	}
	ptr := make([]int64, rows+1)
	for i := range rows {
		ptr[i+1] = ptr[i] + int64(r.Uvarint("length", shipValues))
	}
	return ptr
}

// A shipHead opens data that was written by Ship.
type shipHead struct {
	Schema    trivium.Schema  `json:"schema"`
	Transform json.RawMessage `json:"transform,omitempty"`
	Checksum  string          `json:"checksum"`
	Notes     []string        `json:"notes,omitempty"`
	Rows      [3]int64        `json:"rows"` // of train, valid and test
}

const (
	shipBatch    = 512      // rows at a time, but for wide ones
	shipBytes    = 16 << 20 // of the dense inputs of so many rows, and of the rest of what goes in a block
	maxShipHead  = 2 * maxTransform
	maxShipBatch = 1 << 30 // bytes
)

// shipAtATime is how many rows of these inputs go in a block: of wide ones so few that the receiver takes it.
func shipAtATime(s trivium.Schema) int {
	row := int64(1)
	for i := range s.Inputs {
		if in := &s.Inputs[i]; in.Form == trivium.Dense {
			row += 4 * int64(in.Columns())
		}
	}
	return int(max(1, min(shipBatch, shipBytes/row)))
}

// blockEnd is the row up to which those of b from that one on go in a block: one at least, and of those with many entries so few that the
// receiver takes it. shipAtATime has seen to the dense inputs, and how many entries a row has is known only once it is read.
func blockEnd(b *trivium.Batch, from int) int {
	size := int64(0)
	for row := from; row < b.Rows; row++ {
		for i := range b.Inputs {
			in := &b.Inputs[i]
			if in.Form == trivium.Dense {
				continue
			}
			entry := int64(4) // its index, or its value
			if in.Form == trivium.Ragged && in.Values != nil {
				entry = 4 * int64(in.RowLen())
			}
			if in.Index != nil && in.Values != nil {
				entry += 4
			}
			size += entry * (in.Ptr[row+1] - in.Ptr[row])
		}
		if y := &b.Labels; y.Kind == trivium.MultiHot {
			size += 4 * (y.Ptr[row+1] - y.Ptr[row])
		}
		if size > shipBytes && row > from {
			return row
		}
	}
	return b.Rows
}

// Ship writes the rows of s, so that Unship makes the same data sets of them elsewhere. Training rows go without the weights of their
// classes, which s.Transform has: a model is measured without.
func Ship(ctx context.Context, w io.Writer, s *Splits) error {
	head := shipHead{Schema: s.Schema(), Checksum: s.Checksum, Notes: s.Notes}
	if s.Transform != nil {
		p, err := s.Transform.Encode()
		if err != nil {
			return err
		}
		head.Transform = p
	}
	sets := [3]Dataset{s.Measured(), s.Valid, s.Test}
	for i, ds := range sets {
		if ds != nil {
			head.Rows[i] = ds.Rows()
		}
	}
	p, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(wire.AppendUint32(nil, uint32(len(p))), p...)); err != nil {
		return err
	}
	var block trivium.Batch
	for _, ds := range sets {
		if ds == nil {
			continue
		}
		for b, err := range Batches(ctx, ds, BatchOptions{Batch: shipAtATime(head.Schema), IDs: true}) {
			if err != nil {
				return err
			}
			for from := 0; from < b.Rows; from += block.Rows {
				b.SliceInto(&block, from, blockEnd(b, from))
				p = AppendBatch(append(p[:0], 0, 0, 0, 0), &block)
				if n := len(p) - 4; n > maxShipBatch {
					return fmt.Errorf("data: row %d takes %d bytes to send, want at most %d", block.IDs[0], n, maxShipBatch)
				}
				binary.LittleEndian.PutUint32(p, uint32(len(p)-4))
				if _, err := w.Write(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Unship reads what Ship wrote. The rows are resident.
func Unship(r io.Reader) (*Splits, error) {
	fail := func(err error) (*Splits, error) { return nil, fmt.Errorf("data: rows that were sent: %w", err) }
	p, err := readBlock(r, maxShipHead)
	if err != nil {
		return fail(err)
	}
	var head shipHead
	if err := json.Unmarshal(p, &head); err != nil {
		return fail(err)
	}
	s := &Splits{Checksum: head.Checksum, Notes: head.Notes}
	if len(head.Transform) > 0 {
		if s.Transform, err = DecodeTransform(head.Transform); err != nil {
			return fail(err)
		}
	}
	for i, dst := range []*Dataset{&s.Train, &s.Valid, &s.Test} {
		var rows Builder
		for int64(rows.Rows()) < head.Rows[i] {
			p, err := readBlock(r, maxShipBatch)
			if err != nil {
				return fail(err)
			}
			b, err := DecodeBatch(p)
			if err == nil {
				err = rows.Append(b)
			}
			if err != nil {
				return fail(err)
			}
		}
		if head.Rows[i] > 0 {
			*dst = rows.Dataset(head.Schema)
		}
	}
	if m, ok := s.Train.(*memory); ok && s.Transform != nil && len(s.Transform.Label.Weights) > 0 {
		w, y := s.Transform.Label.Weights, &m.all.Labels
		if y.Kind != trivium.Class || y.Width != len(w) {
			return fail(fmt.Errorf("%d weights of classes, and the labels are %v of width %d", len(w), y.Kind, y.Width))
		}
		s.plain, s.Train = m, weigh(m, w)
	}
	return s, nil
}

// readBlock reads a length of at most limit and so many bytes. Memory is taken as bytes come.
func readBlock(r io.Reader, limit uint32) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, fmt.Errorf("they end early: %w", err)
	}
	size := binary.LittleEndian.Uint32(n[:])
	if size > limit {
		return nil, fmt.Errorf("a block of %d bytes, want at most %d", size, limit)
	}
	p, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(p) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("they end early: %w", err)
	}
	return p, nil
}
