package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// A jitteryStream sends every fourth frame up to 200 µs late.
type jitteryStream struct {
	transport.Stream
	mu     sync.Mutex
	random *rand.Rand
}

// Send implements transport.Stream.
func (s *jitteryStream) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	s.mu.Lock()
	late := s.random.IntN(4) == 0
	d := time.Duration(s.random.IntN(200)) * time.Microsecond
	s.mu.Unlock()
	if late {
		time.Sleep(d) // in a bubble of synctest
	}
	return s.Stream.Send(ctx, to, f)
}

// A randomOp is a sum of n elements, or each rank's part of it, or is put together of such parts; which all ranks settle, which one rank gives up, or of which one has an element more; -1: none.
type randomOp struct {
	kind        collective.Kind
	n           int
	codec       compress.Codec
	plain       int
	plan        collective.Algorithm
	settle      bool
	odd, cancel int
	after       time.Duration // when cancel gives up
}

// TestRandomSteps: of random sums, some of which fail, the ranks have the same results and the same errors, soon; and once a step is over, or
// settled, nothing lands in memory that is the caller's again.
func TestRandomSteps(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	failed := 0
	memory := tensor.AlignedBytes(5 * 8 << 20) // of five ranks, each four times what the sums of a step take
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { failed += randomSteps(t, seed, memory) })
	}
	if failed < int(seeds)/2 {
		t.Errorf("%d steps of %d seeds failed: the test has lost its sting", failed, seeds)
	}
}

// randomSteps does the steps of a seed. Of every other seed the ranks share memory.
func randomSteps(t *testing.T, seed uint64, memory []byte) (failed int) {
	const steps = 5
	random := rand.New(rand.NewPCG(seed, 0))
	size := 2 + random.IntN(4)
	var hosts [][]int
	if each := random.IntN(3); each > 0 {
		hosts = collective.HostsOf(size, each)
		random.Shuffle(size, func(i, k int) { // another rank in each place
			a, b := &hosts[i/each][i%each], &hosts[k/each][k%each]
			*a, *b = *b, *a
		})
	}
	streams := uint64(0)
	w := openWith(t, inMemory, size, collective.Options{Segment: 16 << 10, MaxFrame: 32 << 10, Window: 128 << 10}, hosts, func(s transport.Stream) transport.Stream {
		streams++
		return &jitteryStream{Stream: s, random: rand.New(rand.NewPCG(seed, streams))}
	})
	defer w.close()
	if seed%2 == 1 {
		collective.ShareHere(w.groups, memory)
	}
	var plan [steps][]randomOp
	for s := range plan {
		for range 1 + random.IntN(4) {
			op := randomOp{
				n: []int{0, 1, 3, 100, 5000, 30000, 60001}[random.IntN(7)], plan: collective.Algorithm(random.IntN(int(collective.Shared) + 1)), settle: random.IntN(3) == 0,
				odd: -1, cancel: -1, after: time.Duration(random.IntN(600)) * time.Microsecond,
			}
			switch random.IntN(4) {
			case 0:
				op.kind = collective.ReduceScatter
			case 1:
				op.kind = collective.AllGather
			case 2:
				op.codec = compress.F16{} // what is added are small whole numbers: they lose nothing
				op.plain = min(op.n, random.IntN(3))
			}
			switch random.IntN(12) {
			case 0:
				op.odd = random.IntN(size)
			case 1, 2:
				op.cancel = random.IntN(size)
			}
			plan[s] = append(plan[s], op)
		}
	}
	said := make([][steps]string, size)
	w.must(func(r int, g *collective.Group) error {
		random := rand.New(rand.NewPCG(seed, uint64(100+r)))
		for s, ops := range plan {
			begin := time.Now()
			err := randomStep(t.Context(), g, uint64(s), ops, random)
			said[r][s] = fmt.Sprint(err)
			if errors.Is(err, errWrong) || time.Since(begin) > 2*time.Second {
				return fmt.Errorf("seed %d, step %d, rank %d: %w, after %v", seed, s, r, err, time.Since(begin))
			}
		}
		return nil
	})
	for r := range said {
		if said[r] != said[0] {
			t.Fatalf("seed %d: rank 0 has %q\nrank %d has %q", seed, said[0], r, said[r])
		}
	}
	for _, text := range said[0] {
		if text != fmt.Sprint(nil) {
			failed++
		}
	}
	return failed
}

var errWrong = errors.New("wrong")

// randomStep does ops at one rank, and returns the error of the step, which all must have.
func randomStep(ctx context.Context, g *collective.Group, step uint64, ops []randomOp, random *rand.Rand) error {
	type result struct {
		y  []float32
		at int // of all elements
	}
	sum := func(i int) float32 { return float32(g.Size() * (g.Size() + 1) / 2 * (i%17 + 1)) }
	var ours, theirs []result // what is the caller's, and the group's
	take := func(good bool) error {
		for _, x := range theirs {
			for i, v := range x.y {
				if want := sum(x.at + i); good && v != want {
					return fmt.Errorf("%w: element %d is %v, want %v", errWrong, x.at+i, v, want)
				}
				x.y[i] = -1
			}
		}
		ours, theirs = append(ours, theirs...), nil
		return nil
	}
	for tag, op := range ops {
		n := op.n
		if op.odd == g.Rank() {
			n++
		}
		x, y := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i] = float32((g.Rank() + 1) * (i%17 + 1))
		}
		counts, at, from, to := []int(nil), 0, g.Rank()*n/g.Size(), (g.Rank()+1)*n/g.Size()
		switch op.kind {
		case collective.ReduceScatter:
			y, at = y[from:to], from
		case collective.AllGather:
			x, counts = x[from:to], make([]int, g.Size())
			for r := range counts {
				counts[r] = (r+1)*n/g.Size() - r*n/g.Size()
			}
			for i := range x {
				x[i] = sum(from + i)
			}
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		h := g.Start(collective.Op{Kind: op.kind, Codec: op.codec, Plain: op.plain, Counts: counts, Plan: op.plan}, uint32(tag), collective.Of(y), collective.Of(x))
		theirs = append(theirs, result{y, at})
		if op.cancel == g.Rank() {
			short, cancel := context.WithTimeout(ctx, op.after)
			_ = h.Wait(short) // Commit says it too
			cancel()
		}
		if !op.settle {
			continue
		}
		if g.Settle(ctx) != nil {
			break // Commit says why
		}
		if err := take(true); err != nil {
			return err
		}
	}
	err := g.Commit(ctx, step)
	if wrong := take(err == nil); wrong != nil {
		return wrong
	}
	time.Sleep(2 * time.Millisecond) // whatever was on its way has come
	for _, x := range ours {
		for i, v := range x.y {
			if v != -1 {
				return fmt.Errorf("%w: after the step element %d became %v", errWrong, x.at+i, v)
			}
		}
	}
	return err
}
