package collective

import (
	"context"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/tensor"
)

// calibrateWithin is how long Calibrate measures; what it has begun then, it ends.
const calibrateWithin = 150 * time.Millisecond

// Calibrate measures what operations cost among the ranks, within 200 ms, and makes it the group's costs: all ranks call it, and all get
// the same. It takes steps of the group. What it finds is the cost while all ranks work, on the cores that they have.
func (g *Group) Calibrate(ctx context.Context) (Costs, error) {
	return g.CalibrateFor(ctx, calibrateWithin)
}

// CalibrateFor is Calibrate with another limit, that of rank 0: more time finds more of the long vectors, and disturbances count less.
func (g *Group) CalibrateFor(ctx context.Context, limit time.Duration) (Costs, error) {
	if g.Size() == 1 {
		return g.Costs(), nil
	}
	b := &bench{g: g, until: time.Now().Add(limit)}
	if _, err := g.timeBatch(ctx, Op{Plan: Doubling}, timedBytes[0], &b.walk); err != nil { // all have woken up
		return Costs{}, err
	}
	again := true
	for pass := 0; again; pass++ {
		again = false
		for col := range timedBytes {
			ran, err := b.column(ctx, col, batchesOf(timedBytes[col], pass))
			if err != nil {
				return Costs{}, err
			}
			again = again || ran
		}
	}
	c, err := b.costs(ctx)
	if err != nil {
		return Costs{}, err
	}
	g.SetCosts(c)
	return c, nil
}

// A bench is a calibration under way.
type bench struct {
	g     *Group
	until time.Time
	took  [len(timed)][len(timedBytes)][]float64 // seconds of an operation, in each batch
	spent Times                                  // the longest batch, which the next will hardly exceed
	walk  walk
}

// typical is the median of the batches: some of them meet other work on the machine. +Inf: none.
func (b *bench) typical(line, col int) float64 {
	list := b.took[line][col]
	if len(list) == 0 {
		return math.Inf(1)
	}
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// batchesOf is how many batches of a size a pass has: small operations take little time, and scatter most. The first pass is for all sizes.
func batchesOf(bytes, pass int) int {
	if pass > 0 && bytes <= 64<<10 {
		return 3
	}
	return 1
}

// column measures some batches of a size by each algorithm, as far as they fit the time.
func (b *bench) column(ctx context.Context, col, batches int) (ran bool, err error) {
	lines, err := b.agree(ctx, col)
	for line := range timed {
		if err == nil && lines&(1<<line) != 0 {
			ran = true
			err = b.batches(ctx, line, col, batches)
		}
	}
	return ran, err
}

// batchOps is how many operations of so many bytes are timed at once, one after the other, as they come in a step. Some go before,
// at whose end all ranks have begun.
func batchOps(bytes int) int { return min(max((2<<20)/bytes, 1), 16) }

// A walk is the memory of operations that come one after the other. Each has memory of its own, as the buckets of a gradient have, and
// a small one comes again soon enough to be in a cache: how much memory takes part decides what long vectors cost.
type walk struct {
	src, dst []float32
	at       int // elements
}

// walkBytes is how far operations of so many bytes walk before they begin again.
func walkBytes(bytes int) int { return max(min(max(16*bytes, 1<<20), 16<<20), bytes) }

// next is memory for an operation of so many elements.
func (w *walk) next(n int) (dst, src []float32) {
	most := walkBytes(4*n) / 4
	if len(w.src) < most {
		w.src, w.dst = make([]float32, most), make([]float32, most)
		for i := range w.src {
			w.src[i], w.dst[i] = float32(i%5), 1 // memory that was never written is a single page of zeros, which every cache holds
		}
	}
	if w.at+n > most {
		w.at = 0
	}
	at := w.at
	w.at += n
	return w.dst[at:w.at], w.src[at:w.at]
}

// agree tells all ranks what rank 0 wants to measure of a size: a bit for each line.
func (b *bench) agree(ctx context.Context, col int) (uint8, error) {
	lines := []uint8{0}
	if b.g.Rank() == 0 {
		lines[0] = b.want(col)
	}
	err := BroadcastInto(ctx, b.g, lines, 0)
	return lines[0], err
}

// want is what fits the time.
func (b *bench) want(col int) uint8 {
	const slow = 2.5
	left := time.Until(b.until).Seconds()
	var lines uint8
	for line, a := range timed {
		if a == GatherCast && (b.g.Size() == 2 || timedBytes[col] > gatherMost) || a == Shared && b.g.c.arena == nil {
			continue
		}
		cost := b.spent[line][col]
		if cost == 0 && col > 0 {
			if (a == Doubling || a == GatherCast) && b.typical(line, col-1) > slow*b.least(col-1) {
				continue // what is for small vectors is left out where it becomes slow
			}
			grow := float64(timedBytes[col]*(1+batchOps(timedBytes[col]))) / float64(timedBytes[col-1]*(1+batchOps(timedBytes[col-1])))
			cost = b.spent[line][col-1] * max(grow, 1)
		}
		if cost > left {
			continue
		}
		left -= cost
		lines |= 1 << line
	}
	return lines
}

func (b *bench) least(col int) float64 {
	least := math.Inf(1)
	for line := range timed {
		least = min(least, b.typical(line, col))
	}
	return least
}

// batches times operations of a size by one algorithm.
func (b *bench) batches(ctx context.Context, line, col, count int) error {
	begin := time.Now()
	list, err := b.g.timeBatches(ctx, Op{Plan: timed[line]}, timedBytes[col], count, &b.walk)
	b.took[line][col] = append(b.took[line][col], list...)
	b.spent[line][col] = max(b.spent[line][col], time.Since(begin).Seconds())
	return err
}

// inCache is up to where it matters for an operation whether those before it were by the same algorithm, and so on the same memory.
const inCache = 2 << 20

// timeBatches are the seconds of an operation in each of some batches, after one that does not count where it matters what was before.
func (g *Group) timeBatches(ctx context.Context, op Op, bytes, count int, w *walk) ([]float64, error) {
	var list []float64
	if bytes <= inCache {
		if _, err := g.timeBatch(ctx, op, bytes, w); err != nil {
			return nil, err
		}
	}
	for range count {
		d, err := g.timeBatch(ctx, op, bytes, w)
		if err != nil {
			return nil, err
		}
		list = append(list, d.Seconds())
	}
	return list, nil
}

// timeBatch is the time of one of some operations, in a step of their own.
func (g *Group) timeBatch(ctx context.Context, op Op, bytes int, w *walk) (time.Duration, error) {
	ops := batchOps(bytes)
	before := 1 + ops/4
	var at time.Time
	for i := range before + ops {
		if i == before {
			at = time.Now()
		}
		dst, src := w.next(bytes / 4)
		if err := g.Start(op, uint32(i), Of(dst), Of(src)).Wait(ctx); err != nil {
			return 0, err
		}
	}
	took := time.Since(at) / time.Duration(ops)
	return took, g.Commit(ctx, g.Step())
}

// costs are what all ranks have found, on the average.
func (b *bench) costs(ctx context.Context) (Costs, error) {
	p := float64(b.g.Size())
	crowded, err := b.g.crowded(ctx)
	if err != nil {
		return Costs{}, err
	}
	c := Costs{Ranks: b.g.Size(), Crowded: crowded}
	all := []float64{measureGamma()}
	for line := range timed {
		for col := range timedBytes {
			s := b.typical(line, col)
			if math.IsInf(s, 1) {
				s = 0 // not measured
			}
			all = append(all, s)
		}
	}
	if err := AllReduceInto(ctx, b.g, all, all, Mean); err != nil {
		return Costs{}, err
	}
	c.Gamma = all[0]
	for line := range c.Times {
		copy(c.Times[line][:], all[1+line*len(timedBytes):])
	}
	if b.fewest() < 3 {
		c.smooth()
	}
	c.fit(p)
	return c, nil
}

// fewest is how many batches there are of each size and algorithm that was measured at all, at least. Of three the median is none that was
// disturbed alone.
func (b *bench) fewest() int {
	least := math.MaxInt
	for line := range timed {
		for col := range timedBytes {
			if n := len(b.took[line][col]); n > 0 {
				least = min(least, n)
			}
		}
	}
	return least
}

// smooth takes out what can only be a disturbance, in a calibration of a short while on a busy machine. Halving and the ring send and add
// the same long vectors, so that neither takes much longer. Two ranks send the same bytes by each algorithm: doubling in one message, with
// twice the additions.
func (c *Costs) smooth() {
	const much = 1.25
	d, h, r := &c.Times[c.Times.of(Doubling, 2)], &c.Times[c.Times.of(Halving, 2)], &c.Times[c.Times.of(Ring, 2)]
	for col, n := range timedBytes {
		if (c.Ranks == 2 || n >= 1<<20) && h[col] > 0 && r[col] > 0 {
			h[col], r[col] = min(h[col], much*r[col]), min(r[col], much*h[col])
		}
		if c.Ranks == 2 && d[col] > 0 && h[col] > 0 {
			d[col], h[col] = min(d[col], h[col]+float64(n)/2*c.Gamma), min(h[col], d[col]+d[0])
		}
	}
}

// fit finds the parameters of the formulas, for what was not measured.
func (c *Costs) fit(p float64) {
	took := func(a Algorithm, bytes float64) float64 {
		s, _ := c.Times.at(c.Times.of(a, c.Ranks), bytes, func(n float64) float64 { return guess.formula(a, c.Ranks, n, 1) })
		return s
	}
	hops := Costs{Alpha: 1, Crowded: c.Crowded}.Predict(Doubling, c.Ranks, 0, 1).Seconds()
	c.Alpha = took(Doubling, 1<<10) / hops
	beta := func(n float64) float64 {
		return max((took(Ring, n)-2*(p-1)*c.Alpha-(p-1)/p*n*c.Gamma)/(2*(p-1)/p*n), 1e-12)
	}
	c.Beta, c.Long = beta(1<<20), beta(4<<20)
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
