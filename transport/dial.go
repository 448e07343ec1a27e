package transport

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// The dialler's side of a handshake: see hello.

// hello is what the next dial says. It is made where the link is found to be missing, under the same hold of peer.mu: with the number of one
// that came up since, the dial would tell the other end that it is lost.
func (pr *peer) hello() *hello {
	p := pr.port
	pr.attempt++
	return &hello{name: p.self, target: pr.name, instance: p.instance, attempt: pr.attempt, last: pr.last, addr: p.carrier.addr}
}

// dial makes a link to the peer.
func (p *port) dial(ctx context.Context, pr *peer, addr string, h *hello) error {
	var conns [2][2]net.Conn
	var release [2]func() bool // from ctx, which cuts a connection off; false: it has
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
		release[role] = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(longAgo) })
		defer release[role]()
		if err := p.introduce(ctx, h, role, &conns[role]); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("transport: %v at %s: %w", pr.name, addr, err)
		}
		if role == control {
			continue
		}
		shared := p.share(conns[data][1], pr)
		_, err = readStep(conns[data][0], kindAccept, h.target)
		if !release[control]() || !release[data]() { // before the link is made: ctx may end at any time
			err = ctx.Err()
		}
		if err != nil {
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

// share agrees on shared memory, where both ends have some.
func (p *port) share(nc net.Conn, pr *peer) sharedPath {
	c, ok := nc.(*net.UnixConn)
	if !ok {
		return nil
	}
	shared, err := openShared(c, p.carrier.shared)
	if err != nil && !ended(err) && !errors.Is(err, net.ErrClosed) { // then the next step of the handshake says so
		p.o.Log.Warn("transport: no shared memory", "peer", pr.name.String(), "err", err.Error())
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
	if p.carrier.admit != nil {
		if err := p.carrier.admit(conn[1]); err != nil {
			return &RefusedError{"user", err.Error()}
		}
	}
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
