package data

import (
	"encoding/binary"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const npyMagic = "\x93NUMPY"

// The header of an NPY file is the text of a Python dictionary with exactly these keys, which NumPy writes in this order.
var (
	npyDescr   = regexp.MustCompile(`'descr'\s*:\s*'([<>|=])([a-zA-Z]\d*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	npyOther   = regexp.MustCompile(`'descr'\s*:\s*('[^']*'|\[.*\])`) // dates and records
	npyShape   = regexp.MustCompile(`'shape'\s*:\s*\(([0-9,\sL]*)\)`)
)

// openNPY reads the header of a NumPy file of version 1, 2 or 3.
func openNPY(f *file) (*array, error) {
	head, err := f.read(nil, 0, min(12, f.size))
	if err != nil {
		return nil, err
	}
	if len(head) < 10 || string(head[:6]) != npyMagic {
		return nil, faultAt(f.name, 0, "want the magic string of NPY files, found %q", head[:min(6, len(head))])
	}
	var length, start int64
	switch major := head[6]; {
	case major == 1:
		length, start = int64(binary.LittleEndian.Uint16(head[8:])), 10
	case (major == 2 || major == 3) && len(head) == 12:
		length, start = int64(binary.LittleEndian.Uint32(head[8:])), 12
	default:
		return nil, faultAt(f.name, 6, "want NPY version 1, 2 or 3, found %d", major)
	}
	const maxHeader = 64 << 10
	if length > maxHeader || start+length > f.size {
		return nil, faultAt(f.name, 8, "the header of %d bytes does not fit into the file of %d bytes or the limit of %d", length, f.size, maxHeader)
	}
	raw, err := f.read(nil, start, start+length)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	descr, fortran, shape := npyDescr.FindStringSubmatch(text), npyFortran.FindStringSubmatch(text), npyShape.FindStringSubmatch(text)
	const notRead = "numbers of type %q are not read; want integers, floats of 16, 32 or 64 bits, or bool"
	if other := npyOther.FindStringSubmatch(text); descr == nil && other != nil {
		return nil, faultAt(f.name, start, notRead, strings.Trim(other[1][:min(len(other[1]), 200)], "'"))
	}
	if descr == nil || fortran == nil || shape == nil {
		return nil, faultAt(f.name, start, "want a header with descr, fortran_order and shape, found %q", strings.TrimSpace(text[:min(len(text), 200)]))
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if descr[1] == ">" {
		order = binary.BigEndian
	}
	elem, ok := elements(order)[descr[2]]
	if !ok {
		return nil, faultAt(f.name, start, notRead, descr[1]+descr[2])
	}
	a := &array{f: f, offset: start + length, elem: elem}
	var dims []int
	for part := range strings.SplitSeq(shape[1], ",") {
		part = strings.TrimRight(strings.TrimSpace(part), "L")
		if part == "" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n > math.MaxInt32 && len(dims) > 0 {
			return nil, faultAt(f.name, start, "want extents of a shape, found %q", part)
		}
		if len(dims) == 0 {
			a.rows = n
		}
		dims = append(dims, int(n))
	}
	if len(dims) == 0 {
		return nil, faultAt(f.name, start, "it holds a single number; want an array")
	}
	a.shape = dims[1:]
	a.fortran = fortran[1] == "True"
	return a, a.check("rows of shape " + strings.TrimSpace("("+shape[1]+")"))
}
