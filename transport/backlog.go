package transport

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium/wire"
)

// A backlog is what came from a peer over links that are lost and has not been released since. Each link begins with all its credit, and what
// came before a loss is still received: so a peer whose link comes and goes could fill the memory of who reads nothing.
type backlog struct {
	any   atomic.Bool // there is some
	mu    sync.Mutex
	sides map[uint32]*[2]usage // by stream
}

// backlogLinks is how many lost links' credit may wait besides that of the one that is up: a link may well be lost more than once while a
// stream is busy, and then the peer cannot help it.
const backlogLinks = 3

// add takes over what a link that is lost has brought.
func (b *backlog) add(fl *flow) {
	for which, u := range fl.used {
		b.change(fl.id, which, u.less(fl.owed[which]).less(fl.turned[which]))
	}
}

// release says that a frame of n bytes which came over such a link was, perhaps just before add.
func (b *backlog) release(id uint32, which, n int) { b.change(id, which, usage{}.less(usage{n, 1})) }

func (b *backlog) change(id uint32, which int, by usage) {
	if by == (usage{}) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sides[id]
	if s == nil {
		if b.sides == nil {
			b.sides = map[uint32]*[2]usage{}
		}
		s = new([2]usage)
		b.sides[id] = s
	}
	s[which].frames += by.frames
	s[which].bytes += by.bytes
	if *s == ([2]usage{}) {
		delete(b.sides, id)
	}
	b.any.Store(len(b.sides) > 0)
}

// check says that so much waits that no more may come on fl.
func (b *backlog) check(fl *flow, which int) error {
	if !b.any.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sides[fl.id]
	if s == nil || s[which].frames <= backlogLinks*maxUnderWay && s[which].bytes <= backlogLinks*fl.bound() {
		return nil
	}
	const why = "%d frames with %d bytes of one stream that came over links that are lost have not been received yet: no more may come before"
	return &wire.FrameError{Cause: "backlog", Text: fmt.Sprintf(why, s[which].frames, s[which].bytes)}
}

func (u usage) less(v usage) usage { return usage{u.bytes - v.bytes, u.frames - v.frames} }
