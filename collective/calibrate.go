package collective

import (
	"context"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/tensor"
)

// calibrateEach is how long Calibrate measures for each rank, up to calibrateRanks of them; what it has begun then, it ends. Among more ranks an
// operation takes longer, on a host whose cores they share as much longer as they are more.
const (
	calibrateEach  = 500 * time.Millisecond
	calibrateRanks = 4
)

// Calibrate measures what operations cost among the ranks, in 500 ms for each of them and 2 s at most, and makes it the group's costs: all
// ranks call it, and all get the same. It takes steps of the group. What it finds is the cost while all ranks work, on the cores that they have.
func (g *Group) Calibrate(ctx context.Context) (Costs, error) {
	return g.CalibrateFor(ctx, calibrateEach*time.Duration(min(g.Size(), calibrateRanks)))
}

// CalibrateFor is Calibrate with another limit, that of rank 0: more time finds more of the long vectors, and disturbances count less.
func (g *Group) CalibrateFor(ctx context.Context, limit time.Duration) (Costs, error) {
	if g.Size() == 1 {
		return g.Costs(), nil
	}
	b := &bench{g: g}
	b.walk.grow(timedBytes[len(timedBytes)-1])
	b.gamma = measureGamma(atWork)
	b.until = time.Now().Add(limit)
	if _, err := g.timeBatch(ctx, Op{Plan: Doubling}, timedBytes[0], &b.walk); err != nil { // all have woken up
		return Costs{}, err
	}
	var err error
	if b.crowded, err = g.crowded(ctx); err != nil {
		return Costs{}, err
	}
	again := true
	for pass := 0; again; pass++ {
		again = false
		for _, cells := range passCells(pass) {
			ran, err := b.visit(ctx, cells, pass)
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
	count [len(timed)][len(timedBytes)]int       // visits after the first pass
	spent Times                                  // seconds of an operation on the slowest visit, which the next will hardly exceed
	walk  walk
	gamma float64

	crowded bool
}

// typical is the median of the batches: some of them meet other work on the machine. +Inf: none.
func (b *bench) typical(line, col int) float64 {
	list := b.took[line][col]
	if len(list) == 0 {
		return math.Inf(1)
	}
	return median.Of(list)
}

// A cell is an algorithm and a size, as places in timed and timedBytes.
type cell struct{ line, col int }

// passCells are the cells in the order of a pass. The first goes from size to size, and so do those of what the planner chooses: as in a run,
// each operation follows some of its own kind there. Passes over all cells go from algorithm to algorithm, for the same reason.
func passCells(pass int) (groups [][]cell) {
	var g []cell
	if pass > 0 && every(pass) {
		for line := range timed {
			for col := range timedBytes {
				g = append(g, cell{line, col})
			}
		}
		return [][]cell{g}
	}
	for col := range timedBytes {
		for line := range timed {
			g = append(g, cell{line, col})
		}
		if pass == 0 {
			groups, g = append(groups, g), nil
		}
	}
	if pass > 0 {
		groups = [][]cell{g}
	}
	return groups
}

// every says whether a pass is over all cells; the others have what the planner chooses.
func every(pass int) bool { return pass%4 == 0 }

// between says which sizes the first pass leaves out.
func between(bytes int) bool { return bytes == 1<<17 || bytes == 1<<21 || bytes > longMost }

// longMost is the longest vector of all passes. What is longer takes most of the time, and changes least from one visit to the next.
const longMost = 4 << 20

// batchesOf is how many batches of a size a visit to a cell has. Afterwards what goes before a batch pays for several. The first of several does
// not count: where ranks share cores it takes up to half as long again as those after it.
func batchesOf(bytes, pass int) int {
	switch {
	case pass == 0:
		return 1
	case bytes <= 1<<20:
		return 5
	}
	return 3
}

// visit measures cells, as far as they fit the time: rank 0 says which.
func (b *bench) visit(ctx context.Context, cells []cell, pass int) (ran bool, err error) {
	fit := make([]uint8, len(cells))
	if b.g.Rank() == 0 {
		b.want(cells, pass, fit)
	}
	if err := BroadcastInto(ctx, b.g, fit, 0); err != nil {
		return false, err
	}
	if pass > 0 && slices.Max(fit) > 0 {
		b.gamma = min(b.gamma, measureGamma(atWork)) // at work, as before operations of a run
	}
	for i, c := range cells {
		if fit[i] == 0 {
			continue
		}
		ran = true
		if err := b.batches(ctx, c, pass); err != nil {
			return false, err
		}
	}
	return ran, nil
}

// batchOps is how many operations of so many bytes are timed at once, one after the other, as they come in a step.
func batchOps(bytes int) int { return min(max((2<<20)/bytes, 1), 16) }

// beforeOps go before them: at their end all ranks have begun.
func beforeOps(bytes int) int { return 1 + batchOps(bytes)/4 }

// A walk is the memory of operations that come one after the other. Each has memory of its own, as the buckets of a gradient have, and
// a small one comes again soon enough to be in a cache: how much memory takes part decides what long vectors cost.
type walk struct {
	src, dst []float32
	at       int // elements
}

// walkBytes is how far operations of so many bytes walk before they begin again.
func walkBytes(bytes int) int { return max(min(max(16*bytes, 1<<20), 16<<20), bytes) }

// grow has memory for operations of so many bytes.
func (w *walk) grow(bytes int) {
	most := walkBytes(bytes) / 4
	if len(w.src) >= most {
		return
	}
	w.src, w.dst = make([]float32, most), make([]float32, most)
	for i := range w.src {
		w.src[i], w.dst[i] = float32(i%5), 1 // memory that was never written is a single page of zeros, which every cache holds
	}
}

// next is memory for an operation of so many elements.
func (w *walk) next(n int) (dst, src []float32) {
	most := walkBytes(4*n) / 4
	w.grow(4 * n)
	if w.at+n > most {
		w.at = 0
	}
	at := w.at
	w.at += n
	return w.dst[at:w.at], w.src[at:w.at]
}

// want marks what fits the time.
func (b *bench) want(cells []cell, pass int, fit []uint8) {
	const slow = 2.5
	left := time.Until(b.until).Seconds()
	needed := b.needed(pass)
	for i, c := range cells {
		a, n := timed[c.line], timedBytes[c.col]
		if a == GatherCast && (b.g.Size() == 2 || n > gatherMost) || a == Shared && b.g.c.arena == nil || a == Hierarchy && !b.g.c.layered() || !needed[c.line][c.col] ||
			n > longMost && b.count[c.line][c.col] > 0 || pass == 0 && between(n) {
			continue
		}
		each := b.spent[c.line][c.col]
		before := c.col - 1
		if before > 0 && between(timedBytes[before]) {
			before--
		}
		if each == 0 && c.col > 0 {
			if (a == Doubling || a == GatherCast) && b.typical(c.line, before) > slow*b.least(before) {
				continue // what is for small vectors is left out where it becomes slow
			}
			if each = b.spent[c.line][before] * float64(n) / float64(timedBytes[before]); each == 0 {
				continue // there was no time for what is shorter
			}
		}
		cost := each * float64(opsOf(n, pass))
		if cost > left && (pass > 0 || c.col > 0) { // something is measured in any case, however late the ranks wake up
			continue
		}
		left -= cost
		fit[i] = 1
	}
}

// needed says which cells a pass measures. The first has all, but where memory is shared, of what the planner does not choose there, only what
// the costs of a message and of a byte come from. Every fourth pass has all as well. The others have what the planner chooses, with the
// costs so far, for the sizes between those that are measured: the more often that is visited, the less does one disturbance count.
func (b *bench) needed(pass int) (cells [len(timed)][len(timedBytes)]bool) {
	shared := b.g.c.arena != nil
	if !every(pass) {
		c := b.found()
		c.fit(float64(c.Ranks))
		plain := c
		plain.Ranks = 0
		for col := range timedBytes[1:] {
			bytes := (timedBytes[col] + timedBytes[col+1]) / 2
			likely := []Algorithm{c.Choose(c.Ranks, bytes), plain.Choose(b.g.Size(), bytes)} // a single batch may mislead the one or the other
			switch {
			case shared && bytes >= sharedFrom:
				likely = []Algorithm{Shared}
			case b.g.c.layered() && bytes > smallBytes:
				likely = append(likely, Hierarchy)
			}
			for _, a := range likely {
				line := c.Times.of(a, b.g.Size())
				cells[line][col], cells[line][col+1] = true, true
			}
		}
		return cells
	}
	for line, a := range timed {
		for col, bytes := range timedBytes {
			cells[line][col] = pass > 0 || !shared || a == Shared || bytes <= sharedFrom || a == Ring && (bytes == fitBytes || bytes == fitLong)
		}
	}
	return cells
}

// found are the times at this rank so far.
func (b *bench) found() Costs {
	c := Costs{Ranks: b.g.Size(), Crowded: b.crowded, Gamma: b.gamma}
	for line := range timed {
		for col := range timedBytes {
			if s := b.typical(line, col); !math.IsInf(s, 1) {
				c.Times[line][col] = s
			}
		}
	}
	return c
}

// opsOf is how many operations of so many bytes a visit does.
func opsOf(bytes, pass int) int {
	return warmOps(bytes, pass) + batchesOf(bytes, pass)*(beforeOps(bytes)+batchOps(bytes))
}

func (b *bench) least(col int) float64 {
	least := math.Inf(1)
	for line := range timed {
		least = min(least, b.typical(line, col))
	}
	return least
}

// batches times operations of a cell. What the first pass found, where other algorithms were between, does not count beside that of others, nor what
// the visit after it found: ranks that share cores take up to a third longer then than later, until the system has settled who runs where.
func (b *bench) batches(ctx context.Context, c cell, pass int) error {
	begin := time.Now()
	n := timedBytes[c.col]
	count := batchesOf(n, pass)
	list, err := b.g.timeBatches(ctx, Op{Plan: timed[c.line]}, n, warmOps(n, pass), count, &b.walk)
	at, visits := &b.took[c.line][c.col], &b.count[c.line][c.col]
	if pass > 0 {
		*visits++
	}
	if *visits == 1 || *visits == 2 {
		*at = (*at)[:0]
	}
	*at = append(*at, list...)
	spent := &b.spent[c.line][c.col]
	*spent = max(*spent, time.Since(begin).Seconds()/float64(opsOf(n, pass)))
	return err
}

// timeBatches are the seconds of an operation in each of some batches. What goes before does not count: it brings what the algorithm walks
// over, and its own memory, where its own operations leave them. After those of another algorithm the first of 4 MiB among ranks that share
// memory takes up to a third longer than the next.
func (g *Group) timeBatches(ctx context.Context, op Op, bytes, warm, count int, w *walk) ([]float64, error) {
	if err := g.warm(ctx, op, bytes, warm, w); err != nil {
		return nil, err
	}
	var list []float64
	for i := range count {
		d, err := g.timeBatch(ctx, op, bytes, w)
		if err != nil {
			return nil, err
		}
		if i > 0 || count == 1 {
			list = append(list, d.Seconds())
		}
	}
	return list, nil
}

// warmOps are the operations that go once over all memory that those of so many bytes walk over, or, where they are small and that matters
// little, over some; and over all memory of their own that those of a batch have. The first pass, which is to reach long vectors in time, has
// less.
func warmOps(bytes, pass int) int {
	batch := beforeOps(bytes) + batchOps(bytes)
	switch {
	case pass > 0:
		return max(min(walkBytes(bytes)/bytes, 16), batch)
	case bytes <= 1<<20:
		return batch
	}
	return 0
}

// warm does operations that do not count.
func (g *Group) warm(ctx context.Context, op Op, bytes, ops int, w *walk) error {
	for i := range ops {
		dst, src := w.next(bytes / 4)
		if err := g.Start(op, uint32(i), Of(dst), Of(src)).Wait(ctx); err != nil {
			return err
		}
	}
	return g.Commit(ctx, g.Step())
}

// timeBatch is the time of one of some operations, in a step of their own.
func (g *Group) timeBatch(ctx context.Context, op Op, bytes int, w *walk) (time.Duration, error) {
	ops, before := batchOps(bytes), beforeOps(bytes)
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
	c := b.found()
	all := []float64{c.Gamma}
	for _, line := range c.Times {
		all = append(all, line[:]...)
	}
	if err := AllReduceInto(ctx, b.g, all, all, Mean); err != nil {
		return Costs{}, err
	}
	c.Gamma = all[0]
	for line := range c.Times {
		copy(c.Times[line][:], all[1+line*len(timedBytes):])
	}
	c.smooth(b.few())
	c.fit(float64(c.Ranks))
	return c, nil
}

// few says of which cells there are fewer than three batches: of three the median is none that was disturbed alone.
func (b *bench) few() (cells [len(timed)][len(timedBytes)]bool) {
	for line := range timed {
		for col := range timedBytes {
			cells[line][col] = len(b.took[line][col]) < 3
		}
	}
	return cells
}

// smooth takes out what can only be a disturbance, where a cell was measured for a short while on a busy machine. Halving and the ring send and
// add the same long vectors, so that neither takes much longer. Two ranks send the same bytes by each algorithm: doubling in one message, with
// twice the additions.
func (c *Costs) smooth(few [len(timed)][len(timedBytes)]bool) {
	const much = 1.25
	doubling, halving, ring := c.Times.of(Doubling, 2), c.Times.of(Halving, 2), c.Times.of(Ring, 2)
	for col, n := range timedBytes {
		d, h, r := c.Times[doubling][col], c.Times[halving][col], c.Times[ring][col]
		most := [len(timed)]float64{}
		for line := range most {
			most[line] = math.Inf(1)
		}
		if (c.Ranks == 2 || n >= 1<<20) && h > 0 && r > 0 {
			most[halving], most[ring] = much*r, much*h
		}
		if c.Ranks == 2 && d > 0 && h > 0 {
			most[doubling] = h + float64(n)/2*c.Gamma
			most[halving] = min(most[halving], d+c.Times[doubling][0])
		}
		for line := range most {
			if at := &c.Times[line][col]; few[line][col] {
				*at = min(*at, most[line])
			}
		}
	}
}

// fitBytes and fitLong are the sizes that Beta and Long come from, if there is time for them.
const fitBytes, fitLong = 1 << 20, 4 << 20

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
	c.Beta, c.Long = beta(fitBytes), beta(fitLong)
	if slope := c.slope(); slope > 0 && c.Times[c.Times.of(Ring, c.Ranks)][slices.Index(timedBytes[:], fitBytes)] == 0 {
		c.Beta, c.Long = slope, slope
	}
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

// atWork is how long ranks compute before they are measured. Two that were idle, or wake each other up, often share a processor while
// another is free, for a tenth of a second or more; the system finds that out where both compute, as between the operations of a run.
const atWork = 12 * time.Millisecond

// measureGamma times the addition of a segment that lies in the cache, as one that has just been received does: for a while, and once however late
// a busy machine lets it begin.
func measureGamma(while time.Duration) float64 {
	const n = 64 << 10
	a, b := tensor.AlignedBytes(n), tensor.AlignedBytes(n)
	best := math.Inf(1)
	for begin := time.Now(); math.IsInf(best, 1) || time.Since(begin) < while; {
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
