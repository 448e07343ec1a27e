package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/trivium-ml/trivium/wire"
)

const (
	readBuffer = 32 << 10  // bytes that one read may take: small frames come many at a time
	sumBytes   = 512 << 10 // of a payload that are read before they are summed, still in the cache; each read wakes the sender
)

// A reader reads the frames of one connection.
type reader struct {
	h        *half
	p        *port
	pr       *peer
	buf      []byte
	from, to int // what buf holds
	hdr      wire.Header
	parsed   bool    // hdr is that of the frame that comes next
	large    bool    // the frame before was, over a unix socket: its header is read alone, see together
	last     *stream // of the frame before
	scratch  []byte
	sum      uint32
	streak   int  // small frames for last, one after the other
	offered  bool // the connection was offered to a Recv
	loan     loan
	glances  glancer
	ready    readiness
}

func newReader(h *half) *reader {
	pr := h.link.peer
	return &reader{h: h, pr: pr, p: pr.port, buf: make([]byte, readBuffer), loan: loan{resume: make(chan struct{}, 1)}}
}

// read is the goroutine of one connection's frames.
func (h *half) read() {
	r := h.r
	for {
		err := r.frames()
		if err != nil {
			r.finish(err)
			return
		}
		<-r.loan.resume
		if r.loan.over {
			return
		}
	}
}

// finish ends the link, or this half of it.
func (r *reader) finish(err error) {
	l := r.h.link
	if bad := (*wire.FrameError)(nil); errors.As(err, &bad) {
		r.p.count(bad.Cause)
		r.p.o.Log.Warn("transport: connection closed", "peer", r.pr.name.String(), "cause", bad.Cause, "err", err.Error())
		l.say(bad.Cause, bad.Text)
	}
	switch {
	case err != errRead && !ended(err): // it broke
	case l.ended(r.h):
		return // it said goodbye, or is gone; the other half is still to be read
	case err != errRead && r.h.try != nil: // it went without a word
		if l.bereave(err); l.ended(r.h) {
			return
		}
	}
	l.fail(err)
}

// frames reads frames until an error, or until the connection is lent to a Recv.
func (r *reader) frames() error {
	for {
		if err := r.step(); err != nil {
			return err
		}
		if r.offered {
			r.offered = false
			if r.offer(r.last) {
				return nil
			}
		}
	}
}

// step reads one frame.
func (r *reader) step() error {
	b, err := r.need(wire.HeaderLen)
	if err != nil {
		return err
	}
	if !r.parsed {
		if err := r.hdr.Parse((*[wire.HeaderLen]byte)(b)); err != nil {
			return err
		}
	}
	r.parsed = false
	if r.hdr.Flags&wire.Internal != 0 {
		return r.internal()
	}
	return r.frame()
}

// fill reads what there is, at least one byte.
func (r *reader) fill(dst []byte) (int, error) {
	for {
		gone := r.h.link.gone.Load()
		var n int
		var err error
		if gone {
			n, err = r.rest(dst)
		} else if n = r.glance(dst); n == 0 {
			if r.h.try != nil && r.p.pulse.beats() {
				n, err = r.h.try.wait(dst)
			} else {
				n, err = r.h.nc.Read(dst)
			}
		}
		if n > 0 {
			r.p.bytesReceived.Add(uint64(n))
			r.pr.heard.Store(int64(time.Since(r.p.opened)) + 1) // one clock, of the two that time.Now reads
			return n, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !r.h.link.dead.Load() {
			if err := r.h.nc.SetReadDeadline(time.Time{}); err != nil {
				return 0, err
			}
			if gone || r.h.link.gone.Load() {
				continue
			}
			return 0, nil // interrupted
		}
		if err != nil {
			return 0, err
		}
	}
}

// errRead: all that came from who is gone has been read.
var errRead = errors.New("it has been read to the end")

// rest reads what has come from who is gone; there is errRead at the end.
func (r *reader) rest(dst []byte) (int, error) {
	if r.h.try == nil {
		return 0, errRead
	}
	return r.h.try.read(dst)
}

// need returns the next n bytes, at most readBuffer.
func (r *reader) need(n int) ([]byte, error) {
	if r.to-r.from < n {
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
		room := r.buf
		if r.large && r.to == 0 {
			room = room[:n]
		}
		for r.to < n {
			m, err := r.fill(room[r.to:])
			if err != nil {
				if err == io.EOF && r.to > 0 {
					err = io.ErrUnexpectedEOF
				}
				return nil, err
			}
			r.to += m
		}
	}
	b := r.buf[r.from : r.from+n]
	r.from += n
	return b, nil
}

// into reads len(dst) bytes, and with sum adds their checksum to *sum. It ends early where po was dropped meanwhile, and returns how much
// is still to come.
func (r *reader) into(dst []byte, s *stream, po *post, sum *uint32) (int, error) {
	for len(dst) > 0 {
		n := copy(dst, r.buf[r.from:r.to])
		r.from += n
		if n == 0 {
			part := dst
			if sum != nil {
				part = dst[:min(len(dst), sumBytes)]
			}
			var err error
			if n, err = r.fill(part); err != nil {
				return 0, err
			}
			if n == 0 && po != nil && s.unwanted(po) {
				return len(dst), nil
			}
		}
		if sum != nil {
			*sum = wire.UpdateSum(*sum, dst[:n])
		}
		dst = dst[n:]
	}
	return 0, nil
}

// discard reads n bytes to nowhere.
func (r *reader) discard(n int) error {
	skip := min(n, r.to-r.from)
	r.from += skip
	for n -= skip; n > 0; {
		if r.scratch == nil {
			r.scratch = make([]byte, readBuffer)
		}
		m, err := r.fill(r.scratch[:min(n, len(r.scratch))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// frame reads the rest of a carrier's frame.
func (r *reader) frame() error {
	h := &r.hdr
	s, n := r.last, int(h.Length)
	which := data
	if r.h.ctl {
		which = control
	}
	if s == nil || s.id != h.Stream || s.ended.Load() {
		if s = r.p.stub(h.Stream); s == nil {
			return r.turnAway(which, n)
		}
		r.last, r.streak = s, 0
	}
	if r.streak++; n > lendFrame {
		r.streak = 0
	}
	po, want, err := s.begin(r.pr.name, h, r.h)
	if err != nil {
		return err
	}
	fl, missing, err := r.arrived(which, n)
	if err != nil || missing {
		if po != nil {
			s.failed(postKey{r.pr.name, Key{h.Epoch, h.Op, h.Chunk}}, po)
		}
		if err == nil {
			err = r.skip(int(h.Head), n-int(h.Head))
		}
		return err
	}

	head, payload := int(h.Head), n-int(h.Head)
	r.large = r.h.apart && payload >= sharedFrom && h.Flags&wire.Shared == 0
	a := arrival{ev: Event{
		From: r.pr.name, Kind: h.Kind, Priority: priorityOf(h), Fingerprint: h.Fingerprint,
		Key: Key{h.Epoch, h.Op, h.Chunk},
	}}
	held, shared := n, h.Flags&wire.Shared != 0 // bytes of the pool
	switch {
	case !want:
		held = 0
	case shared:
		held = head + refBytes
	case po != nil:
		held = head
	}
	d := r.p.newDelivery(held)
	d.flow, d.side, d.n = fl, which, n
	a.d, a.post = d, po
	landed := false
	defer func() {
		if !landed {
			if po != nil {
				s.failed(postKey{a.ev.From, a.ev.Key}, po)
			}
			d.free()
		}
	}()
	if (a.ev.Priority == Control) != r.h.ctl {
		return &wire.FrameError{Cause: "priority", Text: fmt.Sprintf("priority %d on the wrong connection", a.ev.Priority)}
	}
	if !want {
		r.p.stale.Add(1)
		return r.skip(head, payload)
	}
	if shared && r.h.link.shared == nil {
		return errNotShared
	}
	var sum *uint32
	if h.Flags&wire.Summed != 0 {
		r.sum = 0
		sum = &r.sum
	}
	rest, err := r.into(d.buf, s, po, sum)
	if po != nil && !shared && err == nil {
		if rest > 0 {
			rest += payload
		} else {
			rest, err = r.into(po.dst, s, po, sum)
		}
	}
	if err != nil {
		return err
	}
	if rest > 0 { // no longer wanted: who waits for that is not to wait for the sender
		r.p.stale.Add(1)
		s.failed(postKey{a.ev.From, a.ev.Key}, po)
		po = nil
		if !shared {
			return r.discard(rest)
		}
		if _, err := r.into(d.buf[held-rest:], nil, nil, nil); err != nil {
			return err
		}
		r.unread(d.buf[head:], payload)
		return nil
	}
	switch {
	case shared:
		if err := r.shared(&a, head, payload); err != nil {
			return err
		}
	case po != nil:
		a.ev.Head, a.ev.Payload, a.ev.Posted = d.buf, po.dst, true
	default:
		a.ev.Head, a.ev.Payload = d.buf[:head:head], d.buf[head:]
	}
	if sum != nil && *sum != h.Sum {
		return &wire.FrameError{Cause: "checksum", Text: fmt.Sprintf("of %d bytes on stream %q: want %#08x, found %#08x", n, s.name, h.Sum, *sum)}
	}
	r.p.framesReceived.Add(1)
	r.p.payloadReceived.Add(uint64(payload))
	if !r.h.ctl {
		r.p.pulse.keep(r.p)
	}
	landed = true
	if a.ev.Posted {
		d.n = -1 // its bytes are no longer the port's to hold
		defer fl.giveBack(which, n)
	}
	ok, woke := s.deliver(&a, r)
	if !ok && !(s.ended.Load() && r.redeliver(&a)) {
		d.free()
	}
	r.offered = woke && r.streak >= lendAfter && r.from == r.to
	return nil
}

// arrived charges a frame that begins to come to its flow. missing: one before it was turned away.
func (r *reader) arrived(which, n int) (fl *flow, missing bool, err error) {
	id, l := r.hdr.Stream, r.h.link
	r.pr.mu.Lock()
	defer r.pr.unlock()
	if l.dead.Load() {
		return nil, false, errLinkDead
	}
	if l.flows[id] == nil && len(l.flows) >= maxFlows {
		return nil, false, &wire.FrameError{Cause: "stream", Text: fmt.Sprintf("more than %d streams", maxFlows)}
	}
	fl = l.flow(id)
	if err := fl.arrived(which, n); err != nil {
		return nil, false, err
	}
	if fl.missing {
		fl.turnAway(which, n)
	}
	return fl, fl.missing, nil
}

// turnAway drops a frame for a stream that nobody opened, where too many such have frames. Others use the link: so it stays. What was
// charged is not granted again, and then its sender waits, as for any stream that is not open; and all that follow it are dropped too, so
// that none comes where one before it is missing. Who opens the stream ends the link: see peer.announce.
func (r *reader) turnAway(which, n int) error {
	h := &r.hdr
	fl, missing, err := r.arrived(which, n)
	if err != nil {
		return err
	}
	if !missing {
		r.pr.mu.Lock()
		first := !fl.missing // else it was the other connection's reader
		fl.missing = true
		fl.turnAway(which, n)
		r.pr.unlock()
		if r.p.isOpen(h.Stream) { // meanwhile: whether or not it has seen that something is missing
			return missed(fmt.Sprintf("%#x", h.Stream))
		}
		if first {
			r.p.count("stream")
			r.p.o.Log.Warn("transport: frames are dropped", "peer", r.pr.name.String(), "cause", "stream",
				"err", fmt.Sprintf("stream %#x: %d streams that are not open here have frames already", h.Stream, maxUnopened))
		}
	}
	return r.skip(int(h.Head), n-int(h.Head))
}

// missed says why the link ends when a stream is opened of which frames were turned away.
func missed(stream string) *wire.FrameError {
	const why = "stream %s: frames that came before it was opened were dropped: too many streams were not open"
	return &wire.FrameError{Cause: "stream", Text: fmt.Sprintf(why, stream)}
}

// redeliver offers a frame whose stream was closed while it came to the one that is open under that name now, or will be.
func (r *reader) redeliver(a *arrival) bool {
	if a.ev.Posted {
		return false
	}
	s := r.p.stub(r.hdr.Stream)
	r.last, r.streak = s, 0
	if s == nil {
		return false
	}
	ok, _ := s.deliver(a, r)
	return ok
}

// skip reads a frame that is not wanted.
func (r *reader) skip(head, payload int) error {
	if r.hdr.Flags&wire.Shared == 0 {
		return r.discard(head + payload)
	}
	if r.h.link.shared == nil {
		return errNotShared
	}
	if err := r.discard(head); err != nil {
		return err
	}
	ref, err := r.need(refBytes)
	if err == nil {
		r.unread(ref, payload)
	}
	return err
}

// unread gives back n bytes of shared memory whose place was read. Of what lies nowhere, or is in use by a frame of before, nothing is.
func (r *reader) unread(ref []byte, n int) {
	shared, at := r.h.link.shared, binary.LittleEndian.Uint64(ref)
	if _, err := shared.view(at, n); err == nil {
		shared.free(at, n)
	}
}

// refBytes say where a payload lies in shared memory.
const refBytes = 8

var errNotShared = &wire.FrameError{Cause: "flags", Text: "a payload in shared memory, of which there is none"}

// shared takes a payload from shared memory, whose place was read after the head: into the posted slice, or where it lies.
func (r *reader) shared(a *arrival, head, payload int) error {
	d, l := a.d, r.h.link
	ref := binary.LittleEndian.Uint64(d.buf[head:])
	view, err := l.shared.view(ref, payload)
	if err != nil {
		return &wire.FrameError{Cause: "shared", Text: err.Error()}
	}
	a.ev.Head = d.buf[:head:head]
	if a.post != nil {
		copy(a.post.dst, view)
		l.shared.free(ref, payload)
		a.ev.Payload, a.ev.Posted = a.post.dst, true
		return nil
	}
	l.sharedRefs.Add(1)
	d.view, d.ref = view, ref
	a.ev.Payload = view
	return nil
}

// interrupt makes a read that waits return, so that the reader looks whether what it reads is still wanted.
func (h *half) interrupt() { _ = h.nc.SetReadDeadline(longAgo) } // fails where the connection is closed: then the read ends too
