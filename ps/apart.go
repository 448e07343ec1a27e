package ps

import (
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// apartFrom is the size in bytes from which a row lands so.
const apartFrom = 1 << 18

// A landing is memory for a large dense row that is asked for as a whole: the transport reads the answer straight into it, beside the cells
// that readers have meanwhile, and once all is here it takes their place. Without it a row went through the transport's memory.
type landing struct {
	r     *cachedRow
	cells []uint64
	segs  []landed // of r's segments, in their order

	// Of the loop that sends the question.
	asked   bool
	keys    []transport.Key // that were posted
	arrived int             // of these, by the state
	done    bool            // by the state: what still waits is to be taken back
	free    bool            // nothing will be written to cells any more, though they were not taken
}

// A landed is what came of one segment.
type landed struct {
	cells   int
	version uint64
	whole   bool // here, or as it was
	same    bool
	m       values  // without its sections
	s       section // without its cells
}

// apart lets the answer to g's question land beside the row that it asks for, if that is one large row and p asks for all of it.
func (c *ClientState) apart(g *getCall, segs []segmentOf) {
	if len(segs) == 0 || !raw.InPlace() || g.t.spec.Sparse || g.t.spec.Mode == ESSP || g.t.unposted {
		return
	}
	r := segs[0].r
	size := int(g.t.spec.Cols) * g.t.spec.Cell.Size()
	if size < apartFrom || int64(size) > c.ring.limit/4 || len(segs) != len(r.segs) {
		return
	}
	p := segs[0].seg().pull
	for _, s := range segs {
		if s.r != r || s.seg().pull != p {
			return
		}
	}
	if p == nil || p.into != nil {
		return
	}
	in := &landing{r: r, segs: make([]landed, len(r.segs))}
	switch {
	case r.spare != nil:
		in.cells, r.spare = r.spare, nil
	case r.left != nil && r.left.free:
		in.cells = r.left.cells
	default:
		in.cells = make([]uint64, words(int(g.t.spec.Cols), g.t.spec.Cell.Size()))
	}
	r.left = nil
	p.into, p.msg.into = in, in
	c.ring.weigh(r)
}

// bytes are those of n cells from column from on.
func (in *landing) bytes(from int64, n int) []byte {
	return in.r.bytesOf(in.cells, from, n)
}

// bytesOf are n cells from column from on, of memory as the row's cells have it.
func (r *cachedRow) bytesOf(cells []uint64, from int64, n int) []byte {
	size := r.t.spec.Cell.Size()
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(cells))), 8*len(cells))[int(from)*size:][:n*size]
}

// take puts a section of the answer where it belongs, unless the transport has done so. False: it makes no sense.
func (in *landing) take(m *values, s *section, row, from int64, n int, cells []byte) bool {
	i := slices.IndexFunc(in.r.segs, func(x cachedSegment) bool { return x.from <= from && from < x.to })
	if i < 0 || row != in.r.row || from+int64(n) > in.r.segs[i].to {
		return false
	}
	x := &in.segs[i]
	if x.version != s.version { // of an answer before, whose rest was lost: it is of another time
		*x = landed{version: s.version}
	}
	if cells == nil {
		x.same, x.whole = true, true
	} else {
		dst := in.bytes(from, n)
		switch at, all := unsafe.SliceData(cells), in.bytes(0, int(in.r.t.spec.Cols)); {
		case at == unsafe.SliceData(dst):
			in.arrived++
		case uintptr(unsafe.Pointer(at)) >= uintptr(unsafe.Pointer(&all[0])) && uintptr(unsafe.Pointer(at)) <= uintptr(unsafe.Pointer(&all[len(all)-1])):
			return false // it has landed elsewhere in the row
		default:
			copy(dst, cells)
		}
		x.cells += n
		x.whole = x.cells == int(in.r.segs[i].to-in.r.segs[i].from)
	}
	if x.whole {
		x.m, x.s = *m, *s
		x.m.secs, x.m.holds, x.m.release, x.s.cells, x.s.rows = nil, nil, nil, nil, nil
	}
	return true
}

// reset forgets what came of an answer that was given again, in other pieces.
func (in *landing) reset() { clear(in.segs) }

// swap makes what has landed the row's cells, and settles its segments; what was overtaken meanwhile is dropped.
func (c *ClientState) swap(p *pulling, l *laneLink) {
	in := p.into
	r := in.r
	in.done = true
	if in.asked && in.arrived == 0 && len(in.keys) > 0 && !slices.ContainsFunc(in.segs, func(x landed) bool { return x.same }) {
		r.t.unposted = true // its servers have not the cells together: they send copies
	}
	good, same := true, 0
	for i := range in.segs {
		x, seg := &in.segs[i], &r.segs[i]
		good = good && x.whole && seg.pull == p && !c.overtaken(seg, &x.m, &x.s) && (!x.same || seg.v >= 0)
		if x.same {
			same++
		}
	}
	if !good || same == len(in.segs) {
		r.left = in // for the next, once nothing is written to it
	}
	if !good {
		c.ring.weigh(r)
		return
	}
	if same < len(in.segs) {
		for i := range in.segs {
			if s := &r.segs[i]; in.segs[i].same {
				n := int(s.to - s.from)
				copy(in.bytes(s.from, n), r.bytesOf(r.cells, s.from, n))
			}
		}
		cells := in.cells
		switch {
		case in.arrived < len(in.keys): // something may still be written there
			cells = slices.Clone(cells)
		case in.arrived > 0:
			c.InPlace++
		}
		if r.views == 0 {
			r.spare = r.cells
		}
		r.cells, r.n, r.views = cells, int(r.t.spec.Cols), 0
	}
	for i := range in.segs {
		c.settle(l, &r.segs[i], p, &in.segs[i].m, &in.segs[i].s)
	}
	c.ring.weigh(r)
}

// pieceKey is the name of a frame that has cells of one section of an answer, where they lie, from a column on: pieces begin further apart
// than 1 << 16 cells.
func pieceKey(id uint64, part uint32, from int64) transport.Key {
	return transport.Key{Op: wire.Op(id), Chunk: part<<24 | uint32(from>>16)}
}

// key is that of the frame of an answer whose cells are sent from where they lie.
func (m *values) key() transport.Key {
	if s := bulk(m.secs); m.id != 0 && s != nil && s.form == formRange && s.part > 0 && s.part < 1<<8 {
		return pieceKey(m.id, s.part, s.from)
	}
	return transport.Key{}
}

// post says where the answer to a question is to land.
func (h *Host) post(to Name, m *pull) {
	in := m.into
	if in.asked || to == h.s.Self() {
		return
	}
	in.asked = true
	size := in.r.t.spec.Cell.Size()
	step := maxPiece / size
	for k := range m.secs {
		s := &m.secs[k]
		from, cells := s.from, s.n
		switch {
		case s.table != in.r.t.id || k+1 >= 1<<8:
			continue
		case s.form == formRange && s.row == in.r.row:
		case s.form == formRows && len(s.rows) == 1 && s.rows[0] == in.r.row:
			from, cells = 0, int(in.r.t.spec.Cols)
		default:
			continue
		}
		for at := 0; at < cells; at += step {
			n := min(step, cells-at)
			if n*size < apartFrom {
				continue
			}
			key := pieceKey(m.id, uint32(k)+1, from+int64(at))
			if h.s.Post(to, key, in.bytes(from+int64(at), n)) == nil { // else it lands where all do
				in.keys = append(in.keys, key)
			}
		}
	}
	h.landings = append(h.landings, posted{to, in})
}

// A posted is a landing at the stream.
type posted struct {
	from Name
	in   *landing
}

// takeBack ends the landings that are over. Only the client's part calls it and post, under its lock.
func (h *Host) takeBack() {
	h.landings = slices.DeleteFunc(h.landings, func(x posted) bool {
		if !x.in.done {
			return false
		}
		n := x.in.arrived
		if n < len(x.in.keys) {
			for _, k := range x.in.keys {
				if h.s.Unpost(x.from, k) {
					n++
				}
			}
		}
		x.in.free = n == len(x.in.keys)
		return true
	})
}
