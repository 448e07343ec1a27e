package transport

import (
	"fmt"

	"github.com/trivium-ml/trivium/wire"
)

// A post is a slice that waits for its frame.
type post struct {
	dst   []byte
	state postState
	at    *half // landing: who reads
	drop  bool  // landing: what lands is no longer wanted
	gone  bool  // Unpost was called while it landed
}

type postKey struct {
	from Name
	key  Key
}

type postState uint8

const (
	posted  postState = iota // waits for its frame
	landing                  // is being read into
	landed                   // its event waits for Recv
)

func (s *stream) Post(from Name, k Key, dst []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("transport: post from %v on %q: %w", from, s.name, ErrClosed)
	}
	pk := postKey{from, k}
	if s.posts[pk] != nil {
		return fmt.Errorf("transport: post from %v on %q: epoch %d, step %d, operation %d, chunk %d is posted already",
			from, s.name, k.Epoch, k.Op.Step(), k.Op.Index(), k.Chunk)
	}
	if s.posts == nil {
		s.posts = map[postKey]*post{}
	}
	var po *post
	if n := len(s.spare); n > 0 {
		po, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		po = &post{}
	}
	po.dst = dst
	s.posts[pk] = po
	return nil
}

func (s *stream) Unpost(from Name, k Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pk := postKey{from, k}
	po := s.posts[pk]
	switch {
	case po == nil || s.closed:
		return false
	case po.state != posted:
		po.gone = true
		return false
	}
	s.forget(pk, po)
	return true
}

func (s *stream) forget(pk postKey, po *post) {
	delete(s.posts, pk)
	*po = post{}
	if len(s.spare) < 256 {
		s.spare = append(s.spare, po)
	}
}

// begin says where the payload of a frame that has begun to come is to be read: into a posted slice, into memory of the pool (nil,
// true), or nowhere (nil, false).
func (s *stream) begin(from Name, h *wire.Header, at *half) (*post, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch limit := s.o.MaxFrame; {
	case int(h.Length) <= limit:
	case s.name == "":
		return nil, false, nil // only who sent to a stream that was open here can have the credit for it
	default:
		return nil, false, &wire.FrameError{Cause: "length", Text: fmt.Sprintf("at most %d bytes on stream %q, found %d", limit, s.name, h.Length)}
	}
	if s.closed || h.Epoch < s.epoch || h.Epoch == s.epoch && !s.member(from) {
		return nil, false, nil
	}
	if len(s.posts) == 0 || h.Epoch > s.epoch {
		return nil, true, nil
	}
	po := s.posts[postKey{from, Key{h.Epoch, h.Op, h.Chunk}}]
	if po == nil || po.state != posted || len(po.dst) != int(h.Length)-int(h.Head) {
		return nil, true, nil
	}
	po.state, po.at, po.drop = landing, at, false
	return po, true, nil
}

// unwanted reports whether what lands in po has been dropped.
func (s *stream) unwanted(po *post) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return po.drop
}

// failed takes back a landing that did not end.
func (s *stream) failed(pk postKey, po *post) {
	s.mu.Lock()
	s.lift(pk, po)
	s.mu.Unlock()
}

// lift makes po wait again, or ends it where the caller took it back meanwhile.
func (s *stream) lift(pk postKey, po *post) {
	if po.gone {
		s.forget(pk, po)
	} else {
		po.state, po.at, po.drop = posted, nil, false
	}
	s.idle.Broadcast()
}

// stop ends the landings that match, and waits until nothing is written to their slices any more.
func (s *stream) stop(match func(postKey) bool) {
	for pk, po := range s.posts {
		if po.state == landing && match(pk) {
			po.drop = true
			po.at.interrupt()
		}
	}
	for busy := true; busy; {
		busy = false
		for pk, po := range s.posts {
			busy = busy || po.state == landing && match(pk)
		}
		if busy {
			s.idle.Wait()
		}
	}
}
