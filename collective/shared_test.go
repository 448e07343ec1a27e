package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// TestHostileBell: a bell that says that something lies outside of its sender's arena, or is a ring where the plan has none, is refused.
func TestHostileBell(t *testing.T) {
	const each, bytes = 1 << 20, 64 << 10
	opt, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]struct {
		at uint64
		ok bool
	}{
		"the last place":   {each - bytes, true},
		"beyond by a line": {each - bytes + tensor.Align, false},
		"the end":          {each, false},
		"far off":          {1 << 62, false},
		"not aligned":      {1, false},
		"a ring":           {cardRing, false},
	} {
		c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}}}, &opt)
		c.arena = &arena{all: tensor.AlignedBytes(2 * each), each: each}
		o := c.start(Op{Plan: Shared}, 0, Of(make([]float32, bytes/4)), Of(make([]float32, bytes/4)), nil)
		if o.err != nil || o.plan.Algorithm != Shared {
			t.Fatalf("%v by %v", o.err, o.plan.Algorithm)
		}
		card := binary.LittleEndian.AppendUint64(nil, v.at)
		if got := c.hear(o, 1, binary.LittleEndian.AppendUint64(card, 0)); got != v.ok {
			t.Errorf("%s: taken %v, want %v", name, got, v.ok)
		}
	}
}

// TestMoreThanFits: what does not fit the shared memory of a step goes over the stream, at all ranks alike, also where the buffers of one
// lie in its part of the memory. What is shorter may fit still, and the next step has all of it again.
func TestMoreThanFits(t *testing.T) {
	for _, v := range []struct{ size, cells, space int }{
		{2, 64 << 10, 700 << 10},   // 256 KiB each, of the contribution alone
		{3, 200 << 10, 3300 << 10}, // 800 KiB each, and as much of the result
	} {
		synctest.Test(t, func(t *testing.T) {
			groups := several(t, v.size)
			all := tensor.AlignedBytes(v.size * 4 * v.space)
			shared := make([][]uint32, v.size) // by rank, the tags of operations in shared memory
			for r, g := range groups {
				g.c.arena = &arena{all: all, each: 4 * v.space, self: r}
				g.h.opt.Record = func(m Measurement) { // with the group's lock held
					if m.Algorithm == Shared {
						shared[r] = append(shared[r], m.Tag)
					}
				}
			}
			vector := func(g *Group, cells int) []float32 {
				if g.Rank() == 0 {
					return as[float32](g.Memory(4 * cells))
				}
				return make([]float32, cells)
			}
			var wait sync.WaitGroup
			for r, g := range groups {
				src := vector(g, v.cells)
				for i := range src {
					src[i] = float32(i%100 + r)
				}
				dst := [][]float32{4: vector(g, 8<<10)}
				for i := range 4 {
					dst[i] = vector(g, v.cells)
				}
				wait.Go(func() {
					for step := range uint64(2) {
						for tag, plan := range []Algorithm{Auto, Shared, Auto, Shared, Auto} {
							dst := dst[tag]
							clear(dst)
							if err := g.Start(Op{Plan: plan}, uint32(tag), Of(dst), Of(src[:len(dst)])).Wait(t.Context()); err != nil {
								t.Errorf("%d ranks: rank %d, tag %d: %v", v.size, r, tag, err)
								return
							}
							for i, x := range dst {
								if want := float32(v.size*(i%100) + v.size*(v.size-1)/2); x != want {
									t.Errorf("%d ranks: rank %d, tag %d: %v at %d, want %v", v.size, r, tag, x, i, want)
									return
								}
							}
							if a := g.c.arena; r == 0 && a.used != 0 || r > 0 && a.used != a.asked || a.asked > a.space() {
								t.Errorf("%d ranks: rank %d, tag %d: %d bytes are taken, and %d asked for, of %d", v.size, r, tag, a.used, a.asked, a.space())
							}
						}
						if err := g.Commit(t.Context(), step); err != nil {
							t.Errorf("%d ranks: rank %d: %v", v.size, r, err)
						}
					}
				})
			}
			wait.Wait()
			for r, tags := range shared {
				if got, want := fmt.Sprint(tags), "[0 1 4 0 1 4]"; got != want {
					t.Errorf("%d ranks: rank %d has shared memory for %v, want %v", v.size, r, got, want)
				}
			}
		})
	}
}

// TestMoreThanFitsUntilSettled: what is settled makes room.
func TestMoreThanFitsUntilSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cells, space = 64 << 10, 300 << 10
		groups := pair(t)
		all := tensor.AlignedBytes(2 * 4 * space)
		var wait sync.WaitGroup
		for r, g := range groups {
			g.c.arena = &arena{all: all, each: 4 * space, self: r}
			wait.Go(func() {
				src := make([]float32, cells)
				for tag := range uint32(6) { // two between each Settle and the next
					h := g.Start(Op{}, tag, Of(make([]float32, cells)), Of(src))
					want := Shared
					if tag%2 == 1 {
						want = g.c.costs().Choose(2, 4*cells)
					}
					if got := h.o.plan.Algorithm; got != want {
						t.Errorf("rank %d: tag %d by %v, want %v", r, tag, got, want)
					}
					if err := h.Wait(t.Context()); err != nil {
						t.Errorf("rank %d: tag %d: %v", r, tag, err)
					}
					if tag%2 == 1 {
						if err := g.Settle(t.Context()); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
					}
				}
				if err := g.Commit(t.Context(), 0); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		}
		wait.Wait()
	})
}

// TestMoreThanFitsInAnotherOrder: ranks that start in different orders what does not fit together are told so.
func TestMoreThanFitsInAnotherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cells, space = 64 << 10, 300 << 10
		all := tensor.AlignedBytes(2 * 4 * space)
		begin := time.Now()
		var wait sync.WaitGroup
		for r, g := range pair(t) {
			g.c.arena = &arena{all: all, each: 4 * space, self: r}
			wait.Go(func() {
				for k := range 2 {
					g.Start(Op{}, uint32((r+k)%2), Of(make([]float32, cells)), Of(make([]float32, cells)))
				}
				if m, ok := errors.AsType[*Mismatch](g.Commit(t.Context(), 0)); !ok || m.Field != "plan" {
					t.Errorf("rank %d: %v", r, m)
				}
			})
		}
		wait.Wait()
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
