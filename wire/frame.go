package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/trivium-ml/trivium/protocol"
)

// A Header opens every frame: 48 bytes, little-endian.
//
//	magic u16 | version u8 | kind u8 | length u32 | epoch u64 | stream u32 | fingerprint u32 | op u64 | chunk u32 | head u16, flags u16 |
//	payload CRC-32C u32 | header CRC-32C u32
//
// The header's checksum covers the 44 bytes before it. The payload's covers head and payload, where flag Summed is set: on plain TCP
// between hosts. TLS has its own, and on one host a checksum would halve the rate.
type Header struct {
	Kind        uint8
	Flags       uint16
	Length      uint32 // of head and payload together
	Head        uint16 // of them, the head's
	Epoch       protocol.Epoch
	Stream      uint32 // StreamID of its name
	Fingerprint uint32
	Op          Op
	Chunk       uint32
	Sum         uint32 // CRC-32C of head and payload, where Flags has Summed
}

// The flags of a Header.
const (
	Summed   uint16 = 1 << iota // Sum is that of the payload
	Internal                    // of the transport itself: Kind is one of its own
	Shared                      // the payload lies in memory that both ends share: in its place follow 8 bytes that say where

	// PriorityShift is where the two bits of a frame's priority begin.
	PriorityShift = 8
	known         = Summed | Internal | Shared | 3<<PriorityShift
)

const (
	// HeaderLen is the length of a Header in bytes.
	HeaderLen = 48
	// Magic opens every frame.
	Magic = 0x7654
	// Version is that of the frames: a peer of another is refused.
	Version = 1
	// MaxFrame is the largest length of head and payload, in bytes.
	MaxFrame = 64 << 20
	// MaxHead is the largest length of a head, in bytes.
	MaxHead = 1<<16 - 1
)

// An Op numbers an operation within a step: the step in the upper 44 bits, the index in the lower 20.
type Op uint64

// MakeOp returns the Op of the index-th operation of a step.
func MakeOp(step uint64, index uint32) Op { return Op(step<<20 | uint64(index)&(1<<20-1)) }

// Step is the step of o.
func (o Op) Step() uint64 { return uint64(o) >> 20 }

// Index is the number of o within its step.
func (o Op) Index() uint32 { return uint32(o) & (1<<20 - 1) }

// StreamID is the number by which a stream of that name goes on the wire (FNV-1a). 0 is the transport's own.
func StreamID(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return max(h, 1)
}

// Put writes h to p.
func (h *Header) Put(p *[HeaderLen]byte) {
	le := binary.LittleEndian
	le.PutUint16(p[0:], Magic)
	p[2], p[3] = Version, h.Kind
	le.PutUint32(p[4:], h.Length)
	le.PutUint64(p[8:], uint64(h.Epoch))
	le.PutUint32(p[16:], h.Stream)
	le.PutUint32(p[20:], h.Fingerprint)
	le.PutUint64(p[24:], uint64(h.Op))
	le.PutUint32(p[32:], h.Chunk)
	le.PutUint16(p[36:], h.Head)
	le.PutUint16(p[38:], h.Flags)
	le.PutUint32(p[40:], h.Sum)
	le.PutUint32(p[44:], crc32.Checksum(p[:44], castagnoli))
}

// Parse reads h from p. Its error says what is wrong: the connection that it came from cannot be read any further.
func (h *Header) Parse(p *[HeaderLen]byte) error {
	le := binary.LittleEndian
	if m := le.Uint16(p[0:]); m != Magic {
		return &FrameError{"magic", fmt.Sprintf("want %#04x, found %#04x%s", Magic, m, guess(p))}
	}
	if p[2] != Version {
		return &FrameError{"version", fmt.Sprintf("this program speaks version %d, the peer %d", Version, p[2])}
	}
	if want, found := crc32.Checksum(p[:44], castagnoli), le.Uint32(p[44:]); want != found {
		return &FrameError{"checksum", fmt.Sprintf("of a header: want %#08x, found %#08x", want, found)}
	}
	*h = Header{
		Kind: p[3], Length: le.Uint32(p[4:]), Epoch: protocol.Epoch(le.Uint64(p[8:])), Stream: le.Uint32(p[16:]),
		Fingerprint: le.Uint32(p[20:]), Op: Op(le.Uint64(p[24:])), Chunk: le.Uint32(p[32:]), Head: le.Uint16(p[36:]), Flags: le.Uint16(p[38:]),
		Sum: le.Uint32(p[40:]),
	}
	switch {
	case h.Length > MaxFrame:
		return &FrameError{"length", fmt.Sprintf("at most %d bytes, found %d", MaxFrame, h.Length)}
	case uint32(h.Head) > h.Length:
		return &FrameError{"length", fmt.Sprintf("a head of %d bytes in a frame of %d", h.Head, h.Length)}
	case h.Flags&^known != 0:
		return &FrameError{"flags", fmt.Sprintf("unknown flags %#x", h.Flags&^known)}
	}
	return nil
}

// A FrameError says why bytes are no frame.
type FrameError struct {
	Cause string // magic, version, checksum, length, flags: by which refusals are counted
	Text  string
}

func (e *FrameError) Error() string { return "wire: frame: " + e.Cause + ": " + e.Text }

// guess says what a stranger seems to speak.
func guess(p *[HeaderLen]byte) string {
	switch s := string(p[:4]); s {
	case "GET ", "POST", "HEAD", "PUT ", "OPTI", "PRI ":
		return " (an HTTP request: this port speaks Trivium's frames)"
	}
	if p[0] == 0x16 && p[1] == 0x03 {
		return " (a TLS client: this port was opened without TLS)"
	}
	return ""
}
