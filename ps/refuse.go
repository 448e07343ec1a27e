package ps

import (
	"fmt"
	"time"
)

// refusals are the frames of one peer that nobody could read.
type refusals struct {
	said  time.Time // when the log had a line
	since uint64    // frames that have come after it
}

// refusalEvery is the time from one line of the log about a peer's frames to the next: who is broken may send them for ever.
const refusalEvery = time.Second

// refuse counts a frame that nobody can read, and tells whoever watches. The link stays. It is the port's, and carries all of its streams: to
// end it would take from the others what is under way, and the peer from its cluster. A client whose rounds cannot be read is one that ends no
// round: others wait for it as long as RoundTimeout says.
func (h *Host) refuse(from Name, kind uint8, err error) {
	now := time.Now()
	h.mu.Lock()
	h.refused++
	r := h.refusals[from]
	if r == nil {
		r = new(refusals)
		h.refusals[from] = r
	}
	say, more, watch := now.Sub(r.said) >= refusalEvery, r.since, h.watch
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
}

// Refused is how many frames have come that nobody could read.
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
