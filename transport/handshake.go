package transport

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/trivium-ml/trivium/wire"
)

// A hello is the first frame of a connection, from who dialled. The handshake of a connection, each step a frame:
//
//	dialler    hello: who, to whom, a nonce
//	acceptor   challenge: a nonce, the link's number, HMAC-SHA-256 under the secret over all so far
//	dialler    proof: HMAC-SHA-256 over all so far
//	acceptor   accept
//	           on a data connection: both agree on shared memory, and
//	acceptor   accept: the link counts
//
// Both nonces are under both codes, so that a recorded handshake proves nothing to anyone. In place of any step the acceptor may send a
// refusal.
type hello struct {
	role     uint8 // data or control
	name     Name
	target   Name
	instance [16]byte
	attempt  uint64
	last     [16]byte // the link that was up last, as the dialler knows
	link     [16]byte // data: the number that the control connection was given
	nonce    [16]byte
	addr     string   // where the dialler may be dialled
	answered [16]byte // at the dialler: the instance of the acceptor
}

// A challenge is the acceptor's answer to a hello.
type challenge struct {
	nonce    [16]byte
	instance [16]byte
	link     [16]byte
	mac      [sha256.Size]byte
}

const (
	maxHello  = 4096 // bytes of a frame of the handshake
	maxField  = 1024 // bytes of a name's part, of an address
	maxReason = 2048
)

// A RefusedError says why the other end refused a connection, or this one did.
type RefusedError struct {
	Cause string // as Stats.Refused counts them
	Text  string
}

func (e *RefusedError) Error() string { return "transport: refused: " + e.Text }

// errBusy: a link of the same two peers is being made or up already, by a dial of the other end.
var errBusy error = &RefusedError{"busy", "the other end's own dial goes first"}

func (e *RefusedError) Is(target error) bool {
	t, ok := target.(*RefusedError)
	return ok && t.Cause == e.Cause
}

func appendName(p []byte, n Name) []byte {
	p = wire.AppendString(wire.AppendString(wire.AppendString(p, n.Job), n.Role), n.ID)
	return wire.AppendUint64(p, n.Incarnation)
}

func readName(r *wire.Reader, what string) Name {
	return Name{Job: r.String(what+"'s job", maxField), Role: r.String(what+"'s role", maxField), ID: r.String(what+"'s ID", maxField), Incarnation: r.Uint64(what + "'s incarnation")}
}

func readFixed(r *wire.Reader, field string, p []byte) {
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.Uint64(field))
	}
}

func (h *hello) append(p []byte) []byte {
	p = append(p, h.role)
	p = appendName(appendName(p, h.name), h.target)
	p = append(p, h.instance[:]...)
	p = wire.AppendUint64(p, h.attempt)
	p = append(append(append(p, h.last[:]...), h.link[:]...), h.nonce[:]...)
	return wire.AppendString(p, h.addr)
}

func (h *hello) parse(p []byte) error {
	r := wire.NewReader("transport: hello", p)
	h.role = uint8(r.Uvarint("role", control))
	h.name, h.target = readName(r, "dialler"), readName(r, "target")
	readFixed(r, "instance", h.instance[:])
	h.attempt = r.Uint64("attempt")
	readFixed(r, "last link", h.last[:])
	readFixed(r, "link", h.link[:])
	readFixed(r, "nonce", h.nonce[:])
	h.addr = r.String("address", maxField)
	return r.Done()
}

func (c *challenge) append(p []byte) []byte {
	return append(append(append(append(p, c.nonce[:]...), c.instance[:]...), c.link[:]...), c.mac[:]...)
}

func (c *challenge) parse(p []byte) error {
	r := wire.NewReader("transport: challenge", p)
	readFixed(r, "nonce", c.nonce[:])
	readFixed(r, "instance", c.instance[:])
	readFixed(r, "link", c.link[:])
	readFixed(r, "code", c.mac[:])
	return r.Done()
}

// code is the proof of who, over what both have said.
func code(secret []byte, who string, hello []byte, c *challenge) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, secret)
	_, _ = m.Write(append([]byte("trivium transport 1 "+who+" "), hello...)) // never fails
	_, _ = m.Write(append(append(append([]byte(nil), c.nonce[:]...), c.instance[:]...), c.link[:]...))
	m.Sum(sum[:0])
	return sum
}

func appendFrame(p []byte, kind uint8, body []byte) []byte {
	var b [wire.HeaderLen]byte
	h := wire.Header{Kind: kind, Flags: wire.Internal | wire.Summed, Length: uint32(len(body)), Sum: wire.Sum(body)}
	h.Put(&b)
	return append(append(p, b[:]...), body...)
}

func appendRefusal(p []byte, cause, text string) []byte {
	return appendFrame(p, kindRefuse, wire.AppendString(wire.AppendString(nil, cause), text[:min(len(text), maxReason)]))
}

// readRefusal returns the refusal as an error.
func readRefusal(from Name, p []byte) error {
	r := wire.NewReader("transport: refusal", p)
	cause, text := r.String("cause", 64), r.String("reason", maxReason)
	if err := r.Done(); err != nil {
		return err
	}
	return &RefusedError{cause, fmt.Sprintf("%v says: %s", from, text)}
}

// readStep reads one frame of a handshake, of the kind that is due.
func readStep(nc net.Conn, kind uint8, from Name) ([]byte, error) {
	var b [wire.HeaderLen]byte
	// What is no frame at all may be shorter than a header: look at the first bytes before waiting for the others.
	if _, err := io.ReadFull(nc, b[:4]); err != nil {
		return nil, err
	}
	var h wire.Header
	if b[0] != wire.Magic&0xff || b[1] != wire.Magic>>8 || b[2] != wire.Version {
		return nil, h.Parse(&b)
	}
	if _, err := io.ReadFull(nc, b[4:]); err != nil {
		return nil, err
	}
	if err := h.Parse(&b); err != nil {
		return nil, err
	}
	refusal := h.Kind == kindRefuse && (kind == kindChallenge || kind == kindAccept) // only who was dialled refuses
	switch {
	case h.Flags&^wire.Summed != wire.Internal || h.Kind != kind && !refusal:
		return nil, &wire.FrameError{Cause: "kind", Text: fmt.Sprintf("want step %d of the handshake, found kind %d with flags %#x", kind, h.Kind, h.Flags)}
	case h.Length > maxHello:
		return nil, &wire.FrameError{Cause: "length", Text: fmt.Sprintf("at most %d bytes before the peer is known, found %d", maxHello, h.Length)}
	}
	body := make([]byte, h.Length)
	if _, err := io.ReadFull(nc, body); err != nil {
		return nil, err
	}
	if wire.Sum(body) != h.Sum {
		return nil, &wire.FrameError{Cause: "checksum", Text: "of a step of the handshake"}
	}
	if refusal {
		return nil, readRefusal(from, body)
	}
	return body, nil
}
