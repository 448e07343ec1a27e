package transport

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
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

// The acceptor's side of a handshake: see hello. A stranger costs little here, and is told why he is refused.

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

// pend counts nc among those who have not said who they are. Where these are too many it waits for one to go: so peers that all come at once
// wait in the system's queue. In the end the oldest makes room, so that those who say nothing keep nobody out for long.
func (p *port) pend(nc net.Conn) bool {
	for {
		ok, closed := p.enter(nc)
		if ok || closed {
			return ok
		}
		time.Sleep(crowdTick)
	}
}

// enter is pend, if that takes no waiting. closed: the port takes no more.
func (p *port) enter(nc net.Conn) (ok, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, true
	}
	if len(p.strangers) >= maxStrangers {
		var oldest net.Conn
		for c, at := range p.strangers {
			if oldest == nil || at.Before(p.strangers[oldest]) {
				oldest = c
			}
		}
		if time.Since(p.strangers[oldest]) < strangerLeast {
			return false, false
		}
		delete(p.strangers, oldest)
		_ = oldest.Close() // a stranger's
		p.count("crowded")
	}
	p.pending[nc] = struct{}{}
	p.strangers[nc] = time.Now()
	return true, false
}

// recognised notes that nc has said who it is: it makes room for nobody any more. It returns false where it has made room already.
func (p *port) recognised(nc net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.strangers[nc]
	delete(p.strangers, nc)
	return ok
}

// greet is the acceptor's part of the handshake.
func (p *port) greet(nc net.Conn) {
	kept := false
	defer func() {
		p.mu.Lock()
		delete(p.pending, nc)
		delete(p.strangers, nc)
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
	if !p.recognised(conn[1]) {
		return h, net.ErrClosed
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
		shared := p.share(conn[1], pr)
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
		for _, o := range older {
			pr.backlog = o.backlog
		}
	}
	for _, o := range older {
		delete(p.peers, o.name)
	}
	pr.mu.Lock()
	defer pr.unlock()
	return pr, pr.judge(h)
}

// evict forgets a peer that nobody asked for, and that went away, or came and made no link. port.mu is held.
func (p *port) evict() bool {
	for n, pr := range p.peers {
		pr.mu.Lock()
		away := pr.lost || !pr.link.up && time.Since(pr.made) >= p.o.Handshake
		away = away && !pr.known && pr.half == nil
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
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, s := range p.streams {
		if s.name == "" {
			s.outdate(pr.name)
		}
	}
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
