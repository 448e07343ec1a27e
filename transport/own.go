package transport

import (
	"fmt"

	"github.com/trivium-ml/trivium/wire"
)

// The kinds of the transport's own frames.
const (
	kindHello uint8 = iota + 1
	kindChallenge
	kindProof
	kindAccept
	kindRefuse
	kindGrant
	kindWindow
	kindBye
)

// internal takes in a frame of the transport itself.
func (r *reader) internal() error {
	h := &r.hdr
	if h.Flags&wire.Shared != 0 {
		return &wire.FrameError{Cause: "flags", Text: fmt.Sprintf("an own frame of kind %d in shared memory", h.Kind)}
	}
	switch h.Kind {
	case kindGrant, kindWindow:
		if h.Length != 0 {
			break
		}
		r.pr.mu.Lock()
		defer r.pr.unlock()
		l := r.h.link
		if l.dead.Load() {
			return errLinkDead
		}
		if l.flows[h.Stream] == nil && len(l.flows) >= maxFlows {
			return &wire.FrameError{Cause: "stream", Text: fmt.Sprintf("more than %d streams", maxFlows)}
		}
		if err := l.flow(h.Stream).granted(h); err != nil {
			return err
		}
		l.half[data].kick()
		l.half[control].kick()
		return nil
	case kindBye:
		if h.Length != 0 {
			break
		}
		r.pr.mu.Lock()
		r.h.bye = true
		r.pr.mu.Unlock()
		return nil
	case kindRefuse:
		if h.Length > maxHello {
			break
		}
		b, err := r.need(int(h.Length))
		if err != nil {
			return err
		}
		return readRefusal(r.pr.name, b)
	}
	return &wire.FrameError{Cause: "kind", Text: fmt.Sprintf("an own frame of kind %d with %d bytes", h.Kind, h.Length)}
}
