package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// An arena is a rank's part of the memory that the ranks of a host share, and all the others'. What operations place there is gone at
// the commit; what Memory gave out stays. Memory is taken from the machine only where it is written.
//
// Operations that are settled leave it to the others to read on. What is started next goes to the other of two regions: once one of that
// is complete, all have started it, and so have settled what was before, and the first region is free again.
type arena struct {
	all    []byte // of all ranks, one after the other
	each   int    // bytes of one
	self   int
	region int // the one that operations use, 0 or 1, from the front
	used   int // bytes of it
	asked  int // what operations would take of it if no buffer of theirs were in an arena: the same at all ranks
	kept   int // by Memory, from the back
}

// arenaBytes is the address space of one rank: more than a step needs.
const arenaBytes = 16 << 30

func (a *arena) own() []byte { return a.all[a.self*a.each : (a.self+1)*a.each] }

// offset is where b lies in the own part; -1: elsewhere.
func (a *arena) offset(b []byte) int {
	own := a.own()
	if len(b) == 0 || len(own) == 0 {
		return -1
	}
	d := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(own))))
	if d < 0 || d+len(b) > len(own) {
		return -1
	}
	return d
}

// space is how many bytes a region has, and Memory both of them together.
func (a *arena) space() int { return a.each / 4 }

// place reserves n bytes until the commit or until they are settled, and returns their offset.
func (a *arena) place(n int) (int, bool) {
	n = aligned(n)
	if a.used+n > a.space() {
		return 0, false
	}
	a.used += n
	return a.region*a.space() + a.used - n, true
}

// settle goes on in the other region, if anything is in this one.
func (a *arena) settle() {
	if a.used > 0 {
		a.region = 1 - a.region
	}
	a.clear()
}

// clear frees the region.
func (a *arena) clear() { a.used, a.asked = 0, 0 }

// aligned is how much is reserved for n bytes.
func aligned(n int) int { return (n + tensor.Align - 1) &^ (tensor.Align - 1) }

// keep reserves n bytes for good.
func (a *arena) keep(n int) []byte {
	n = aligned(n)
	if a.kept+n > a.each-2*a.space() {
		return nil
	}
	a.kept += n
	at := a.each - a.kept
	return a.own()[at : at+n : at+n]
}

// Share lets the ranks, which must all be processes of this host, share memory: AllReduce of long vectors then reads contributions
// where they lie. All ranks call it, before other operations; it takes steps of the group. Rank 0 makes a socket in dir, which is needed
// until Share returns. An *UnsharedError means that no rank shares memory, and the group works as before.
//
// The operations of a step, or up to Settle, have 4 GiB of each rank. What does not fit any more goes over the stream, and that is decided
// by the lengths of those before: ranks that start such operations in different orders get a *Mismatch.
func (g *Group) Share(ctx context.Context, dir string) error {
	size := g.Size()
	if size == 1 {
		return nil
	}
	bytes := size * arenaBytes
	var seg *transport.Segment
	var err error
	addr := make([]uint8, 256)
	if size > maxShared {
		err = fmt.Errorf("%d ranks, at most %d", size, maxShared)
	} else if g.Rank() == 0 && dir == "" {
		err = errors.New("there is no directory for a socket")
	} else if g.Rank() == 0 {
		if seg, err = transport.CreateSegment(ctx, dir, bytes); err == nil {
			if n := copy(addr[1:], seg.Addr()); n < len(seg.Addr()) {
				err = fmt.Errorf("the address %q is too long", seg.Addr())
			} else {
				addr[0] = uint8(n)
			}
		}
	}
	if e := BroadcastInto(ctx, g, addr, 0); e != nil {
		return errors.Join(e, closeSegment(seg))
	}
	if err == nil && g.Rank() != 0 {
		if addr[0] == 0 {
			err = errors.New("rank 0 has none")
		} else {
			// No operation is under way while rank 0 hands it over, and so no deadline. Half of one, so that rank 0 hears below in time.
			limited, stop := context.WithTimeout(ctx, g.h.opt.Deadline/2)
			seg, err = transport.OpenSegment(limited, string(addr[1:1+int(addr[0])]), bytes)
			stop()
		}
	}
	bad := []uint8{0}
	if err != nil {
		bad[0] = 1
	}
	if e := AllReduceInto(ctx, g, bad, bad, Max); e != nil {
		return errors.Join(e, closeSegment(seg))
	}
	if bad[0] != 0 {
		if err == nil {
			err = errors.New("another rank cannot")
		}
		return &UnsharedError{errors.Join(err, closeSegment(seg))}
	}
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	g.c.arena = &arena{all: seg.Bytes(), each: arenaBytes, self: g.c.self}
	clear(g.c.known)
	g.h.segments = append(g.h.segments, seg)
	return nil
}

// Shares says whether the ranks share memory.
func (g *Group) Shares() bool {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	return g.c.arena != nil
}

// An UnsharedError says why the ranks share no memory.
type UnsharedError struct{ Cause error }

func (e *UnsharedError) Error() string { return "collective: share memory: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *UnsharedError) Unwrap() error { return e.Cause }

func closeSegment(s *transport.Segment) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// Memory returns n bytes, zero, that all ranks of a group with shared memory can read: sources and destinations that lie there are not
// copied. They are the caller's until Close, and must not be touched afterwards. In other groups it is plain memory.
func (g *Group) Memory(n int) []byte {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	if a := g.c.arena; a != nil {
		if b := a.keep(n); b != nil {
			return b[:n:n]
		}
	}
	return tensor.AlignedBytes(n)
}

// sharing is how many bytes an allreduce of so many has others read: of the contribution, and of the result.
func (c *core) sharing(bytes int) (given, sums int) {
	if !whole(bytes, c.size()) {
		return bytes, bytes
	}
	return min(bytes, 2*ringAhead*c.sharedSegment(bytes)), 0 // every rank writes the result to its own memory alone
}

// asks is what such an operation takes of a region at most.
func (c *core) asks(bytes int) int {
	given, sums := c.sharing(bytes)
	return aligned(given) + aligned(sums)
}

// fits says whether such an operation can be in shared memory. All ranks say the same, wherever their buffers lie.
func (c *core) fits(bytes int) bool {
	return c.arena != nil && c.arena.asked+c.asks(bytes) <= c.arena.space()
}

// share lays out the memories of an operation that others read.
func (c *core) share(o *operation) error {
	a := c.arena
	n := len(o.src.Bytes)
	_, sums := c.sharing(n)
	in, out := a.offset(o.src.Bytes), a.offset(o.dst.Bytes)
	ok := true
	given, ringed := n, uint64(0)
	if in < 0 {
		if o.plan.Ring > 0 {
			given, ringed = o.plan.Ring*o.dtype.Size(), cardRing
		}
		in, ok = a.place(given)
	}
	if out < 0 && ok {
		out, ok = a.place(sums)
	}
	if !ok {
		return fmt.Errorf("the operations of this step do not fit %d bytes of shared memory", a.space())
	}
	o.remote = make([][]byte, 2*c.size())
	o.cards = make([]byte, c.size()*cardBytes)
	card := o.cards[c.self*cardBytes:]
	binary.LittleEndian.PutUint64(card, uint64(in)|ringed)
	binary.LittleEndian.PutUint64(card[8:], uint64(out))
	own := a.own()
	o.remote[2*c.self], o.remote[2*c.self+1] = own[in:in+given], own[out:out+sums]
	return nil
}

// hear takes what a bell says.
func (c *core) hear(o *operation, from int, card []byte) bool {
	if len(card) != cardBytes {
		return false
	}
	if o.remote[2*from] != nil {
		return true
	}
	a := c.arena
	part := a.all[from*a.each : (from+1)*a.each]
	_, sums := c.sharing(len(o.src.Bytes))
	for k, n := range [...]uint64{uint64(len(o.src.Bytes)), uint64(sums)} {
		at := binary.LittleEndian.Uint64(card[8*k:])
		if k == 0 && at&cardRing != 0 {
			if at, n = at&^cardRing, uint64(o.plan.Ring*o.dtype.Size()); n == 0 {
				return false
			}
		}
		if at > uint64(a.each) || n > uint64(a.each)-at || at%tensor.Align != 0 && at%uint64(o.dtype.Size()) != 0 {
			return false
		}
		o.remote[2*from+k] = part[at : at+n]
	}
	copy(o.cards[from*cardBytes:], card)
	return true
}

// hearAll takes what the bells of all ranks say.
func (c *core) hearAll(o *operation, cards []byte) bool {
	if len(cards) != c.size()*cardBytes {
		return false
	}
	for r := range c.size() {
		if r != c.self && !c.hear(o, r, cards[r*cardBytes:][:cardBytes]) {
			return false
		}
	}
	return true
}
