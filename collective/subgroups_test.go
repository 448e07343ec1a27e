package collective_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// A troupe is a group and sub-groups of it, each at work by itself at the same time. What its ranks were told of each step is by group, by step and
// by rank.
type troupe struct {
	seed    uint64
	random  *rand.Rand // to make it by, and no longer
	w       *world
	subsets [][]int // of the ranks of the group; the first has all
	rounds  int     // a sub-group is closed and made again
	steps   int
	victim  int // a rank that dies; -1: none
	leaves  int // a sub-group that one of its ranks closes in the middle of its first round; 0: none
	leaver  int // that one, by its rank there
	odd     []int
	mu      sync.Mutex
	said    map[string][]string
	fails   int
}

// TestSubGroupsAtOnce: sub-groups that share ranks do random operations of all kinds at once, of which some are given up or differ, while a rank dies or
// leaves one of them. In each all ranks have the right results or the same errors, soon; a group without the one that died goes on; and nothing
// is written to what is the caller's again.
func TestSubGroupsAtOnce(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	failed := 0
	memory := tensor.AlignedBytes(5 << 16)
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { failed += subGroupsAtOnce(t, seed, memory) })
	}
	if t.Logf("%d steps failed", failed); failed < int(seeds) {
		t.Errorf("%d steps of %d seeds failed: the test has lost its sting", failed, seeds)
	}
}

func subGroupsAtOnce(t *testing.T, seed uint64, memory []byte) (failed int) {
	x := &troupe{seed: seed, random: rand.New(rand.NewPCG(seed, 5)), rounds: 3, steps: 4, victim: -1, said: map[string][]string{}}
	random := x.random
	size := 3 + random.IntN(3)
	streams := uint64(0)
	x.w = openWith(t, inMemory, size, collective.Options{Deadline: 500 * time.Millisecond, Segment: 64, MaxFrame: 1 << 10, Window: 4 << 10}, nil, func(s transport.Stream) transport.Stream {
		streams++
		return &jitteryStream{Stream: s, random: rand.New(rand.NewPCG(seed, streams))}
	})
	defer x.w.close()
	x.w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) }) // all have met
	if seed%2 == 1 {
		collective.ShareHere(x.w.groups, memory)
	}
	x.subsets = [][]int{random.Perm(size)}
	slices.Sort(x.subsets[0])
	for len(x.subsets) < 4 {
		ranks := random.Perm(size)[:2+random.IntN(size-1)]
		if !slices.ContainsFunc(x.subsets[1:], func(other []int) bool { return slices.Equal(other, ranks) }) {
			x.subsets = append(x.subsets, ranks)
		}
	}
	x.odd = []int{random.IntN(4), random.IntN(x.steps), random.IntN(size)}
	switch random.IntN(3) {
	case 0:
		x.victim = random.IntN(size)
	case 1:
		x.leaves = 1 + random.IntN(3)
		x.leaver = random.IntN(len(x.subsets[x.leaves]))
	}
	die := time.Duration(random.IntN(8000)) * time.Microsecond
	var all sync.WaitGroup
	for i, ranks := range x.subsets {
		for me, r := range ranks {
			all.Go(func() {
				if err := x.perform(t.Context(), i, me, r); err != nil && r != x.victim {
					t.Errorf("seed %d, ranks %v, rank %d: %v", seed, ranks, me, err)
				}
			})
		}
	}
	if x.victim >= 0 {
		time.Sleep(die)
		_ = x.w.ports[x.victim].Close()
	}
	all.Wait()
	for at, texts := range x.said {
		var first *string
		for r := range texts {
			switch {
			case texts[r] == "":
			case first == nil:
				first = &texts[r]
			case *first != texts[r]:
				t.Errorf("seed %d, victim %d, group %d is left by %d: %s: ranks have %q", seed, x.victim, x.leaves, x.leaver, at, texts)
			}
		}
	}
	return x.fails
}

// perform does at one rank what a group does in all its rounds.
func (x *troupe) perform(ctx context.Context, i, me, r int) error {
	g := x.w.groups[r]
	random := rand.New(rand.NewPCG(x.seed, uint64(1000*i+r)))
	rounds := x.rounds
	if i == 0 {
		rounds = 1
	}
	lives := x.victim < 0 || !slices.Contains(x.subsets[i], x.victim)
	for round := range rounds {
		sub := g
		if i > 0 {
			var err error
			if sub, err = g.Sub(x.subsets[i]); err != nil {
				if x.victim >= 0 { // a group that has failed makes none
					return nil
				}
				return err
			}
		}
		for s := range x.steps {
			if x.leaves == i && i > 0 && x.leaver == me && round == 0 && s == 2 {
				time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
				break
			}
			begin := time.Now()
			result, err := x.act(ctx, sub, i, round, uint64(s), me, random)
			if errors.Is(err, errWrong) {
				return fmt.Errorf("round %d, step %d: %w", round, s, err)
			}
			if took := time.Since(begin); took > 2*time.Second {
				return fmt.Errorf("round %d, step %d took %v: %w", round, s, took, err)
			}
			x.say(fmt.Sprintf("group %d, round %d, step %d", i, round, s), me, len(x.subsets[i]), r, err, result)
			if b, ok := errors.AsType[*collective.Blame](err); ok && b.Cause == collective.Lost {
				if lives && (x.leaves != i || round > 0) {
					return fmt.Errorf("round %d, step %d: %w", round, s, err)
				}
				break
			} else if errors.Is(err, collective.ErrClosed) {
				return err
			}
		}
		if i > 0 {
			_ = sub.Close()
		}
	}
	return nil
}

func (x *troupe) say(at string, me, size, r int, err error, result string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.fails++
	}
	if x.said[at] == nil {
		x.said[at] = make([]string, size)
	}
	if r != x.victim {
		x.said[at][me] = fmt.Sprint(err, result)
	}
}

// act does the operations of a step, and returns what all ranks have of them.
func (x *troupe) act(ctx context.Context, g *collective.Group, i, round int, step uint64, me int, random *rand.Rand) (result string, err error) {
	size := g.Size()
	seed := x.seed*1000 + uint64(100*i+10*round)
	same := rand.New(rand.NewPCG(seed, 1000+step)) // at all ranks
	var calls []collective.StartCall
	var wants [][]float32
	for _, m := range mixedOps(seed, step, size) {
		if call, want := m.call(me, size); call.Op.Kind != 255 {
			calls, wants = append(calls, call), append(wants, want)
		}
	}
	odd := x.odd[0] == i && x.odd[1] == int(step) && x.odd[2]%size == me
	if odd {
		calls = differently(calls, same.IntN(6), size, me)
	}
	gives, after := same.IntN(6*size), time.Duration(random.IntN(300))*time.Microsecond
	settles := same.IntN(3) == 0
	handles := map[uint32]*collective.Handle{}
	defer func(step uint64) {
		for tag, h := range handles { // complete here, or void; where it is, for one reason
			if err := h.Wait(ctx); err != nil && !settles { // else it may be that of what was settled
				x.say(fmt.Sprintf("group %d, round %d, step %d, operation %d", i, round, step, tag), me, size, x.subsets[i][me], err, "")
			}
		}
	}(step)
	step = g.Step()
	for _, call := range calls {
		time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
		h := g.Start(call.Op, call.Tag, call.Dst, call.Src)
		handles[call.Tag] = h
		if gives == me {
			short, cancel := context.WithTimeout(ctx, after)
			_ = h.Wait(short)
			cancel()
		}
		if settles && random.IntN(3) > 0 {
			_ = h.Wait(ctx)
		}
		if settles && g.Settle(ctx) != nil {
			break // Commit says why
		}
	}
	err = g.Commit(ctx, step)
	if odd {
		slices.SortFunc(calls, func(a, b collective.StartCall) int { return int(a.Tag) - int(b.Tag) })
	}
	h := fnv.New64a()
	for k, call := range calls {
		if err == nil && !odd && wants[k] != nil && !slices.Equal(call.Dst.Bytes, collective.Of(wants[k]).Bytes) {
			return "", fmt.Errorf("%w: %+v has made something else than %v", errWrong, call.Op, wants[k])
		}
		if call.Op.Kind == collective.AllReduce && err == nil {
			_, _ = h.Write(call.Dst.Bytes)
		}
		for b := range call.Dst.Bytes {
			call.Dst.Bytes[b] = 0xa5
		}
	}
	time.Sleep(2 * time.Millisecond)
	for _, call := range calls {
		for _, b := range call.Dst.Bytes {
			if b != 0xa5 {
				return "", fmt.Errorf("%w: %+v was written to after the step", errWrong, call.Op)
			}
		}
	}
	return fmt.Sprintf(", %x", h.Sum64()), err
}
