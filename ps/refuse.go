package ps

import (
	"errors"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// refusals are the frames of one peer that nobody could read.
type refusals struct {
	said   time.Time // when the log had a line
	since  uint64    // frames that have come after it
	frames int       // since its link is up
	deaf   bool      // so many that no more are read
}

const (
	// refusalEvery is the time from one line of the log about a peer's frames to the next: who is broken may send them for ever.
	refusalEvery = time.Second
	// maxRefusals is how many frames of a peer that nobody can read are borne while its link is up. Of a peer that is what it should be there
	// is none; a few may be a slip of one part of it, and cost nobody else anything.
	maxRefusals = 256
)

// errUnreadable is what ends those who wait for a peer that is not heard any more.
var errUnreadable = errors.New("ps: frames that nobody can read")

// refuse counts a frame that nobody can read, and tells whoever watches. The link stays. It is the port's, and carries all of its streams: to
// end it would take from the others what is under way, and the peer from its cluster. What ends, after maxRefusals such frames, is this stream's
// part of it, at both ends.
func (h *Host) refuse(from Name, kind uint8, err error) {
	now := time.Now()
	h.mu.Lock()
	h.refused++
	r := h.refusals[from]
	if r == nil {
		r = new(refusals)
		h.refusals[from] = r
	}
	r.frames++
	last := r.frames == maxRefusals
	say, more, watch := now.Sub(r.said) >= refusalEvery || last, r.since, h.watch
	if r.since++; say {
		r.said, r.since = now, 0
	}
	h.mu.Unlock()
	if watch != nil {
		watch(from, fmt.Sprintf("a frame of kind %d: %v", kind, err))
	}
	if say {
		h.log.Warn("ps: refused a frame", "from", from.String(), "kind", kind, "err", err, "more", more)
	}
	if last {
		h.deafen(from, kind, err)
	}
}

// deafen has no frame of a peer read from now on, until its link comes back, and perhaps another process with it. It is told, and so is whoever
// waits for it here: a client or a directory cannot do without a server.
func (h *Host) deafen(from Name, kind uint8, err error) {
	h.mu.Lock()
	h.refusals[from].deaf = true
	h.mu.Unlock()
	h.deaf.Add(1)
	self := h.s.Self()
	why := fmt.Errorf("%w: %s has sent %d to %s, which hears it no more: the last was of kind %d: %w", errUnreadable, from, maxRefusals, self, kind, err)
	h.log.Error("ps: hears a peer no more", "peer", from.String(), "err", why)
	h.send(from, &refused{req: notHeard, text: why.Error()})
	h.each(protocol.LinkLost{Peer: from, Err: why})
}

// hears counts a frame of a peer that is not heard, and reports whether it is one that is.
func (h *Host) hears(from Name, kind uint8) bool {
	if h.deaf.Load() == 0 {
		return true
	}
	h.mu.Lock()
	r := h.refusals[from]
	if r == nil || !r.deaf {
		h.mu.Unlock()
		return true
	}
	h.refused++
	r.since++
	watch := h.watch
	h.mu.Unlock()
	if watch != nil {
		watch(from, fmt.Sprintf("a frame of kind %d: %s is heard no more", kind, from))
	}
	return false
}

// back begins to hear a peer whose link is back, if it did not.
func (h *Host) back(peer Name) {
	h.mu.Lock()
	r := h.refusals[peer]
	if r == nil {
		h.mu.Unlock()
		return
	}
	deaf, more := r.deaf, r.since
	*r = refusals{said: r.said, since: r.since}
	h.mu.Unlock()
	if deaf {
		h.deaf.Add(-1)
		h.log.Info("ps: hears a peer again", "peer", peer.String(), "more", more)
	}
}

// unheard tells the log that a peer hears this process no more.
func (h *Host) unheard(by Name, m *refused) {
	h.log.Error("ps: a peer hears this process no more", "peer", by.String(), "err", m.text)
}

// Refused is how many frames have come that nobody could read, or that nobody heard.
func (h *Host) Refused() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// watchRefusals has f called with each such frame from now on; nil: nobody.
func (h *Host) watchRefusals(f func(from Name, why string)) {
	h.mu.Lock()
	h.watch = f
	h.mu.Unlock()
}
