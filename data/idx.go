package data

import (
	"encoding/binary"
	"fmt"
)

// idxTypes are the element types of LeCun's IDX format, by the third byte of the magic number.
var idxTypes = map[byte]string{0x08: "u1", 0x09: "i1", 0x0b: "i2", 0x0c: "i4", 0x0d: "f4", 0x0e: "f8"}

const (
	idxImages = 2051 // bytes, three dimensions
	idxLabels = 2049 // bytes, one dimension
)

// openIDX reads the header of an IDX file: magic number 0, 0, type, dimensions; then the extents and the numbers, all big-endian. With
// labels it wants one number a row, else images of bytes or any array of two or more dimensions.
func openIDX(f *file, labels bool) (*array, error) {
	wanted := uint32(idxImages)
	if labels {
		wanted = idxLabels
	}
	head := make([]byte, 4+4*255)
	head, err := f.read(head, 0, min(int64(len(head)), f.size))
	if err != nil {
		return nil, err
	}
	if len(head) < 4 {
		return nil, faultAt(f.name, f.size, "the file ends inside the magic number; want %d", wanted)
	}
	magic := binary.BigEndian.Uint32(head)
	dims := int(head[3])
	typ, ok := idxTypes[head[2]]
	if magic>>16 != 0 || !ok || labels != (dims == 1) || dims == 0 {
		return nil, faultAt(f.name, 0, "want magic %d (%s), found %d%s", wanted, idxName(wanted), magic, idxGuess(magic))
	}
	if len(head) < 4+4*dims {
		return nil, faultAt(f.name, f.size, "the file ends inside the header of %d dimensions", dims)
	}
	a := &array{f: f, offset: int64(4 + 4*dims), rows: int64(binary.BigEndian.Uint32(head[4:])), elem: elements(binary.BigEndian)[typ]}
	for i := 1; i < dims; i++ {
		a.shape = append(a.shape, int(binary.BigEndian.Uint32(head[4+4*i:])))
	}
	what := "labels"
	if !labels {
		what = fmt.Sprintf("rows of shape %v", a.shape)
	}
	return a, a.check(what)
}

func idxName(magic uint32) string {
	if magic == idxLabels {
		return "labels"
	}
	return "images"
}

func idxGuess(magic uint32) string {
	if magic == idxImages || magic == idxLabels {
		return fmt.Sprintf(" (%s)", idxName(magic))
	}
	if magic>>16 == 0x1f8b {
		return " (gzip)"
	}
	return ""
}
