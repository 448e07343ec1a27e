package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

// A half is one of a link's two connections. Its fields are guarded by peer.mu, except those of the batch that is being written, which
// belong to whoever set busy: the writer's goroutine, or a Send that found nobody writing.
type half struct {
	link  *link
	ctl   bool
	nc    net.Conn // with TLS, where there is
	hard  net.Conn // beneath TLS: Close of this one never blocks
	try   *direct  // nil: writes may block
	sum   bool
	apart bool // see together
	r     *reader

	cond    sync.Cond // the writer's goroutine waits for work
	queue   [3]frameQueue
	busy    bool
	clogged bool  // noted in the port
	first   bool  // the last step of the handshake is still to be written, before all else
	broken  error // of a write by a Send
	closing bool  // write what waits, say goodbye, end
	bye     bool  // the other end said goodbye
	ended   bool  // and then nothing

	// The batch.
	flight []*outgoing
	small  []byte      // headers, and small frames whole
	rest   net.Buffers // not yet written; a part of store
	store  net.Buffers
	part   net.Buffers // of rest, in one call
	size   int         // bytes of the batch
	wrote  int         // of them
	record []byte
}

// The order of the queues.
var queueOf = [...]int{Urgent: 0, Data: 1, Bulk: 2, Control: 0}

const (
	batchFrames = 64
	batchBytes  = 64 << 10 // frames beyond go alone, so that none waits long for a batch that began before it; small ones go with any
	copyBytes   = 2 << 10  // a frame up to this is copied: cheaper than its three entries in a vector
	sharedFrom  = 32 << 10 // payloads from this on travel in shared memory, where there is
)

// kick has what waits written: by the caller, as far as that takes no waiting, and else by the writer's goroutine. peer.mu is held, and
// given up meanwhile.
func (h *half) kick() {
	l, pr := h.link, h.link.peer
	if !l.up || h.busy || l.dead.Load() {
		return
	}
	if h.try == nil || h.first || len(h.rest) > 0 || h.closing || h.broken != nil {
		h.cond.Signal()
		return
	}
	if !h.gather() {
		return
	}
	h.busy = true
	pr.unlock()
	if !h.ctl {
		pr.port.pulse.keep(pr.port)
	}
	h.fill()
	n, err := h.try.write(h.rest)
	h.consume(n)
	pr.mu.Lock()
	h.settle(n, err)
	h.busy = false
	h.clog(len(h.rest) > 0)
	switch {
	case err != nil:
		h.broken = err // the writer's goroutine ends the link
		h.cond.Signal()
	case len(h.rest) > 0 || h.waiting() || h.closing || l.dead.Load():
		h.cond.Signal()
	}
}

// clog notes whether the writer's goroutine has something that the connection does not take at once. peer.mu is held.
func (h *half) clog(is bool) {
	if h.clogged != is {
		h.clogged = is
		by := int32(-1)
		if is {
			by = 1
		}
		h.link.peer.port.clogged.Add(by)
	}
}

// waiting reports whether something waits to be written.
func (h *half) waiting() bool {
	return h.queue[0].first != nil || h.queue[1].first != nil || h.queue[2].first != nil || h.ctl && len(h.link.dirty) > 0
}

// gather begins a batch.
func (h *half) gather() bool {
	h.small, h.store, h.size, h.wrote = h.small[:0], h.store[:0], 0, 0
	if h.ctl && len(h.link.dirty) > 0 {
		h.small = h.link.appendGrants(h.small)
	}
	if h.first {
		h.first = false
		h.small = appendFrame(h.small, kindAccept, nil)
	}
	n := 0
	for i := range h.queue {
		q := &h.queue[i]
		for o := q.first; o != nil && len(h.flight) < batchFrames; o = q.first {
			if n += o.n; len(h.flight) > 0 && n > batchBytes && o.n > copyBytes {
				return true
			}
			q.remove(o)
			o.state = sendInFlight
			h.flight = append(h.flight, o)
		}
	}
	return len(h.flight) > 0 || len(h.small) > 0
}

// fill lays the batch out in h.rest.
func (h *half) fill() {
	from := 0
	h.size = len(h.small)
	flush := func() {
		if len(h.small) > from {
			h.store = append(h.store, h.small[from:])
			from = len(h.small)
		}
	}
	payloads := uint64(0)
	for _, o := range h.flight {
		o.start = h.size
		payload := o.payload
		payloads += uint64(len(payload))
		if h.link.shared != nil && !h.ctl && len(payload) >= sharedFrom {
			if ref, ok := h.link.shared.place(payload); ok {
				o.h.Flags |= wire.Shared
				binary.LittleEndian.PutUint64(o.ref[:], ref)
				payload = o.ref[:]
			}
		}
		if h.sum {
			o.h.Flags |= wire.Summed
			if !o.summed {
				o.h.Sum = wire.Sum(o.head, payload)
			}
		}
		o.h.Put(&o.hdr)
		h.small = append(h.small, o.hdr[:]...)
		if len(o.head)+len(payload) <= copyBytes {
			h.small = append(append(h.small, o.head...), payload...)
		} else {
			if len(o.head) > copyBytes {
				flush()
				h.store = append(h.store, o.head)
			} else {
				h.small = append(h.small, o.head...)
				flush()
			}
			if len(payload) > 0 {
				h.store = append(h.store, payload)
			}
		}
		h.size += wire.HeaderLen + len(o.head) + len(payload)
		o.end = h.size
	}
	flush()
	h.rest = h.store
	// Counted before they are written: the other end may have them before this goroutine runs again.
	p := h.link.peer.port
	p.framesSent.Add(uint64(len(h.flight)))
	p.payloadSent.Add(payloads)
	p.bytesSent.Add(uint64(h.size))
}

// consume drops the first n bytes of h.rest.
func (h *half) consume(n int) {
	for n > 0 && len(h.rest) > 0 {
		if n < len(h.rest[0]) {
			h.rest[0] = h.rest[0][n:]
			return
		}
		n -= len(h.rest[0])
		h.rest[0] = nil
		h.rest = h.rest[1:]
	}
}

// settle ends the frames of the batch that are written, after n bytes more, or all, with err.
func (h *half) settle(n int, err error) {
	h.wrote += n
	keep := h.flight[:0]
	for _, o := range h.flight {
		switch {
		case o.end <= h.wrote:
			h.link.peer.over(o, nil)
		case err != nil:
			h.link.peer.over(o, fmt.Errorf("%w: %w", ErrLinkLost, err))
		default:
			keep = append(keep, o)
		}
	}
	for i := len(keep); i < len(h.flight); i++ {
		h.flight[i] = nil
	}
	h.flight = keep
	if err != nil {
		clear(h.rest)
		h.rest = nil
	}
}

// run is the writer's goroutine.
func (h *half) run() {
	l, pr := h.link, h.link.peer
	pr.mu.Lock()
	defer pr.unlock()
	for {
		for h.idle() {
			if pr.finished.first != nil {
				pr.unlock()
				pr.mu.Lock()
				continue
			}
			h.cond.Wait()
		}
		if l.dead.Load() {
			for h.busy {
				h.cond.Wait()
			}
			h.clog(false)
			h.settle(0, errLinkDead)
			return
		}
		if err := h.broken; err != nil {
			h.broken = nil
			pr.unlock()
			l.fail(err)
			pr.mu.Lock()
			continue
		}
		fresh := len(h.rest) == 0
		if fresh && !h.gather() {
			pr.unlock()
			h.farewell()
			pr.mu.Lock()
			return
		}
		h.busy = true
		h.clog(true)
		pr.unlock()
		if fresh {
			h.fill()
		}
		n, err := h.write()
		stopped := errors.Is(err, os.ErrDeadlineExceeded)
		if stopped {
			err = h.nc.SetWriteDeadline(time.Time{})
		}
		pr.mu.Lock()
		h.settle(n, err)
		if stopped && err == nil {
			h.copyAbandoned()
		}
		h.busy = false
		h.clog(len(h.rest) > 0)
		if err != nil {
			pr.unlock()
			l.fail(err)
			pr.mu.Lock()
		}
	}
}

var errLinkDead = errors.New("it is closed")

// idle reports whether the writer's goroutine has nothing to do.
func (h *half) idle() bool {
	if h.link.dead.Load() || h.broken != nil {
		return false
	}
	return h.busy || len(h.rest) == 0 && !h.first && !h.waiting() && !h.closing
}

// write writes the batch, waiting as long as it takes.
func (h *half) write() (int, error) {
	if h.nc == h.hard {
		if !h.apart {
			n, err := h.rest.WriteTo(h.nc)
			return int(n), err
		}
		total := 0
		for len(h.rest) > 0 {
			k := together(h.rest)
			h.part = h.rest[:k]
			n, err := h.part.WriteTo(h.nc)
			total += int(n)
			h.rest = h.rest[k-len(h.part):]
			if err != nil {
				return total, err
			}
		}
		return total, nil
	}
	// Each Write of TLS is a record at least: what is small goes with what follows.
	total := 0
	for len(h.rest) > 0 {
		h.record = h.record[:0]
		for len(h.rest) > 0 && len(h.record) < tlsRecord {
			n := min(len(h.rest[0]), tlsRecord-len(h.record))
			if len(h.record) == 0 && n == tlsRecord {
				break
			}
			h.record = append(h.record, h.rest[0][:n]...)
			h.consume(n)
		}
		p := h.record
		if len(p) == 0 {
			p = h.rest[0]
			if whole := len(p) / tlsRecord * tlsRecord; whole < len(p) {
				p = p[:whole]
			}
			h.consume(len(p))
		}
		n, err := h.nc.Write(p)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// together says how many buffers are written in one call. The kernel copies what goes over a unix socket in blocks that begin where a call
// does: a large payload has blocks of its own, or the header before it puts both copies of it out of step with the cache's lines. That cost
// a fifth of the rate.
func together(bufs net.Buffers) int {
	for i, b := range bufs {
		if len(b) >= sharedFrom {
			return max(i, 1)
		}
	}
	return len(bufs)
}

func isUnix(nc net.Conn) bool {
	_, ok := nc.(*net.UnixConn)
	return ok
}

const tlsRecord = 16 << 10 // the most that one record of TLS holds

// copyAbandoned lets the Sends go whose context ended while their frame was being written: a half frame cannot be taken back.
func (h *half) copyAbandoned() {
	for _, o := range h.flight {
		if !o.abandoned || o.copied {
			continue
		}
		at := h.wrote
		for i, b := range h.rest {
			if at >= o.start && at < o.end {
				h.rest[i] = append([]byte(nil), b...)
			}
			at += len(b)
		}
		o.copied = true
		o.answer(nil)
	}
}

// writes reports whether a frame of s is being written that a Send waits for, which gives it up. peer.mu is held.
func (h *half) writes(s *stream) bool {
	any := false
	for _, o := range h.flight {
		if o.stream == s && o.waiter != nil {
			o.abandoned, any = true, true
		}
	}
	return any
}

// stop ends the write that Sends of s wait for, which was closed: see await.
func (h *half) stop(s *stream) {
	if h.nc == h.hard {
		_ = h.nc.SetWriteDeadline(longAgo) // fails where the connection is closed: then the writer ends too
		return
	}
	time.AfterFunc(tlsGrace, func() {
		pr := h.link.peer
		pr.mu.Lock()
		stuck := h.writes(s) && !pr.shutting // else Linger is its limit
		pr.unlock()
		if stuck {
			h.link.fail(fmt.Errorf("transport: %v takes no bytes: %w", pr.name, ErrClosed))
		}
	})
}

// tlsGrace is how long a peer has to take a frame that was given up: a write of TLS cannot be taken up again, so then the link breaks.
const tlsGrace = time.Second

// farewell ends this direction of the connection.
func (h *half) farewell() {
	var b [wire.HeaderLen]byte
	bye := wire.Header{Kind: kindBye, Flags: wire.Internal}
	bye.Put(&b)
	n, err := h.nc.Write(b[:])
	for errors.Is(err, os.ErrDeadlineExceeded) && h.nc == h.hard { // of a Send that gave up when its frame was just through: see await
		if err = h.nc.SetWriteDeadline(time.Time{}); err == nil {
			var more int
			more, err = h.nc.Write(b[n:])
			n += more
		}
	}
	if err == nil {
		if c, ok := h.nc.(interface{ CloseWrite() error }); ok {
			err = c.CloseWrite()
		}
		if err == nil {
			return // the other end closes, then the reader ends
		}
	}
	h.link.fail(errLinkDead)
}
