package collective

import (
	"context"
	"hash/fnv"
	"math"
	"os"
	"runtime"
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
	const small, large, long = 1 << 10, 1 << 20, 4 << 20
	x, y := make([]float32, long/4), make([]float32, long/4)
	// least is the shortest time of an operation over some rounds of several, one after the other, as they come in a step. All ranks end
	// together: rank 0 says when the time is up.
	least := func(a Algorithm, bytes, each, n int) (float64, error) {
		best := math.Inf(1)
		for k := range n {
			stop := []uint8{0}
			if g.Rank() == 0 && k > 1 && time.Since(begin) > limit {
				stop[0] = 1
			}
			if err := BroadcastInto(ctx, g, stop, 0); err != nil {
				return 0, err
			}
			if stop[0] != 0 {
				break
			}
			at := time.Now()
			for i := range each {
				if err := g.Start(Op{Plan: a}, uint32(i), Of(y[i*bytes/4:(i+1)*bytes/4]), Of(x[:bytes/4])).Wait(ctx); err != nil {
					return 0, err
				}
			}
			best = min(best, time.Since(at).Seconds()/float64(each))
			if err := g.Commit(ctx, g.Step()); err != nil {
				return 0, err
			}
		}
		return best, nil
	}
	t0, err := least(Doubling, small, 32, 6)
	if err != nil {
		return Costs{}, err
	}
	t1, err := least(Ring, large, 4, 6)
	if err != nil {
		return Costs{}, err
	}
	t2, err := least(Ring, long, 1, 4)
	if err != nil {
		return Costs{}, err
	}
	// Are all on one host, with less than two cores each?
	here := hostNumber()
	far := []float64{here, -here, -float64(runtime.NumCPU())}
	if err := AllReduceInto(ctx, g, far, far, Max); err != nil {
		return Costs{}, err
	}
	p := float64(g.Size())
	mine := Costs{Gamma: measureGamma(), Crowded: far[0] == -far[1] && -far[2] < 2*p}
	hops := Costs{Alpha: 1, Crowded: mine.Crowded}.Predict(Doubling, g.Size(), 0, 1).Seconds()
	mine.Alpha = t0 / hops
	beta := func(t, n float64) float64 {
		return max((t-2*(p-1)*mine.Alpha-(p-1)/p*n*mine.Gamma)/(2*(p-1)/p*n), 1e-12)
	}
	mine.Beta, mine.Long = beta(t1, large), beta(t2, long)
	all := []float64{mine.Alpha, mine.Beta, mine.Gamma, mine.Long}
	if err := AllReduceInto(ctx, g, all, all, Mean); err != nil {
		return Costs{}, err
	}
	mine.Alpha, mine.Beta, mine.Gamma, mine.Long = all[0], all[1], all[2], all[3]
	g.SetCosts(mine)
	return mine, nil
}

// hostNumber is the same for processes of one host, and hardly for others.
func hostNumber() float64 {
	name, err := os.Hostname()
	if err != nil {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return float64(h.Sum32())
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
