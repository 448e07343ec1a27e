package transport

import (
	"math/bits"
	"sync"
)

// A pool keeps the memory of received frames for the next ones, so that in steady state nothing is allocated. It is not a sync.Pool,
// which every garbage collection empties: a frame of 4 MiB would then pay for 1,024 page faults.
type pool struct {
	mu      sync.Mutex
	free    [maxClass + 1][][]byte // by class: 512 bytes << class
	bytes   int                    // held in free
	ready   []*delivery
	out     []*outgoing
	waiters []*waiter
}

const (
	leastClass = 9 // 512 bytes
	maxClass   = 26 - leastClass
	poolBytes  = 64 << 20 // held at most
	poolReady  = 4096     // deliveries held at most
)

// find returns n bytes that the pool has, whose content is arbitrary; nil: it has none. pool.mu is held.
func (p *pool) find(n int) []byte {
	if n == 0 {
		return nil
	}
	class := classOf(n)
	l := len(p.free[class])
	if l == 0 {
		return nil
	}
	b := p.free[class][l-1]
	p.free[class] = p.free[class][:l-1]
	p.bytes -= cap(b)
	return b[:n]
}

// fresh returns b, or n new bytes where the pool had none.
func fresh(b []byte, n int) []byte {
	if len(b) == n {
		return b
	}
	return make([]byte, n, 1<<(classOf(n)+leastClass))
}

func classOf(n int) int { return max(bits.Len(uint(n-1)), leastClass) - leastClass }

// put takes back what find or fresh returned. pool.mu is held.
func (p *pool) put(b []byte) {
	if cap(b) > 0 && p.bytes+cap(b) <= poolBytes {
		class := classOf(cap(b))
		p.free[class] = append(p.free[class], b[:0])
		p.bytes += cap(b)
	}
}

// A delivery is a received frame's memory and credit, until Event.Release.
type delivery struct {
	port *port
	flow *flow
	side int    // of the flow
	n    int    // bytes of it; -1: it was returned
	buf  []byte // of the pool: the head, and the payload unless it was posted
	view []byte // the payload, in shared memory
	ref  uint64 // where

	release func() // bound once, so that an Event can carry it without an allocation
}

// newDelivery returns a delivery that has n bytes.
func (p *port) newDelivery(n int) *delivery {
	var d *delivery
	p.pool.mu.Lock()
	if l := len(p.pool.ready); l > 0 {
		d = p.pool.ready[l-1]
		p.pool.ready = p.pool.ready[:l-1]
	}
	b := p.pool.find(n)
	p.pool.mu.Unlock()
	if d == nil {
		d = &delivery{port: p}
		d.release = d.free
	}
	d.buf = fresh(b, n)
	return d
}

// free returns memory and credit.
func (d *delivery) free() {
	p, fl, side, n := d.port, d.flow, d.side, d.n
	buf := d.buf
	if d.view != nil {
		fl.link.shared.free(d.ref, len(d.view))
		fl.link.dropShared()
	}
	d.flow, d.buf, d.view = nil, nil, nil
	p.pool.mu.Lock()
	p.pool.put(buf)
	if len(p.pool.ready) < poolReady {
		p.pool.ready = append(p.pool.ready, d)
	}
	p.pool.mu.Unlock()
	if n >= 0 {
		fl.giveBack(side, n)
	}
}
