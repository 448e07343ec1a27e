package collective

import (
	"context"
	"math"
	"time"

	"github.com/trivium-ml/trivium/tensor"
)

// Calibrate measures α, β and γ among the ranks, within 200 ms, and makes them the group's: all ranks call it, and all get the same. It
// takes steps of the group. What it finds is what operations cost while all ranks work, on the cores that they have.
func (g *Group) Calibrate(ctx context.Context) (Costs, error) {
	if g.Size() == 1 {
		return g.Costs(), nil
	}
	begin := time.Now()
	const limit = 150 * time.Millisecond
	small, large := 1<<10, 1<<20
	x := make([]float32, large/4)
	y := make([]float32, large/4)
	// least is the shortest of up to n operations, which all ranks end together: rank 0 says when the time is up.
	least := func(a Algorithm, bytes, n int) (float64, error) {
		best := math.Inf(1)
		for k := range n {
			step := g.Step()
			stop := []uint8{0}
			if g.Rank() == 0 && k > 1 && time.Since(begin) > limit {
				stop[0] = 1
			}
			if err := g.Start(Op{Kind: Broadcast}, 1, Of(make([]uint8, 1)), Of(stop)).Wait(ctx); err != nil {
				return 0, err
			}
			at := time.Now()
			if err := g.Start(Op{Plan: a}, 0, Of(y[:bytes/4]), Of(x[:bytes/4])).Wait(ctx); err != nil {
				return 0, err
			}
			best = min(best, time.Since(at).Seconds())
			if err := g.Commit(ctx, step); err != nil {
				return 0, err
			}
		}
		return best, nil
	}
	t0, err := least(Doubling, small, 12)
	if err != nil {
		return Costs{}, err
	}
	t1, err := least(Ring, large, 8)
	if err != nil {
		return Costs{}, err
	}
	gamma := measureGamma()
	p := float64(g.Size())
	hops := math.Ceil(math.Log2(p))
	if math.Exp2(hops) != p {
		hops = math.Floor(math.Log2(p)) + 2
	}
	mine := []float64{t0 / hops, 0, gamma}
	n := float64(large)
	mine[1] = max((t1-2*(p-1)*mine[0]-(p-1)/p*n*gamma)/(2*(p-1)/p*n), 1e-12)
	if err := g.AllReduce64(ctx, mine); err != nil {
		return Costs{}, err
	}
	c := Costs{mine[0] / p, mine[1] / p, mine[2] / p}
	g.SetCosts(c)
	return c, nil
}

// measureGamma times the addition of a segment that lies in the cache, as one that has just been received does.
func measureGamma() float64 {
	const n = 64 << 10
	a, b := tensor.AlignedBytes(n), tensor.AlignedBytes(n)
	best := math.Inf(1)
	for range 20 {
		at := time.Now()
		combine(tensor.F32, Sum, a, a, b)
		best = min(best, time.Since(at).Seconds()/n)
	}
	return best
}

// Costs are those that plans are chosen by.
func (g *Group) Costs() Costs {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	return g.c.costs()
}

// SetCosts changes them, between two steps: all ranks must set the same.
func (g *Group) SetCosts(c Costs) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	g.c.planner = &c
	clear(g.c.known) // what they have chosen
}
