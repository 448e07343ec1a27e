package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/protocol/run"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// ears are a Machine that, before each look at its peers, is told when the transport last heard them: any byte counts. The transport's
// times may be the wall clock's, which jumps: that one changed since the last look is what counts.
type ears struct {
	*Machine
	s      transport.Stream
	looked time.Duration
	last   map[protocol.Name]time.Time
}

// Step implements protocol.Machine.
func (e *ears) Step(now time.Duration, in protocol.Event) []protocol.Command {
	if _, timer := in.(protocol.Timer); timer {
		if e.last == nil || len(e.last) > 4*MaxWorkers {
			e.last = map[protocol.Name]time.Time{}
		}
		e.Watched(func(n protocol.Name) {
			if at := e.s.Heard(n); !at.IsZero() && !at.Equal(e.last[n]) {
				e.last[n] = at
				e.Heard(n, min(max(now-time.Since(at), e.looked), now))
			}
		})
		e.looked = now
	}
	return e.Machine.Step(now, in)
}

// quiet is a stream on which a message to a peer whose link is lost is lost without a word: the machine was told of the link.
type quiet struct{ transport.Stream }

// Send implements transport.Stream.
func (q quiet) Send(ctx context.Context, to protocol.Name, f transport.Frame) error {
	err := q.Stream.Send(ctx, to, f)
	if errors.Is(err, transport.ErrLinkLost) || errors.Is(err, transport.ErrUnknownPeer) {
		if f.Done != nil {
			f.Done(err)
		}
		return nil
	}
	return err
}

// asks makes a Meta of the kind that protocol/run takes.
func asks(m Meta) run.Meta {
	return func(ctx context.Context, c protocol.MetaCall) iter.Seq2[KV, error] {
		if c.Op == protocol.MetaWatch {
			return m.Watch(ctx, c.Key, c.Rev)
		}
		return func(yield func(KV, error) bool) {
			ctx, cancel := context.WithTimeout(ctx, 2*storeAnswers)
			defer cancel()
			kv := KV{Key: c.Key}
			var err error
			switch c.Op {
			case protocol.MetaGet:
				kv, err = m.Get(ctx, c.Key)
			case protocol.MetaPutIf:
				kv.Rev, err = m.PutIf(ctx, c.Key, c.Value, c.Rev, Lease(c.Lease))
			case protocol.MetaGrant:
				var l Lease
				l, err = m.Grant(ctx, c.TTL)
				kv.Lease = int64(l)
			case protocol.MetaKeep:
				err = m.Keep(ctx, Lease(c.Lease))
			default:
				err = fmt.Errorf("cluster: operation %d of the metadata store", c.Op)
			}
			yield(kv, err)
		}
	}
}

// codec makes frames of messages. A beat costs no allocation either way.
type codec struct{ beats atomic.Pointer[[4]beat] }

// Encode implements run.Codec.
func (*codec) Encode(b protocol.Body, f *transport.Frame) (err error) {
	f.Priority = transport.Control
	if b, ok := b.(*beat); ok {
		f.Kind, f.Op, f.Chunk = kindBeat, wire.Op(b.Epoch), b.Flags
		return nil
	}
	f.Kind, f.Head, err = encode(f.Head, b)
	if len(f.Head) > 32<<10 { // a record of many members
		f.Head, f.Payload = nil, f.Head
	}
	return err
}

// Decode implements run.Codec.
func (c *codec) Decode(ev *transport.Event) (protocol.Body, bool, error) {
	if ev.Kind != kindBeat {
		p := ev.Head
		if len(ev.Payload) > 0 {
			p = ev.Payload
		}
		b, err := decode(ev.Kind, p)
		return b, false, err
	}
	epoch, flags := protocol.Epoch(ev.Op), ev.Chunk
	if flags > ask|answer {
		return nil, false, fmt.Errorf("cluster: a beat with flags %#x", flags)
	}
	known := c.beats.Load()
	if known == nil || known[0].Epoch != epoch {
		known = new([4]beat)
		for i := range known {
			known[i] = beat{epoch, uint32(i)}
		}
		c.beats.Store(known)
	}
	return &known[flags], false, nil
}
