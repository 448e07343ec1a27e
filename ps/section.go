package ps

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/wire"
)

// A hold counts who still uses memory that a message refers to: cells are sent from where they lie. A machine takes one for each
// message that it makes; the loop that sends a message gives it back once the bytes are out. Where nobody gives it back, as in the
// simulator, the memory is never written again.
type hold struct{ n atomic.Int32 }

func (h *hold) free() bool { return h == nil || h.n.Load() == 0 }

// holds are those of one message.
type holds []*hold

// add takes h, unless it is taken or nil.
func (hs *holds) add(h *hold) {
	if h != nil && !slices.Contains(*hs, h) {
		h.n.Add(1)
		*hs = append(*hs, h)
	}
}

// take takes all once more, for a message that is sent again.
func (hs holds) take() {
	for _, h := range hs {
		h.n.Add(1)
	}
}

func (hs holds) give() {
	for _, h := range hs {
		h.n.Add(-1)
	}
}

// A form is how a section names its cells.
type form uint8

const (
	formRange form = iota // a run of columns of one row
	formRows              // whole segments of rows, ascending
	formCells             // for each row, ascending, some columns, ascending
	formSame              // in a reply: these rows are as they were
)

// A section is cells of one shard: deltas in a batch, values in a reply.
type section struct {
	table, shard uint32
	form         form
	part         uint32  // of the tree of exact mode; 0: none
	row, from    int64   // formRange; formSame has the column of its segments
	rows         []int64 // formRows, formCells, formSame
	ends         []int64 // formCells: where each row's columns end
	cols         []int64 // formCells
	list         uint32  // the number of the key list that rows, ends and cols are; 0: none
	listed       bool    // the list is not in the message, since the receiver has it
	n            int     // cells
	cells        []byte  // n of them
	version      uint64  // replies: of the segments; in a request: of what the asker has
	mark         bool    // in a batch: the round has no more of this shard; in a reply: the asker's round status.own is in it, too; in a request: want cells alone
	coded        bool    // cells are what the batch's codec made of n float32
	beside       bool    // keys and cells travel in the head, since the payload is the cells of another section, where they lie
	done         bool    // at a server: applied
}

// keyBytes is the size of the keys in a payload.
func (s *section) keyBytes() int {
	if s.listed {
		return 0
	}
	return s.allKeys()
}

// allKeys is the size of the keys also where the receiver has them.
func (s *section) allKeys() int {
	if s.form == formRange {
		return 0
	}
	n := 8 * len(s.rows)
	if s.form == formCells {
		n += 8 * (len(s.ends) + len(s.cols))
	}
	return n
}

func pad8(n int) int { return (n + 7) &^ 7 }

func (s *section) size() int { return s.keyBytes() + pad8(len(s.cells)) }

// full is size with all keys: the receiver may come to lack those that it has, and then they are sent in the same message after all.
func (s *section) full() int { return s.allKeys() + pad8(len(s.cells)) }

// sectionHead is an upper bound of what a section takes in a head.
const sectionHead = 80

func (s *section) appendHead(p []byte) []byte {
	flags := byte(s.form)
	if s.mark {
		flags |= 4
	}
	if s.listed {
		flags |= 8
	}
	if s.coded {
		flags |= 16
	}
	if s.beside {
		flags |= 32
	}
	p = append(p, flags)
	if s.beside {
		p = wire.AppendUvarint(p, uint64(s.keyBytes()+len(s.cells)))
		p = s.appendPayload(p)
	}
	p = wire.AppendUvarint(p, uint64(s.table))
	p = wire.AppendUvarint(p, uint64(s.shard))
	p = wire.AppendUvarint(p, uint64(s.part))
	p = wire.AppendUvarint(p, uint64(s.list))
	p = wire.AppendUvarint(p, s.version)
	p = wire.AppendUvarint(p, uint64(s.n))
	p = wire.AppendUvarint(p, uint64(len(s.cells)))
	switch s.form {
	case formRange:
		p = binary.AppendVarint(p, s.row)
		p = wire.AppendUvarint(p, uint64(s.from))
	case formCells:
		p = wire.AppendUvarint(p, uint64(len(s.rows)))
		p = wire.AppendUvarint(p, uint64(len(s.cols)))
	default:
		p = wire.AppendUvarint(p, uint64(s.from))
		p = wire.AppendUvarint(p, uint64(len(s.rows)))
	}
	return p
}

func (s *section) appendPayload(p []byte) []byte {
	if s.keyBytes() > 0 {
		p = append(p, raw.Bytes(s.rows)...)
		if s.form == formCells {
			p = append(p, raw.Bytes(s.ends)...)
			p = append(p, raw.Bytes(s.cols)...)
		}
	}
	return append(p, s.cells...)
}

// appendPayloads appends the payloads of secs, each from a multiple of 8 on, but for those that the head has.
func appendPayloads(p []byte, secs []section) []byte {
	for i := range secs {
		if secs[i].beside {
			continue
		}
		for len(p)%8 != 0 {
			p = append(p, 0)
		}
		p = secs[i].appendPayload(p)
	}
	return p
}

// readSection reads what the two appends wrote; payload is what is left of it, and what is left after.
func readSection(r *wire.Reader, payload []byte, s *section) []byte {
	flags := r.Uvarint("form", 63)
	s.form, s.mark, s.listed, s.coded, s.beside = form(flags&3), flags&4 != 0, flags&8 != 0, flags&16 != 0, flags&32 != 0
	rest := payload
	if s.beside {
		payload = slices.Clone(r.Bytes("cells beside", besideMost)) // the head's memory is used again
	}
	s.table = uint32(r.Uvarint("table", maxTables))
	s.shard = uint32(r.Uvarint("shard", maxShards))
	s.part = uint32(r.Uvarint("part", math.MaxUint32))
	s.list = uint32(r.Uvarint("key list", math.MaxUint32))
	s.version = r.Uvarint("version", math.MaxUint64)
	s.n = int(r.Uvarint("cells", wire.MaxFrame))
	bytes := int(r.Uvarint("bytes", wire.MaxFrame))
	take := func(what string, n int) []byte {
		if r.Err() != nil {
			return nil
		}
		if n > len(payload) {
			r.Fail(what, fmt.Errorf("%d bytes are announced, %d are left", n, len(payload)))
			return nil
		}
		p := payload[:n:n]
		payload = payload[n:]
		return p
	}
	switch s.form {
	case formRange:
		s.row = readVarint(r, "row")
		s.from = int64(r.Uvarint("column", maxCols))
	case formCells:
		rows, cols := int(r.Uvarint("rows", wire.MaxFrame/8)), int(r.Uvarint("columns", wire.MaxFrame/8))
		if !s.listed {
			s.rows = raw.Of[int64](take("rows", 8*rows))
			s.ends = raw.Of[int64](take("ends", 8*rows))
			s.cols = raw.Of[int64](take("columns", 8*cols))
		}
	default:
		s.from = int64(r.Uvarint("column", maxCols))
		if rows := int(r.Uvarint("rows", wire.MaxFrame/8)); !s.listed {
			s.rows = raw.Of[int64](take("rows", 8*rows))
		}
	}
	s.cells = take("cells", bytes)
	if s.beside {
		if len(payload) > 0 {
			r.Fail("cells beside", errFollows)
		}
		return rest
	}
	take("padding", min(pad8(bytes)-bytes, len(payload)))
	return payload
}

const (
	// besideMost is the size in bytes up to which a section may travel in the head of a message whose payload is another's cells, and
	// besideSections how many may: then a round of a large row and a few numbers is one message, in place of two.
	besideMost     = 256
	besideSections = 4
)

// small reports whether a section may travel beside a large one, with its keys even where the receiver has them: it may come to lose them.
func (s *section) small() bool {
	return 8*(len(s.rows)+len(s.ends)+len(s.cols))+len(s.cells) <= besideMost
}

// smallOnes reports whether all of secs may travel beside a large one.
func smallOnes(secs []section) bool {
	return len(secs) <= besideSections && !slices.ContainsFunc(secs, func(s section) bool { return !s.small() })
}

// putBeside has all of secs travel so.
func putBeside(secs []section) {
	for i := range secs {
		secs[i].beside = true
	}
}

// bulk returns the section whose cells are the payload, if others travel beside it at most; nil: there is none.
func bulk(secs []section) *section {
	var s *section
	for i := range secs {
		switch {
		case secs[i].beside:
		case s != nil:
			return nil
		default:
			s = &secs[i]
		}
	}
	return s
}

func readVarint(r *wire.Reader, field string) int64 {
	u := r.Uvarint(field, math.MaxUint64)
	x := int64(u >> 1)
	if u&1 != 0 {
		x = ^x
	}
	return x
}
