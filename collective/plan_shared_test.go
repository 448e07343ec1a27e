package collective

import (
	"math/rand/v2"
	"testing"

	"github.com/trivium-ml/trivium/tensor"
)

// TestRing runs the plans of two ranks in random orders, bells as late as can be, with contributions in the arena as a whole or block by block
// in a ring: whoever reads a block finds that one.
func TestRing(t *testing.T) {
	const block, blocks = 4, 11
	n := blocks*block - 1
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 9))
		inside := [2]bool{seed&1 != 0, seed&2 != 0}
		var plans [2]*Plan
		var left [2][]int32
		var rings [2][]int // what each slot of a rank's ring holds
		type item struct{ rank, task int }
		var ready []item
		for r := range plans {
			p := planOf(&job{Op: Op{Kind: AllReduce}, n: n, dtype: tensor.F32}, Shared, r, 2, block, 1<<20, nil, [2]bool{inside[r]})
			if p.Ring == 0 || p.Ring%block != 0 || p.Ring >= n {
				t.Fatalf("a ring of %d elements, of %d", p.Ring, n)
			}
			p.index(2)
			plans[r], left[r], rings[r] = p, append([]int32(nil), p.after...), make([]int, p.Ring/block)
			for _, i := range p.first {
				ready = append(ready, item{r, int(i)})
			}
		}
		var rung [2][blocks]bool // by number: they are rung in any order
		heard, summed := [2]int{}, [2]int{}
		for len(ready) > 0 {
			k := random.IntN(len(ready))
			at := ready[k]
			task := &plans[at.rank].Tasks[at.task]
			if task.Do == DoHear && !rung[1-at.rank][task.Chunk] {
				some := false
				for _, o := range ready {
					do := plans[o.rank].Tasks[o.task]
					some = some || do.Do != DoHear || rung[1-o.rank][do.Chunk]
				}
				if !some {
					t.Fatalf("seed %d: both wait, having summed %v blocks", seed, summed)
				}
				continue
			}
			ready = append(ready[:k], ready[k+1:]...)
			switch task.Do {
			case DoCopy:
				rings[at.rank][task.To.From/block%len(rings[at.rank])] = task.To.From / block
			case DoRing:
				rung[at.rank][task.Chunk] = true
			case DoHear:
				heard[at.rank]++
			case DoCombine:
				want := task.To.From / block
				for _, from := range task.From {
					for r := range 2 {
						if from.Buf == given(r) && r != at.rank && !inside[r] {
							if got := rings[r][want%len(rings[r])]; got != want {
								t.Fatalf("seed %d: rank %d reads block %d of rank %d where block %d is", seed, at.rank, want, r, got)
							}
						}
					}
				}
				summed[at.rank]++
			}
			for _, next := range plans[at.rank].Tasks[at.task].next {
				if left[at.rank][next]--; left[at.rank][next] == 0 {
					ready = append(ready, item{at.rank, int(next)})
				}
			}
		}
		if want := [2]int{blocks, blocks}; heard != want || summed != want {
			t.Fatalf("seed %d: %v blocks are heard of and %v summed, of %d", seed, heard, summed, blocks)
		}
	}
}
