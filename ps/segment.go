package ps

import "slices"

// A segment is a row's cells in one shard.
type segment struct {
	version uint64 // the shard's tick at the last change
	watch   *watch // nil: nobody is sent its changes
}

// A watch is who is sent the changes of a segment.
type watch struct {
	subs  []uint64 // clients, a bit each
	dirty bool     // the segment is in the shard's list of changes
}

func (s *segment) subscribed(client uint16) bool {
	w := int(client / 64)
	return s.watch != nil && w < len(s.watch.subs) && s.watch.subs[w]>>(client%64)&1 != 0
}

func (s *segment) subscribe(client uint16, on bool) {
	w := int(client / 64)
	if on {
		if s.watch == nil {
			s.watch = new(watch)
		}
		for len(s.watch.subs) <= w {
			s.watch.subs = append(s.watch.subs, 0)
		}
		s.watch.subs[w] |= 1 << (client % 64)
	} else if s.watch != nil && w < len(s.watch.subs) {
		s.watch.subs[w] &^= 1 << (client % 64)
		s.unwatch()
	}
}

// unwatch gives up a watch that nobody is left of, unless the list of changes has it.
func (s *segment) unwatch() {
	if !s.watch.dirty && !slices.ContainsFunc(s.watch.subs, func(b uint64) bool { return b != 0 }) {
		s.watch = nil
	}
}

// tells makes versions of segments known from now on.
func (s *shard[T]) tells() {
	if s.told {
		return
	}
	s.told = true
	if s.live != nil {
		_, segments := s.t.cut.sizes(s.index)
		s.segs = make([]segment, segments)
	}
}

// changes notes that segment i changes.
func (s *shard[T]) changes(i int32) {
	if !s.told {
		return
	}
	g := &s.segs[i]
	g.version = s.tick
	if w := g.watch; w != nil && !w.dirty {
		w.dirty = true
		s.dirty = append(s.dirty, i)
	}
}
