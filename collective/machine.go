package collective

import (
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A Machine is a rank of a group as a protocol.Machine: the plans, commits and faults of a Group, under the simulator. A Call with a
// [StartCall] or [CommitCall] is answered when the operation has ended, or the step.
type Machine struct {
	c     *core
	opt   Options
	wait  []answer
	armed time.Duration
	out   []protocol.Command
}

// A StartCall is Group.Start followed by Handle.Wait. Its answer's Result is the StartCall; of a Receive, Root is who sent.
type StartCall struct {
	Op       Op
	Tag      uint32
	Dst, Src Buffer
}

// A CommitCall is Group.Commit. Its answer's Result is the CommitCall.
type CommitCall struct{ Step uint64 }

// A FrameBody is a frame on its way in the simulator.
type FrameBody struct{ F transport.Frame }

// Size is that on a wire.
func (b FrameBody) Size() int { return wire.HeaderLen + len(b.F.Head) + len(b.F.Payload) }

// An answer is owed to a Call.
type answer struct {
	id   uint64
	arg  any
	op   *operation
	vote *tally
}

// NewMachine returns the machine of rank v.Self.
func NewMachine(v View, o Options) (*Machine, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	m := &Machine{opt: o, armed: never}
	m.c = newCore(0, v, &m.opt)
	m.c.planner = &m.opt.Costs
	return m, nil
}

// Step is protocol.Machine's.
func (m *Machine) Step(now time.Duration, in protocol.Event) []protocol.Command {
	c := m.c
	c.now = now
	m.out = m.out[:0]
	switch in := in.(type) {
	case protocol.Call:
		switch a := in.Arg.(type) {
		case StartCall:
			m.wait = append(m.wait, answer{in.ID, a, c.start(a.Op, a.Tag, a.Dst, a.Src, nil), nil})
		case CommitCall:
			m.wait = append(m.wait, answer{in.ID, a, nil, c.commit(a.Step, nil)})
		}
	case protocol.Message:
		if b, ok := in.Body.(FrameBody); ok {
			if r := c.rankOf(in.From); r >= 0 && b.F.Epoch == c.epoch {
				ev := transport.Event{From: in.From, Kind: b.F.Kind, Priority: b.F.Priority, Fingerprint: b.F.Fingerprint, Key: b.F.Key, Head: b.F.Head, Payload: b.F.Payload}
				c.received(r, &ev)
			}
		}
	case protocol.LinkLost:
		if r := c.rankOf(in.Peer); r >= 0 {
			c.lost(r, in.Err)
		}
	case protocol.Timer:
		m.armed = never
		c.tick()
	case protocol.Stop:
		return append(m.out, protocol.Exit{})
	}
	for len(c.out) > 0 {
		list := c.out
		c.out = nil
		for i := range list {
			o := &list[i]
			f := o.f
			// The plan writes to this memory afterwards.
			f.Payload, f.Head = slices.Clone(f.Payload), slices.Clone(f.Head)
			m.out = append(m.out, protocol.Send{To: c.names[o.to], Body: FrameBody{f}})
			if o.op != nil {
				c.sent(o.op, o.task)
			}
		}
	}
	c.over = nil
	if c.due < m.armed {
		m.armed = c.due
		m.out = append(m.out, protocol.SetTimer{After: max(0, c.due-now)})
	}
	keep := m.wait[:0]
	for _, a := range m.wait {
		switch {
		case a.op != nil && a.op.finish:
			if s, ok := a.arg.(StartCall); ok && s.Op.fromAny() {
				s.Op.Root = a.op.from()
				a.arg = s
			}
			m.out = append(m.out, protocol.Answer{ID: a.id, Result: a.arg, Err: a.op.err})
		case a.vote != nil && a.vote.over:
			m.out = append(m.out, protocol.Answer{ID: a.id, Result: a.arg, Err: a.vote.err})
		default:
			keep = append(keep, a)
		}
	}
	clear(m.wait[len(keep):])
	m.wait = keep
	return m.out
}
