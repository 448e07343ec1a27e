package ps

import (
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// The kinds of frames. By a kind's upper bits it is known whom in a process a frame is for.
const (
	kindBatch uint8 = 32 + iota
	kindPull
	kindProbe
	kindHave
	kindLaneInstall
)

const (
	kindValues uint8 = 64 + iota
	kindClocks
	kindRefused
	kindInstall
	kindBehind
)

const (
	kindHello uint8 = 96 + iota
	kindCreate
	kindAccept
	kindProgress
	kindSaved
)

// The roles that a kind is for.
const (
	forServer    = 1
	forClient    = 2
	forDirectory = 3
)

func roleOf(kind uint8) int { return int(kind >> 5) }

// A parcel is the bytes of a message on their way.
type parcel struct {
	head, body []byte // its own memory
	payload    []byte // body, or cells where they lie
	kind       uint8
	key        transport.Key
	holds      holds // of cells in payload
	copied     holds // of cells that are in body now: to be given back by who sends
	done       func(error)
	pool       *parcels
	leg        *leg // of a round's frame; nil: nobody wants to know
}

// parcels keeps the memory of parcels that were sent.
type parcels struct{ pool sync.Pool }

func (x *parcels) take() *parcel {
	p, _ := x.pool.Get().(*parcel)
	if p == nil {
		p = &parcel{pool: x}
		p.done = func(error) { p.free() }
	}
	return p
}

func (p *parcel) free() {
	p.holds.give()
	p.holds, p.copied, p.payload = nil, nil, nil
	p.leg.land()
	p.leg = nil
	if cap(p.body) > 2*maxPiece {
		p.body = nil
	}
	p.pool.pool.Put(p)
}

// encode turns a message into bytes. The caller frees the parcel.
func (x *parcels) encode(b protocol.Body) *parcel {
	p := x.take()
	h := p.head[:0]
	p.payload, p.key = nil, transport.Key{}
	secs := func(secs, more []section, hs holds) {
		p.copied = hs
		switch s := bulk(secs); {
		case len(hs) > 0 && s != nil && len(s.cells) >= inPlace && s.keyBytes() == 0 && len(more) == 0:
			p.payload = s.cells
			p.holds, p.copied = hs, nil
		case len(secs)+len(more) > 0:
			p.body = appendPayloads(appendPayloads(p.body[:0], secs), more)
			p.payload = p.body
		}
	}
	plain := func(f func(p []byte) []byte) {
		p.body = f(p.body[:0])
		p.payload = p.body
	}
	switch m := b.(type) {
	case *batch:
		p.kind, h = kindBatch, m.appendHead(append(h, 0))
		secs(m.secs, m.drop, m.holds)
	case *pull:
		p.kind, h = kindPull, m.appendHead(append(h, 0))
		secs(m.secs, nil, nil)
	case *probe:
		p.kind, h = kindProbe, m.appendHead(h)
	case *have:
		p.kind, h = kindHave, m.appendHead(h)
	case *values:
		p.kind, h = kindValues, m.appendHead(append(h, 0))
		secs(m.secs, nil, m.holds)
		if p.holds != nil && len(p.payload) >= apartFrom { // the cells alone
			p.key = m.key()
		}
	case *clocks:
		p.kind, h = kindClocks, m.appendHead(h)
	case *refused:
		p.kind, h = kindRefused, m.appendHead(h)
	case *behind:
		p.kind, h = kindBehind, m.appendHead(h)
	case *install:
		p.kind, h = kindInstall, m.appendHead(h)
		if m.lane {
			p.kind = kindLaneInstall
		}
		plain(m.config.append)
	case *hello:
		p.kind = kindHello
		plain(m.append)
	case *create:
		p.kind = kindCreate
		plain(m.append)
	case *accept:
		p.kind = kindAccept
		plain(m.append)
	case *progress:
		p.kind = kindProgress
		plain(m.append)
	case *saved:
		p.kind = kindSaved
		plain(m.append)
	}
	if aligned(p.kind) {
		pad := -len(h) & 7
		h = append(h, zeros[:pad]...)
		h[0] = byte(pad)
	}
	p.head = h
	return p
}

// aligned reports whether a kind's head is filled up to a multiple of 8 bytes, its first byte telling by how many: a payload that is
// received behind it can then be read in place.
func aligned(kind uint8) bool { return kind == kindBatch || kind == kindPull || kind == kindValues }

const zeros = "\x00\x00\x00\x00\x00\x00\x00"

// frame is the parcel as the transport takes it.
func (p *parcel) frame() transport.Frame {
	f := transport.Frame{Kind: p.kind, Key: p.key, Head: p.head, Payload: p.payload, Done: p.done}
	return f
}

// decode reads what encode wrote. The message refers to head and payload; a batch or values is given release.
func decode(kind uint8, head, payload []byte, release func()) (protocol.Body, error) {
	if aligned(kind) {
		if len(head) == 0 || head[0] > 7 || len(head) < 1+int(head[0]) {
			return nil, fmt.Errorf("ps: a head of %d bytes is not filled up", len(head))
		}
		head = head[1 : len(head)-int(head[0])]
	}
	switch kind {
	case kindBatch:
		m, err := decodeBatch(head, payload)
		m.release = release
		return m, err
	case kindPull:
		return decodePull(head, payload)
	case kindProbe:
		return decodeProbe(head)
	case kindHave:
		return decodeHave(head)
	case kindLaneInstall, kindInstall:
		m, err := decodeInstall(head, payload)
		if m != nil {
			m.lane = kind == kindLaneInstall
		}
		return m, err
	case kindValues:
		m, err := decodeValues(head, payload)
		m.release = release
		return m, err
	case kindClocks:
		return decodeClocks(head)
	case kindRefused:
		return decodeRefused(head)
	case kindBehind:
		return decodeBehind(head)
	case kindHello:
		return decodeHello(payload)
	case kindCreate:
		return decodeCreate(payload)
	case kindAccept:
		return decodeAccept(payload)
	case kindProgress:
		return decodeProgress(payload)
	case kindSaved:
		return decodeSaved(payload)
	}
	return nil, fmt.Errorf("ps: unknown kind of frame %d", kind)
}
