package transport

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

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
	switch {
	case h.Flags&^wire.Summed != wire.Internal || h.Kind != kind && h.Kind != kindRefuse:
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
	if h.Kind == kindRefuse {
		return nil, readRefusal(from, body)
	}
	return body, nil
}

// dial makes a link to the peer.
func (p *port) dial(ctx context.Context, pr *peer, addr string, attempt uint64) error {
	pr.mu.Lock()
	h := &hello{name: p.self, target: pr.name, instance: p.instance, attempt: attempt, last: pr.last, addr: p.carrier.addr}
	pr.mu.Unlock()
	var conns [2][2]net.Conn
	up := false
	defer func() {
		for _, c := range conns {
			if c[1] != nil && !up {
				_ = c[1].Close() // on the way out with an error
			}
		}
	}()
	for _, role := range [...]uint8{control, data} {
		nc, err := p.carrier.dial(ctx, addr)
		if err != nil {
			return fmt.Errorf("transport: %v at %s: %w", pr.name, addr, err)
		}
		conns[role] = [2]net.Conn{nc, nc}
		stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(longAgo) })
		defer stop()
		if err := p.introduce(ctx, h, role, &conns[role]); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("transport: %v at %s: %w", pr.name, addr, err)
		}
		if role == control {
			continue
		}
		shared := p.share(conns[data][1], pr, true)
		if _, err = readStep(conns[data][0], kindAccept, h.target); err != nil {
			err = fmt.Errorf("transport: %v at %s: %w", pr.name, addr, err)
		} else {
			life := p.attend(ctx, conns[data][1], addr)
			err = pr.establish(h, false, h.link, conns[control], conns[data], shared, life, addr)
			if err != nil && life != nil {
				_ = life.Close() // nobody used it
			}
		}
		if err != nil {
			if shared != nil {
				_ = shared.Close() // nobody used it
			}
			return err
		}
		up = true
	}
	return nil
}

// share agrees on shared memory, where there is.
func (p *port) share(nc net.Conn, pr *peer, dialler bool) sharedPath {
	c, ok := nc.(*net.UnixConn)
	if !ok || !p.carrier.shared {
		return nil
	}
	shared, err := openShared(c, dialler)
	if err != nil {
		p.o.Log.Warn("transport: no shared memory", "peer", pr.name.String(), "err", err.Error())
		return nil
	}
	return shared
}

// attend connects to what ends with the peer's process; nil: there is no such thing.
func (p *port) attend(ctx context.Context, nc net.Conn, addr string) net.Conn {
	if !isUnix(nc) || p.carrier.attend == nil {
		return nil
	}
	return p.carrier.attend(ctx, addr)
}

// introduce is the dialler's part of the handshake.
func (p *port) introduce(ctx context.Context, h *hello, role uint8, conn *[2]net.Conn) error {
	if p.carrier.secure != nil {
		if nc, ok := p.carrier.secure(conn[1], false); ok {
			conn[0] = nc
			if err := nc.(*tls.Conn).HandshakeContext(ctx); err != nil {
				return fmt.Errorf("TLS: %w", err)
			}
			if err := p.verify(h.target, nc); err != nil {
				return err
			}
		}
	}
	nc := conn[0]
	h.role = role
	_, _ = rand.Read(h.nonce[:]) // never fails
	said := h.append(nil)
	if _, err := nc.Write(appendFrame(nil, kindHello, said)); err != nil {
		return err
	}
	b, err := readStep(nc, kindChallenge, h.target)
	if err != nil {
		return err
	}
	var c challenge
	if err := c.parse(b); err != nil {
		return err
	}
	if want := code(p.o.Secret, "acceptor", said, &c); !hmac.Equal(want[:], c.mac[:]) {
		return &RefusedError{"secret", fmt.Sprintf("%v does not hold the secret that %v holds", h.target, h.name)}
	}
	h.link, h.answered = c.link, c.instance
	mac := code(p.o.Secret, "dialler", said, &c)
	if _, err := nc.Write(appendFrame(nil, kindProof, mac[:])); err != nil {
		return err
	}
	_, err = readStep(nc, kindAccept, h.target)
	return err
}

func (p *port) verify(n Name, nc net.Conn) error {
	if p.carrier.verify == nil {
		return nil
	}
	if err := p.carrier.verify(n, nc); err != nil {
		return &RefusedError{"certificate", fmt.Sprintf("the certificate is not that of %v: %v", n, err)}
	}
	return nil
}

// accept takes connections until the listener is closed.
func (p *port) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			p.o.Log.Warn("transport: accept", "err", err.Error())
			select { // out of file descriptors, for one: others may close theirs
			case <-time.After(10 * time.Millisecond):
				continue
			case <-p.done:
				return
			}
		}
		if !p.pend(nc) {
			_ = nc.Close() // the port is closed
			continue
		}
		p.wg.Go(func() { p.greet(nc) })
	}
}

// pend counts nc among those who have not said who they are. The oldest makes room.
func (p *port) pend(nc net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if len(p.pending) >= maxPending {
		var oldest net.Conn
		for c, at := range p.pending {
			if oldest == nil || at.Before(p.pending[oldest]) {
				oldest = c
			}
		}
		delete(p.pending, oldest)
		_ = oldest.Close() // a stranger's
		p.count("crowded")
	}
	p.pending[nc] = time.Now()
	return true
}

// greet is the acceptor's part of the handshake.
func (p *port) greet(nc net.Conn) {
	kept := false
	defer func() {
		p.mu.Lock()
		delete(p.pending, nc)
		p.mu.Unlock()
		if !kept {
			_ = nc.Close()
		}
	}()
	limit := time.Now().Add(p.o.Handshake)
	_ = nc.SetDeadline(limit) // fails on a closed connection, as the next read does
	conn := [2]net.Conn{nc, nc}
	h, err := p.meet(&conn, limit)
	if err == nil {
		kept = true
		return
	}
	p.refuse(conn, h, err)
}

// refuse counts, logs, and tells the other end.
func (p *port) refuse(conn [2]net.Conn, h *hello, err error) {
	cause, text := "truncated", err.Error()
	var bad *wire.FrameError
	var no *RefusedError
	var tlsHeader tls.RecordHeaderError
	switch {
	case errors.Is(err, errBusy):
		_, _ = conn[0].Write(appendRefusal(nil, "busy", errBusy.Error())) // it is told, or sees the end
		return
	case h != nil && ended(err) && p.needless(h.name):
		p.o.Log.Debug("transport: connection given up", "name", h.name.String(), "err", text) // by who has another, or goes
		return
	case errors.As(err, &no) && no.Cause == "closed":
		p.o.Log.Debug("transport: connection refused", "name", h.name.String(), "err", no.Text)
		_, _ = conn[0].Write(appendRefusal(nil, no.Cause, no.Text))
		return
	case errors.As(err, &no):
		cause, text = no.Cause, no.Text
	case errors.As(err, &bad):
		cause, text = bad.Cause, bad.Text
	case errors.As(err, &tlsHeader):
		cause, text = "certificate", "TLS is spoken here: "+text
		conn[0] = conn[1]
	case errors.Is(err, os.ErrDeadlineExceeded):
		cause, text = "timeout", fmt.Sprintf("no whole handshake within %v", p.o.Handshake)
	case ended(err):
		text = "the connection ended before the handshake did"
	case errors.Is(err, net.ErrClosed):
		return // counted by who closed it
	case conn[0] != conn[1]:
		cause = "certificate"
	}
	p.count(cause)
	args := []any{"remote", conn[1].RemoteAddr().String(), "cause", cause, "err", text}
	if h != nil {
		args = append(args, "name", h.name.String())
	}
	p.o.Log.Warn("transport: connection refused", args...)
	var answer []byte
	switch {
	case strings.Contains(text, "an HTTP request"):
		answer = fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s\n", len(text)+1, text)
	case strings.Contains(text, "a TLS client"):
		answer = []byte{21, 3, 3, 0, 2, 2, 40} // alert: fatal, handshake failure
	default:
		answer = appendRefusal(nil, cause, text)
	}
	_ = conn[1].SetDeadline(time.Now().Add(time.Second))
	if _, err := conn[0].Write(answer); err == nil {
		// What the other end has sent and nobody read would make the kernel take the answer back: read some of it.
		if c, ok := conn[1].(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
			_ = conn[1].SetDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.CopyN(io.Discard, conn[1], maxHello)
		}
	}
}

// ended reports whether err is that of a connection which the other end has closed.
func ended(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// needless reports whether the peer of that name needs no dial just now, as far as this end knows.
func (p *port) needless(n Name) bool {
	p.mu.RLock()
	pr := p.peers[n]
	p.mu.RUnlock()
	return pr != nil && pr.needless()
}

// meet reads who comes, and makes his two connections a link.
func (p *port) meet(conn *[2]net.Conn, limit time.Time) (*hello, error) {
	if p.carrier.admit != nil {
		if err := p.carrier.admit(conn[1]); errors.Is(err, net.ErrClosed) {
			return nil, err
		} else if err != nil {
			return nil, &RefusedError{"user", err.Error()}
		}
	}
	if p.carrier.secure != nil {
		if nc, ok := p.carrier.secure(conn[1], true); ok {
			conn[0] = nc
			if err := nc.(*tls.Conn).Handshake(); err != nil {
				return nil, err
			}
		}
	}
	nc := conn[0]
	said, err := readStep(nc, kindHello, Name{})
	if err != nil {
		return nil, err
	}
	h := &hello{}
	if err := h.parse(said); err != nil {
		return nil, &RefusedError{"hello", err.Error()}
	}
	switch {
	case h.target != p.self:
		return h, &RefusedError{"target", fmt.Sprintf("%v is wanted, this is %v", h.target, p.self)}
	case h.name == p.self:
		return h, &RefusedError{"duplicate", fmt.Sprintf("%v is this port's own name", h.name)}
	}
	if nc != conn[1] {
		if err := p.verify(h.name, nc); err != nil {
			return h, err
		}
	}
	c := &challenge{instance: p.instance, link: h.link}
	_, _ = rand.Read(c.nonce[:]) // never fails
	if h.role == control {
		_, _ = rand.Read(c.link[:])
	}
	c.mac = code(p.o.Secret, "acceptor", said, c)
	if _, err := nc.Write(appendFrame(nil, kindChallenge, c.append(nil))); err != nil {
		return h, err
	}
	proof, err := readStep(nc, kindProof, h.name)
	if err != nil {
		return h, err
	}
	if want := code(p.o.Secret, "dialler", said, c); !hmac.Equal(want[:], proof) {
		return h, &RefusedError{"secret", fmt.Sprintf("%v does not hold the secret that %v holds", h.name, p.self)}
	}
	pr, err := p.welcome(h)
	if err != nil {
		return h, err
	}
	accept := appendFrame(nil, kindAccept, nil)
	if h.role == control {
		return h, p.hold(pr, h, c.link, *conn, accept, limit)
	}
	first, err := pr.match(h)
	if err != nil {
		return h, err
	}
	if _, err = nc.Write(accept); err == nil {
		shared := p.share(conn[1], pr, false)
		life := p.attend(context.Background(), conn[1], h.addr)
		err = pr.establish(&first.hello, true, first.id, [2]net.Conn{first.nc, first.hard}, *conn, shared, life, h.addr)
		if err != nil && shared != nil {
			_ = shared.Close() // nobody used it
		}
		if err != nil && life != nil {
			_ = life.Close() // nobody used it
		}
	}
	if err != nil {
		first.close()
	}
	return h, err
}

// welcome returns the peer of that name, which may be new. A newer incarnation takes the place of an older one.
func (p *port) welcome(h *hello) (*peer, error) {
	p.mu.Lock()
	var older []*peer
	defer func() {
		p.mu.Unlock()
		for _, pr := range older {
			pr.replaced(h.name)
		}
	}()
	if p.closed {
		return nil, &RefusedError{"closed", "this port is closing"}
	}
	for n, pr := range p.peers {
		if n.Job != h.name.Job || n.Role != h.name.Role || n.ID != h.name.ID || n.Incarnation == h.name.Incarnation {
			continue
		}
		if n.Incarnation > h.name.Incarnation {
			return nil, &RefusedError{"duplicate", fmt.Sprintf("%v is known here: incarnation %d is over", n, h.name.Incarnation)}
		}
		older = append(older, pr)
	}
	pr := p.peers[h.name]
	if pr == nil {
		if len(p.peers)-len(older) >= p.o.MaxPeers && !p.evict() {
			older = nil
			return nil, &RefusedError{"peers", fmt.Sprintf("%v has its %d peers", p.self, p.o.MaxPeers)}
		}
		pr = newPeer(p, h.name)
		p.peers[h.name] = pr
	}
	for _, o := range older {
		delete(p.peers, o.name)
	}
	pr.mu.Lock()
	defer pr.unlock()
	return pr, pr.judge(h)
}

// evict forgets a peer that went away and that nobody asked for. port.mu is held.
func (p *port) evict() bool {
	for n, pr := range p.peers {
		pr.mu.Lock()
		away := !pr.known && pr.lost && pr.half == nil
		pr.mu.Unlock()
		if away {
			delete(p.peers, n)
			p.wg.Go(func() { pr.end(ErrLinkLost) })
			return true
		}
	}
	return false
}

// replaced ends a peer whose next incarnation came.
func (pr *peer) replaced(by Name) {
	p := pr.port
	p.mu.RLock()
	pr.mu.Lock()
	err := fmt.Errorf("transport: %v took the place of %v: %w", by, pr.name, io.EOF)
	if pr.link.up && pr.gone == nil {
		for _, s := range p.streams {
			s.tell(LinkLost, pr.name, err)
		}
	}
	pr.unlock()
	p.mu.RUnlock()
	pr.end(fmt.Errorf("%w: %w", ErrLinkLost, err))
}

// hold keeps a control connection until its data connection comes.
func (p *port) hold(pr *peer, h *hello, id [16]byte, conn [2]net.Conn, accept []byte, limit time.Time) error {
	o := &halfOpen{id: id, hello: *h, nc: conn[0], hard: conn[1]}
	pr.mu.Lock()
	if err := pr.judge(h); err != nil {
		pr.unlock()
		return err
	}
	if pr.half != nil {
		pr.half.close()
	}
	pr.half = o
	o.expires = time.AfterFunc(time.Until(limit), func() {
		pr.mu.Lock()
		if pr.half == o {
			pr.half = nil
		}
		pr.unlock()
		_ = o.hard.Close()
	})
	pr.unlock()
	_, err := conn[0].Write(accept)
	return err
}

// match finds the control connection that h belongs to.
func (pr *peer) match(h *hello) (*halfOpen, error) {
	pr.mu.Lock()
	defer pr.unlock()
	o := pr.half
	if o == nil || o.id != h.link || o.hello.instance != h.instance || o.hello.attempt != h.attempt || !o.expires.Stop() {
		return nil, &RefusedError{"hello", "a data connection without its control connection"}
	}
	pr.half = nil
	return o, nil
}
