package collective

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// run does all that is ready.
func (c *core) run(o *operation) {
	for k := 0; k < len(o.ready); { // it grows on the way
		c.do(o, o.ready[k])
		k++
		if o.err != nil {
			return
		}
	}
	o.ready = o.ready[:0]
	if o.todo == 0 && !o.finish {
		c.end(o, nil)
	}
}

func (c *core) do(o *operation, i int32) {
	t := &o.plan.Tasks[i]
	switch t.Do {
	case DoSend:
		if len(t.next) > 0 { // something is to be written there
			o.left[i] = taskSending
			c.send(o, t, o.span(t.To))
			out := &c.out[len(c.out)-1]
			out.op, out.task = o, i
			return
		}
		c.send(o, t, o.span(t.To))
	case DoSendCoded:
		c.send(o, t, o.coded[t.To.From])
	case DoRing:
		c.send(o, t, o.cards[c.self*cardBytes:][:cardBytes])
	case DoRingAll:
		c.send(o, t, o.cards)
	case DoRecv, DoRecvCoded, DoHear, DoHearAll:
		c.arm(o, i, t)
		return
	case DoCombine:
		var from [16][]byte
		list := from[:0]
		for _, s := range t.From {
			list = append(list, o.span(s))
		}
		combine(o.dtype, o.Reduce, o.span(t.To), list...)
	case DoCopy:
		if dst, src := o.span(t.To), o.span(t.From[0]); t.To.Buf >= numBufs {
			kernel.HandOver(dst, src)
		} else {
			copy(dst, src) // a long result goes around the cache, which has the others' sums
		}
	case DoFinish:
		o.finishPart(c.size(), o.span(t.To))
	case DoEncode, DoSumCoded, DoEncodeSum, DoDecodeInto:
		if rank, err := c.code(o, t); err != nil {
			c.trigger(o.tag, fault{cause: Refused, rank: rank, op: o.title(), phase: t.Phase.String(), evidence: err.Error()})
			return
		}
	}
	o.complete(i)
}

func (o *operation) span(s Span) []byte {
	es := o.dtype.Size()
	if s.Buf < numBufs {
		return o.mem[s.Buf][s.From*es : s.To*es]
	}
	m, at := o.remote[s.Buf-numBufs], s.From
	if len(m) < len(o.src.Bytes) {
		at %= o.plan.Ring // whole blocks, and s is within one
	}
	return m[at*es : (at+s.Len())*es]
}

// complete makes ready what waited for task i alone.
func (o *operation) complete(i int32) {
	o.left[i] = taskDone
	o.todo--
	for _, n := range o.plan.Tasks[i].next {
		if o.left[n]--; o.left[n] == 0 {
			o.ready = append(o.ready, n)
		}
	}
}

func (c *core) send(o *operation, t *Task, payload []byte) {
	c.went[t.Peer]++
	c.out = append(c.out, outFrame{to: t.Peer, f: transport.Frame{
		Kind: kindData, Priority: o.Priority.transport(), Fingerprint: o.printFor(t.Peer), Key: c.key(o.tag, t.Chunk), Payload: payload,
	}})
}

// sent says that the frame of a task is no longer read.
func (c *core) sent(o *operation, i int32) {
	if o.left == nil || o.err != nil || o.left[i] != taskSending {
		return
	}
	o.complete(i)
	c.run(o)
}

func (p Priority) transport() transport.Priority {
	switch p {
	case Front:
		return transport.Urgent
	case Back:
		return transport.Bulk
	}
	return transport.Data
}

func (c *core) key(tag uint32, chunk uint32) transport.Key {
	return transport.Key{Epoch: c.epoch, Op: wire.MakeOp(c.step, tag), Chunk: uint32(c.id)<<16 | chunk}
}

// noData is the chunk of frames without data. None with data has it: a frame takes away what was posted for its key, and would leave the
// operation to wait for a landing that never ends if it fails.
const noData = 0xffff

// postFrom is the size from which a frame is worth a Post: below, a copy is cheaper.
const postFrom = 8 << 10

// arm waits for t's frame, or takes it if it has come.
func (c *core) arm(o *operation, i int32, t *Task) {
	o.left[i] = taskArmed
	for k, h := range o.held {
		if h.task == i {
			o.held = slices.Delete(o.held, k, k+1)
			if !c.land(o, i, t, &h.ev) {
				c.disagree(o, t.Peer, len(h.ev.Payload))
			}
			c.free(h.ev.Payload)
			return
		}
	}
	if t.Do == DoRecv && c.post != nil {
		if dst := o.span(t.To); len(dst) >= postFrom && c.post(t.Peer, c.key(o.tag, t.Chunk), dst) {
			o.left[i] = taskPosted
		}
	}
}

// land puts a frame where it belongs, and reports whether it has the right length.
func (c *core) land(o *operation, i int32, t *Task, ev *transport.Event) bool {
	if t.Do == DoHear || t.Do == DoHearAll {
		if t.Do == DoHear && !c.hear(o, t.Peer, ev.Payload) || t.Do == DoHearAll && !c.hearAll(o, ev.Payload) {
			return false
		}
		o.complete(i)
		return true
	}
	if t.Do == DoRecvCoded {
		if len(ev.Payload) > o.plainBytes()+o.Codec.MaxLen(o.unit(c.opt.MaxFrame)) {
			return false
		}
		o.coded[t.To.From] = append(o.coded[t.To.From][:0], ev.Payload...)
		o.complete(i)
		return true
	}
	dst := o.span(t.To)
	if len(ev.Payload) != len(dst) {
		return false
	}
	if !ev.Posted {
		copy(dst, ev.Payload)
	}
	o.complete(i)
	return true
}

// code runs the tasks of a codec, and names the rank of an error: that which sent what cannot be decoded. A codec that panics is an error
// like others: the lock is held here, and all would wait for ever.
func (c *core) code(o *operation, t *Task) (rank int, err error) {
	rank = c.self
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("codec %s panicked: %v", o.Codec, r)
		}
	}()
	part := func(e *compress.Residual, s Span) *compress.Residual {
		if s.From += s.head(o.Plain); e == nil || s.Len() == 0 {
			return nil
		}
		e = e.Range(s.From-o.Plain, s.To-o.Plain)
		c.save(o, e)
		return e
	}
	encode := func(to *[]byte, s Span, e *compress.Residual) (err error) {
		*to = append((*to)[:0], o.plainOf(s)...)
		if s.From += s.head(o.Plain); s.Len() > 0 {
			*to, err = o.Codec.Encode(*to, as[float32](o.span(s)), part(e, s))
		}
		return err
	}
	switch t.Do {
	case DoEncode:
		err = encode(&o.coded[t.To.From], t.From[0], o.Residual)
	case DoSumCoded:
		sum := as[float32](o.span(t.To))
		head := t.To.head(o.Plain)
		for k, s := range t.From {
			switch {
			case s.Buf != Coded && k == 0:
				copy(sum, as[float32](o.span(s))) // they may be there
				part(o.Residual, s).Release(sum[head:])
			case s.Buf != Coded:
				combine(tensor.F32, Sum, o.span(t.To), o.span(t.To), o.span(s))
				part(o.Residual, s).Release(sum[head:])
			case k == 0:
				err = o.decode(t.To, o.coded[s.From], false)
			default:
				err = o.decode(t.To, o.coded[s.From], true)
			}
			if err != nil {
				from := o.plan.slots[s.From]
				return from, fmt.Errorf("the part of rank %d: %w", from, err)
			}
		}
	case DoEncodeSum:
		slot, s := &o.coded[t.To.From], t.From[0]
		if err = encode(slot, s, o.Owner); err == nil {
			err = o.decode(s, *slot, false)
		}
	case DoDecodeInto:
		rank, err = t.Peer, o.decode(t.To, o.coded[t.From[0].From], false)
	}
	return rank, err
}

// plainOf are the bytes of s that no codec encodes.
func (o *operation) plainOf(s Span) []byte {
	s.To = s.From + s.head(o.Plain)
	return o.span(s)
}

// decode writes to s what was encoded of it, or adds it there.
func (o *operation) decode(s Span, p []byte, add bool) error {
	head := o.plainOf(s)
	if len(p) < len(head) {
		return fmt.Errorf("%d bytes, of which %d are not encoded", len(p), len(head))
	}
	plain, coded := p[:len(head)], p[len(head):]
	rest := s
	if rest.From += s.head(o.Plain); rest.Len() == 0 && len(coded) > 0 {
		return fmt.Errorf("%d bytes after those that are not encoded", len(coded))
	}
	decode := o.Codec.Decode
	if add {
		decode = o.Codec.DecodeAdd
	}
	if rest.Len() > 0 {
		if err := decode(as[float32](o.span(rest)), coded); err != nil {
			return err
		}
	}
	if !add {
		copy(head, plain)
		return nil
	}
	for i, v := range as[float32](head) { // the frame may lie where no float32 does
		as[float32](head)[i] = v + math.Float32frombits(binary.LittleEndian.Uint32(plain[4*i:]))
	}
	return nil
}
