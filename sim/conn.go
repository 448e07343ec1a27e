package sim

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/trivium-ml/trivium/draw"
)

// conn is one end of a simulated connection: a net.Conn that can also close its writing half.
type conn struct {
	in, out       *pipe
	local, remote address
}

// pipe is one direction of a connection: bytes under way, each with the time of its arrival. The network's lock guards it.
type pipe struct {
	n     *Network
	link  *link
	key   uint64
	count uint64 // of chunks
	under []chunk
	size  int   // bytes under way
	free  int64 // when the wire has sent what it has
	last  int64
	err   error         // it broke: both ends get it
	fin   bool          // nothing more will be written
	shut  bool          // nobody reads any more
	wake  chan struct{} // closed and made anew when something changed

	readBy, writeBy time.Time // deadlines
}

type chunk struct {
	at   int64 // arrival, in ns since the network began
	data []byte
	fin  bool
}

const (
	window = 256 << 10 // bytes that may be under way, as in the buffers of a socket
	piece  = 16 << 10  // bytes that travel together
)

func (p *pipe) signal() {
	close(p.wake)
	p.wake = make(chan struct{})
}

// breaks ends the direction: what is under way is lost.
func (p *pipe) breaks(err error) {
	if p.err == nil {
		p.err = err
		p.under, p.size = nil, 0
		p.signal()
		delete(p.n.conns, p)
	}
}

// wait gives the lock back until something changes, or until then (0: never), and takes it again.
func (p *pipe) wait(until int64, deadline time.Time) {
	n := p.n
	wake := p.wake
	var at time.Time
	if until > 0 {
		at = n.begun.Add(time.Duration(until))
	}
	if !deadline.IsZero() && (at.IsZero() || deadline.Before(at)) {
		at = deadline
	}
	n.mu.Unlock()
	if at.IsZero() {
		<-wake
	} else {
		t := time.NewTimer(time.Until(at))
		select {
		case <-wake:
		case <-t.C:
		}
		t.Stop()
	}
	n.mu.Lock()
}

func past(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// Read reads what has arrived.
func (c *conn) Read(b []byte) (int, error) {
	p := c.in
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	for {
		switch {
		case p.shut:
			return 0, net.ErrClosed
		case p.err != nil:
			return 0, p.err
		case past(p.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		until := int64(0)
		if len(p.under) > 0 && !p.link.blocked && !p.link.clogged {
			first := &p.under[0]
			if first.at <= int64(time.Since(p.n.begun)) {
				if first.fin {
					return 0, io.EOF
				}
				return p.take(b), nil
			}
			until = first.at
		}
		p.wait(until, p.readBy)
	}
}

// take copies of what has arrived, as far as it goes.
func (p *pipe) take(b []byte) (n int) {
	if s := p.link.slice; s > 0 && s < len(b) {
		b = b[:s]
	}
	now := int64(time.Since(p.n.begun))
	for len(p.under) > 0 && n < len(b) && p.under[0].at <= now && !p.under[0].fin {
		first := &p.under[0]
		k := copy(b[n:], first.data)
		n += k
		if first.data = first.data[k:]; len(first.data) == 0 {
			p.under = p.under[1:]
		}
	}
	p.size -= n
	p.signal()
	return n
}

// Write puts b on its way, and blocks while too much is.
func (c *conn) Write(b []byte) (n int, err error) {
	p := c.out
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	for {
		switch {
		case p.fin:
			return n, net.ErrClosed
		case p.err != nil:
			return n, p.err
		case p.shut:
			return n, errBroken
		case past(p.writeBy):
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		}
		if room := window - p.size; room > 0 {
			k := min(len(b), room, piece)
			if err := p.put(b[:k]); err != nil {
				return n, err
			}
			n, b = n+k, b[k:]
			continue
		}
		p.wait(0, p.writeBy)
	}
}

// put sends one piece. A lost one breaks the connection, as does one that is corrupted and found out: half of them arrive with a byte
// changed, for the reader's checksums to find.
func (p *pipe) put(b []byte) error {
	p.count++
	bits := func(purpose uint64) uint64 { return draw.Mix(p.key + draw.Weyl*(p.count*purposes+purpose)) }
	l := p.link
	now := int64(time.Since(p.n.begun))
	at := now
	if l.nanosPerByte > 0 {
		p.free = max(p.free, now) + scaled(int64(len(b)), l.nanosPerByte, one)
		at = p.free
	}
	at = max(at+l.delay+upTo(bits(drawJitter), l.jitter), p.last)
	p.last = at
	data := append([]byte(nil), b...)
	switch {
	case chance(bits(drawLoss), l.loss):
		p.breaks(errReset)
		return errReset
	case chance(bits(drawCorrupt), l.corrupt):
		data[bits(drawLate)%uint64(len(data))] ^= 1 << (bits(drawEnd) % 8)
	}
	p.under = append(p.under, chunk{at: at, data: data})
	p.size += len(b)
	p.signal()
	return nil
}

// CloseWrite tells the reader that no more comes.
func (c *conn) CloseWrite() error {
	p := c.out
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.finish()
	return nil
}

func (p *pipe) finish() {
	if p.fin || p.err != nil {
		return
	}
	p.fin = true
	at := max(int64(time.Since(p.n.begun))+p.link.delay, p.last)
	p.under = append(p.under, chunk{at: at, fin: true})
	p.signal()
}

// Close ends both directions: what was written still arrives.
func (c *conn) Close() error {
	n := c.in.n
	n.mu.Lock()
	defer n.mu.Unlock()
	c.out.finish()
	if !c.in.shut {
		c.in.shut = true
		c.in.under, c.in.size = nil, 0
		c.in.signal()
		delete(n.conns, c.in)
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline ends reads at t.
func (c *conn) SetReadDeadline(t time.Time) error {
	p := c.in
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if p.shut {
		return net.ErrClosed
	}
	p.readBy = t
	p.signal()
	return nil
}

// SetWriteDeadline ends writes at t.
func (c *conn) SetWriteDeadline(t time.Time) error {
	p := c.out
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if p.fin {
		return net.ErrClosed
	}
	p.writeBy = t
	p.signal()
	return nil
}

var errBroken = errors.New("sim: the peer has closed the connection")
