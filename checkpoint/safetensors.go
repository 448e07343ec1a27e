package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/raw"
)

// A Tensor is one entry of a safetensors file: cells in row-major order, in Float32, Int64 (or, to be written as such, Counts) or, for
// types that this program only carries, Raw.
type Tensor struct {
	Name    string
	DType   string // F32, I64 or another name of the format, such as BF16
	Shape   []int
	Float32 []float32 // DType F32
	Int64   []int64   // DType I64
	Counts  []uint32  // DType I64, in place of Int64
	Raw     []byte    // any other, little-endian
}

// sizes of the format's types, in bytes.
var dtypeSize = map[string]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
	"I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}

// maxHeader bounds the header of a file that is read: about 100,000 tensors.
const maxHeader = 16 << 20

// entry is what the header says of a tensor.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// WriteSafetensors writes tensors and metadata in the safetensors format: the length of the header (8 bytes, little-endian), the
// header (JSON, padded with spaces to a multiple of 8), the cells of all tensors in the order given.
func WriteSafetensors(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	header, err := safetensorsHeader(tensors, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	buf := make([]byte, 0, 64<<10)
	for _, t := range tensors {
		if buf, err = writeCells(w, buf, t); err != nil {
			return err
		}
	}
	_, err = w.Write(buf)
	return err
}

func safetensorsHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	entries := make(map[string]any, len(tensors)+1)
	if len(metadata) > 0 {
		entries["__metadata__"] = metadata
	}
	var at int64
	for _, t := range tensors {
		n, err := t.cells()
		if err != nil {
			return nil, err
		}
		if _, taken := entries[t.Name]; taken || t.Name == "__metadata__" {
			return nil, fmt.Errorf("checkpoint: tensor %q: the name is taken", t.Name)
		}
		size := int64(n) * int64(dtypeSize[t.DType])
		shape := t.Shape
		if shape == nil {
			shape = []int{} // a scalar
		}
		entries[t.Name] = entry{t.DType, shape, [2]int64{at, at + size}}
		at += size
	}
	p, err := json.Marshal(entries) // keys sorted: equal tensors make equal bytes
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	for len(p)%8 != 0 {
		p = append(p, ' ')
	}
	if len(p) > maxHeader {
		return nil, fmt.Errorf("checkpoint: %d tensors need a header of %d bytes, the format's readers take %d", len(tensors), len(p), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(p))), p...), nil
}

// cells returns the number of cells, after checking that there are as many as the shape says.
func (t *Tensor) cells() (int, error) {
	n, err := shapeCells(t.Shape)
	if err != nil {
		return 0, fmt.Errorf("checkpoint: tensor %q: %w", t.Name, err)
	}
	size, known := dtypeSize[t.DType]
	have := -1
	switch {
	case t.DType == "F32":
		have = len(t.Float32)
	case t.DType == "I64":
		have = len(t.Int64) + len(t.Counts)
	case known && len(t.Raw)%size == 0:
		have = len(t.Raw) / size
	}
	if have != n {
		return 0, fmt.Errorf("checkpoint: tensor %q: %s of shape %v wants %d cells, found %d", t.Name, t.DType, t.Shape, n, have)
	}
	return n, nil
}

func shapeCells(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt/16/d {
			return 0, fmt.Errorf("shape %v: too large, or negative", shape)
		}
		n *= d
	}
	return n, nil
}

// writeCells writes t's cells, of which some may stay in buf.
func writeCells(w io.Writer, buf []byte, t Tensor) ([]byte, error) {
	buf, err := writeNumbers(w, buf, t.Float32)
	if err != nil {
		return buf, err
	}
	if buf, err = writeNumbers(w, buf, t.Int64); err != nil {
		return buf, err
	}
	for _, x := range t.Counts {
		if buf, err = writeNumbers(w, buf, []int64{int64(x)}); err != nil {
			return buf, err
		}
	}
	if len(t.Raw) == 0 {
		return buf, nil
	}
	if buf, err = flush(w, buf); err != nil {
		return buf, err
	}
	_, err = w.Write(t.Raw)
	return buf, err
}

func writeNumbers[T raw.Number](w io.Writer, buf []byte, v []T) ([]byte, error) {
	for len(v) > 0 {
		n := min(len(v), (cap(buf)-len(buf))/8)
		buf = append(buf, raw.Bytes(v[:n])...)
		v = v[n:]
		if cap(buf)-len(buf) < 8 {
			var err error
			if buf, err = flush(w, buf); err != nil {
				return buf, err
			}
		}
	}
	return buf, nil
}

func flush(w io.Writer, buf []byte) ([]byte, error) {
	_, err := w.Write(buf)
	return buf[:0], err
}

// ReadSafetensors reads a file in the safetensors format that is wholly in memory. It checks all that the format demands: tensors lie
// one after the other, without gaps, and fill the file. Tensors come in the order of their cells.
func ReadSafetensors(p []byte) (tensors []Tensor, metadata map[string]string, err error) {
	return readSafetensors(bytes.NewReader(p), int64(len(p)), func(t *Tensor) ([]float32, error) {
		n, err := shapeCells(t.Shape) // no more than p has: that is looked at before
		return make([]float32, n), err
	})
}

// readSafetensors is ReadSafetensors of the size bytes that r gives. It holds nothing of them but what it returns. The cells of a tensor of
// F32 go where place says, which has room for just as many; nil: they are left out.
func readSafetensors(r io.Reader, size int64, place func(t *Tensor) ([]float32, error)) (tensors []Tensor, metadata map[string]string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint: safetensors: %w", err)
		}
	}()
	if size < 8 {
		return nil, nil, fmt.Errorf("want the length of the header in 8 bytes, found %d", size)
	}
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || n > uint64(size-8) {
		return nil, nil, fmt.Errorf("a header of %d bytes is announced: %d bytes follow, at most %d are read", n, size-8, maxHeader)
	}
	header, cells := make([]byte, n), size-8-int64(n)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(header, &raw); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	offsets := map[string][2]int64{}
	for name, value := range raw {
		if name == "__metadata__" {
			if err := json.Unmarshal(value, &metadata); err != nil {
				return nil, nil, fmt.Errorf("header: __metadata__: %w", err)
			}
			continue
		}
		d := json.NewDecoder(bytes.NewReader(value))
		d.DisallowUnknownFields()
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("header: tensor %q: %w", name, err)
		}
		count, err := shapeCells(e.Shape)
		size, known := dtypeSize[e.DType]
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		case !known:
			return nil, nil, fmt.Errorf("tensor %q: unknown type %q", name, e.DType)
		case e.Offsets[0] < 0 || e.Offsets[1] > cells || e.Offsets[0] > e.Offsets[1]:
			return nil, nil, fmt.Errorf("tensor %q: bytes %d to %d are outside the %d of the file", name, e.Offsets[0], e.Offsets[1], cells)
		case e.Offsets[1]-e.Offsets[0] != int64(count)*int64(size):
			return nil, nil, fmt.Errorf("tensor %q: %s of shape %v wants %d bytes, found %d", name, e.DType, e.Shape, count*size, e.Offsets[1]-e.Offsets[0])
		}
		tensors = append(tensors, Tensor{Name: name, DType: e.DType, Shape: e.Shape})
		offsets[name] = e.Offsets
	}
	slices.SortFunc(tensors, func(a, b Tensor) int {
		x, y := offsets[a.Name], offsets[b.Name]
		if c := slices.Compare(x[:], y[:]); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name) // empty tensors
	})
	var at int64
	buf := make([]byte, 64<<10)
	for i := range tensors {
		o := offsets[tensors[i].Name]
		if o[0] != at {
			return nil, nil, fmt.Errorf("tensor %q begins at byte %d, the one before it ends at %d", tensors[i].Name, o[0], at)
		}
		at = o[1]
		if err := tensors[i].read(r, o[1]-o[0], buf, place); err != nil {
			return nil, nil, err
		}
	}
	if at != cells {
		return nil, nil, errors.New("bytes follow the last tensor")
	}
	return tensors, metadata, nil
}

// read reads the cells of t, of so many bytes. Memory for I64 and Raw grows with what is there.
func (t *Tensor) read(r io.Reader, size int64, buf []byte, place func(t *Tensor) ([]float32, error)) (err error) {
	switch t.DType {
	case "F32":
		if t.Float32, err = place(t); err != nil {
			return err
		}
		to := t.Float32
		return pieces(r, size, buf, func(p []byte) {
			if to != nil {
				to = to[raw.Copy(to, p):]
			}
		})
	case "I64":
		t.Int64 = make([]int64, 0, min(size/8, 1<<21))
		return pieces(r, size, buf, func(p []byte) { t.Int64 = append(t.Int64, raw.Of[int64](p)...) })
	}
	t.Raw = make([]byte, 0, min(size, 1<<24))
	return pieces(r, size, buf, func(p []byte) { t.Raw = append(t.Raw, p...) })
}

// pieces reads so many bytes and calls f with pieces of them, as long as buf is but for the last.
func pieces(r io.Reader, size int64, buf []byte, f func(p []byte)) error {
	for size > 0 {
		p := buf[:min(int64(len(buf)), size)]
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		f(p)
		size -= int64(len(p))
	}
	return nil
}
