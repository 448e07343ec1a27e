package collective

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Costs describe a group's links and memory, in seconds: Alpha for a message, Beta for a byte sent, Gamma for a byte reduced.
type Costs struct {
	Alpha, Beta, Gamma float64

	// Long is Beta for vectors that fit no cache, from 4 MiB on; between 1 and 4 MiB lies a mixture. 0: Beta.
	Long float64
	// Crowded says that the ranks have fewer processor cores than they could use: then what counts is the work of all together, not that
	// of the busiest.
	Crowded bool

	// What Calibrate measured among so many ranks, for them alone; the rest describes any number of them.
	Ranks int   `json:",omitzero"`
	Times Times `json:",omitzero"`
}

// Times are the seconds of an allreduce, by algorithm and size: a line for each of timed, and a column for each of timedBytes; 0: not
// measured. Between two sizes time is taken to grow linearly.
type Times [len(timed)][len(timedBytes)]float64

// timed are the algorithms among which the planner chooses.
var timed = [...]Algorithm{Doubling, Halving, Ring, GatherCast, Shared, Hierarchy}

// timedBytes reach from what is all message to what is all memory: below 1 KiB nothing changes, and what happens in caches happens between
// 64 KiB and 16 MiB.
var timedBytes = [...]int{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 24}

// of is the line of a; -1: it has none. The plans of one rounding and of the exact tree move what a ring, or halving and doubling, moves.
func (t *Times) of(a Algorithm, p int) int {
	switch {
	case a == ExactTree && p&(p-1) == 0:
		a = Halving
	case a == ExactTree || a == Pairwise:
		a = Ring
	}
	return slices.Index(timed[:], a)
}

// at is what the measurements of one algorithm say about a size; false: there are none. Beyond the last of them, time grows as formula
// says, unless there are two among long vectors, which is better evidence.
func (t *Times) at(line int, bytes float64, formula func(bytes float64) float64) (float64, bool) {
	var x, y []float64
	for i, s := range t[line] {
		if s > 0 {
			x, y = append(x, float64(timedBytes[i])), append(y, s)
		}
	}
	n := len(x)
	switch {
	case n == 0:
		return 0, false
	case bytes <= x[0]:
		return y[0], true
	case bytes > x[n-1] && (n == 1 || x[n-2] < 1<<20):
		return y[n-1] + max(formula(bytes)-formula(x[n-1]), 0), true
	}
	i := 1
	for i < n-1 && bytes > x[i] {
		i++
	}
	slope := max((y[i]-y[i-1])/(x[i]-x[i-1]), 0)
	return y[i-1] + slope*(bytes-x[i-1]), true
}

// slope is what a byte costs a slow link, on which there is time for short sums alone: by those of the longest that was measured. 0: they took hardly
// longer than those of the shortest.
func (c *Costs) slope() float64 {
	const hardly = 1.25
	for col := len(timedBytes) - 1; col > 0; col-- {
		for _, a := range []Algorithm{Ring, Halving, Doubling} {
			t := &c.Times[c.Times.of(a, c.Ranks)]
			if t[col] == 0 {
				continue
			}
			if t[col] < hardly*t[0] {
				return 0
			}
			grows := func(by Costs) float64 {
				by.Crowded = c.Crowded
				return by.formula(a, c.Ranks, float64(timedBytes[col]), 1) - by.formula(a, c.Ranks, float64(timedBytes[0]), 1)
			}
			return max((t[col]-t[0]-grows(Costs{Gamma: c.Gamma}))/grows(Costs{Beta: 1}), 0)
		}
	}
	return 0
}

// guess is two processes on one machine of 2024, over TCP, without calibration.
var guess = Costs{Alpha: 20e-6, Beta: 0.4e-9, Gamma: 0.1e-9}

// beta is Beta for a vector of so many bytes.
func (c Costs) beta(bytes float64) float64 {
	if c.Long == 0 {
		return c.Beta
	}
	mix := min(max(math.Log2(bytes/(1<<20))/2, 0), 1)
	return c.Beta + mix*(c.Long-c.Beta)
}

func (c Costs) validate() error {
	all := []float64{c.Alpha, c.Beta, c.Gamma, c.Long}
	for _, line := range c.Times {
		all = append(all, line[:]...)
	}
	for _, x := range all {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("collective: costs %+v: want seconds, 0 or more", c)
		}
	}
	return nil
}

// Predict is the time that an allreduce of so many bytes takes p ranks by algorithm a, in k segments where that matters (Tree): as it was
// measured among p ranks, or else by the formulas of the design.
func (c Costs) Predict(a Algorithm, p, bytes, k int) time.Duration {
	if p < 2 {
		return 0
	}
	formula := func(bytes float64) float64 { return c.formula(a, p, bytes, k) }
	if line := c.Times.of(a, p); p == c.Ranks && line >= 0 {
		if s, ok := c.Times.at(line, float64(bytes), formula); ok {
			return time.Duration(s * 1e9)
		}
	}
	return time.Duration(formula(float64(bytes)) * 1e9)
}

// formula is the design's, in seconds.
func (c Costs) formula(a Algorithm, p int, n float64, k int) float64 {
	ranks := float64(p)
	c.Beta = c.beta(n)
	log := math.Floor(math.Log2(ranks))
	up := math.Ceil(math.Log2(ranks))
	most := (ranks - 1) / ranks
	var s float64
	switch a {
	case GatherCast:
		s = 2*(ranks-1)*(c.Alpha+n*c.Beta) + (ranks-1)*n*c.Gamma
	case Halving:
		q := math.Exp2(log)
		s = c.folded(2*log*c.Alpha+2*(q-1)/q*n*c.Beta+(q-1)/q*n*c.Gamma, q, ranks, n)
	case Doubling:
		s = c.folded(log*(c.Alpha+n*c.Beta)+log*n*c.Gamma, math.Exp2(log), ranks, n)
	case Shared: // in, summed and out, at the speed of memory; two bells
		s = 2*log*c.Alpha + 3*n*c.Gamma
	case Tree:
		k := float64(max(k, 1))
		s = 2*(up+k-1)*(c.Alpha+n*c.Beta/k) + up*n*c.Gamma
	default: // Ring, Pairwise, ExactTree
		s = 2*(ranks-1)*c.Alpha + 2*most*n*c.Beta + most*n*c.Gamma
	}
	return s
}

// PredictKind is the time that another operation than an allreduce takes p ranks over one kind of link: ReduceScatter and AllGather of parts that
// are so many bytes together and equally long, by either plan of the latter, and Broadcast and ReduceTo of so many bytes in k segments. 0: there is
// no formula for it.
func (c Costs) PredictKind(kind Kind, p, bytes, k int) time.Duration {
	if p < 2 {
		return 0
	}
	n, ranks, segments := float64(bytes), float64(p), float64(max(k, 1))
	beta, up := c.beta(n), math.Ceil(math.Log2(ranks)) // up: the tree's height, and the children of its root
	var s float64
	switch kind {
	case ReduceScatter: // to each other rank its part
		s = (ranks - 1) * (c.Alpha + n/ranks*(beta+c.Gamma))
	case AllGather: // the own part to each, or one part after the other round the ring
		s = (ranks - 1) * (c.Alpha + n/ranks*beta)
	case Broadcast: // the root sends each segment to each of its children, and the last one of that has none
		s = up * (segments*c.Alpha + n*beta)
	case ReduceTo: // a segment goes up the tree; behind it come the others, as fast as a link carries them or the root adds
		send, add := c.Alpha+n/segments*beta, n/segments*c.Gamma
		s = up*(send+add) + (segments-1)*max(send, up*add)
	}
	return time.Duration(s * 1e9)
}

// folded is s, the time among a power of two of the ranks, and what it takes the others to give their vectors before and get them after.
func (c Costs) folded(s, power, ranks, n float64) float64 {
	if power == ranks {
		return s
	}
	extra := 2*(c.Alpha+n*c.Beta) + n*c.Gamma
	if c.Crowded {
		return (power*s + (ranks-power)*extra) / ranks
	}
	return s + extra
}

// A Measurement is an operation that completed, with what was predicted.
type Measurement struct {
	Step      uint64
	Tag       uint32
	Kind      Kind
	Algorithm Algorithm
	Ranks     int
	Bytes     int           // of the vector, also where a codec makes less of it
	Codec     string        // empty: none
	Predicted time.Duration // 0: no prediction, as of Hierarchy but an AllReduce after Calibrate, with a codec, and of kinds without a formula
	Took      time.Duration // from Start, so with the wait for ranks that started later
}

func (c *core) measured(o *operation) Measurement {
	m := Measurement{Step: c.step, Tag: o.tag, Kind: o.Kind, Algorithm: o.plan.Algorithm, Ranks: c.size(), Bytes: o.n * o.dtype.Size(), Took: c.now - o.started}
	if o.Codec != nil {
		m.Codec = o.Codec.String() // who has measured what that costs, predicts it himself
	} else {
		m.Predicted = c.predict(o.job, m.Algorithm)
	}
	return m
}

// predict is the time that j, which has no codec, takes by algorithm a; 0: there is no prediction.
func (c *core) predict(j *job, a Algorithm) time.Duration {
	bytes, size := j.n*j.dtype.Size(), c.size()
	segment := max(c.segment(j, a), 1)
	segments := (bytes + segment - 1) / segment
	known := a != Hierarchy // the formulas know one kind of link
	switch {
	case j.Kind == AllReduce && (known || c.costs().measured(Hierarchy, size)):
		return c.costs().Predict(a, size, bytes, segments)
	case j.Kind != AllReduce && known:
		if j.Kind == ReduceScatter || j.Kind == AllGather { // the longest part is waited for
			bytes = slices.Max(j.Counts) * j.dtype.Size() * size
		}
		return c.costs().PredictKind(j.Kind, size, bytes, segments)
	}
	return 0
}

func (c *core) costs() Costs {
	if c.planner == nil || *c.planner == (Costs{}) {
		return guess
	}
	return *c.planner
}

// choose is the algorithm for j: all ranks have the same costs, and have asked for as much of shared memory, and so choose the same.
func (c *core) choose(j *job) Algorithm {
	bytes := j.n * j.dtype.Size()
	switch {
	case j.Kind == AllGather && bytes <= smallBytes:
		return Doubling // to everyone at once
	case (j.Kind == AllGather || j.Kind == ReduceScatter) && (j.Plan == Hierarchy && len(c.hosts) > 0 || j.Plan == Auto && c.layered() && bytes > smallBytes):
		return Hierarchy
	case j.Kind != AllReduce:
		return Direct
	case j.Codec != nil && (j.Plan == Hierarchy && len(c.hosts) > 0 || j.Plan == Auto && c.layered() && bytes > smallBytes):
		return Hierarchy // what a host's ranks sum is encoded once: that is less to encode, and less to send to others
	case j.Codec != nil && (j.Plan == GatherCast || j.Plan == Auto && c.costs().Crowded && c.size() > 2 && bytes <= codedMost):
		return GatherCast
	case j.Codec != nil:
		return Pairwise
	case j.Plan == Shared && !c.fits(bytes):
		return Pairwise
	case c.sumsBy(j.Plan) && (j.Shards == 0 || j.Plan == Doubling):
		return j.Plan
	case j.Shards > 0:
		if costs := c.costs(); costs.Predict(Doubling, c.size(), bytes, 1) < costs.Predict(ExactTree, c.size(), bytes, 1) {
			return Doubling
		}
		return ExactTree
	case bytes >= sharedFrom && c.fits(bytes):
		return Shared
	case j.dtype.Size() == 2 && c.size() > 2: // so that a value is rounded at most twice
		return Pairwise
	}
	flat := c.costs().Choose(c.size(), bytes)
	if c.layered() && bytes > smallBytes {
		return c.across(flat, bytes)
	}
	return flat
}

// sumsBy says whether a is a way to add all ranks' vectors as they are.
func (c *core) sumsBy(a Algorithm) bool {
	return a != Auto && a != ExactTree && a != Direct && (a != Hierarchy || len(c.hosts) > 0)
}

// layered says whether there are several hosts, and one of them has several ranks.
func (c *core) layered() bool { return len(c.hosts) > 1 && len(c.hosts) < c.size() }

// across is what takes the place of a flat algorithm where there are several hosts: the one that was measured to take less time, and before that the
// one by which fewer bytes travel between hosts. Halving sends as few as Hierarchy where far partners are on one host, in fewer rounds.
func (c *core) across(flat Algorithm, bytes int) Algorithm {
	if costs, p := c.costs(), c.size(); costs.measured(Hierarchy, p) && costs.measured(flat, p) {
		return costs.least(p, bytes, flat, Hierarchy)
	}
	best, ok := c.fewest[flat]
	if !ok {
		best = Hierarchy
		if c.size() <= crossingMost {
			least := crossing(Hierarchy, c.size(), c.hosts)
			for _, a := range []Algorithm{Halving, flat} {
				if n := crossing(a, c.size(), c.hosts); n <= least {
					best, least = a, n
				}
			}
		}
		if c.fewest == nil {
			c.fewest = map[Algorithm]Algorithm{}
		}
		c.fewest[flat] = best
	}
	return best
}

// crossingMost is the number of ranks up to which plans are counted, once for a group: of so many that takes 16 ms, and it grows with their square.
const crossingMost = 64

// crossing is what the busiest host sends to others, or gets from them, in an allreduce by algorithm a: in elements of a vector that has some for
// each rank.
func crossing(a Algorithm, size int, hosts [][]int) int {
	const each = 64
	n := each * size
	on := make([]int, size)
	for h, ranks := range hosts {
		for _, r := range ranks {
			on[r] = h
		}
	}
	out, in := make([]int, len(hosts)), make([]int, len(hosts))
	for rank := range size {
		b := newBuilder(rank, size, n)
		b.allReduce(a, everyone(size), Span{Src, 0, n}, Span{Dst, 0, n}, hosts)
		for _, t := range b.plan.Tasks {
			if t.Do == DoSend && on[t.Peer] != on[rank] {
				out[on[rank]] += t.To.Len()
				in[on[t.Peer]] += t.To.Len()
			}
		}
	}
	return max(slices.Max(out), slices.Max(in))
}

// measured says whether there are times of a among p ranks.
func (c Costs) measured(a Algorithm, p int) bool {
	line := c.Times.of(a, p)
	return p == c.Ranks && line >= 0 && slices.Max(c.Times[line][:]) > 0
}

// sharedFrom is the size from which two bells cost less than what they save.
const sharedFrom = 16 << 10

// sharedBlock is what travels at once in shared memory, between two ranks and among more. Each block of two is summed while it is in a
// cache; of more, who share cores, each costs a change of processes, and bells between all of them.
func sharedBlock(size int) int {
	if size == 2 {
		return 1 << 20
	}
	return 4 << 20
}

func (c *core) sharedSegment(bytes int) int { return max(sharedBlock(c.size()), bytes/(1<<14)) &^ 63 }

// smallBytes go to everyone at once.
const smallBytes = 16 << 10

// gatherMost is up to where everything to one rank and back may pay: few messages, where what counts is their number.
const gatherMost = 16 << 10

// codedMost is up to where ranks that share their cores send what they encode to one of them: as many bytes in fewer messages.
const codedMost = 128 << 10

// doublingMost is up to where doubling among four ranks, eight and so on is considered: beyond, halving sends less and takes as long at most,
// which a short calibration does not always find.
const doublingMost = 128 << 10

// pairsMost is up to where three ranks exchange in pairs in place of a ring. They send as much in as many messages, and each waits for the
// other two at once, where a ring's parts go through one after the other: among ranks that come at different times, as those of a training
// do, the sums are there sooner. Of longer vectors the parts of one rank have left the cache when those of the other come.
const pairsMost = 1 << 20

// Choose is the algorithm that is predicted to be fastest for an allreduce of so many bytes. Measurements of a short while on a busy
// machine are what they are: they overrule the formulas where they find an algorithm to be clearly faster.
func (c Costs) Choose(p, bytes int) Algorithm {
	plain := c
	plain.Ranks = 0
	few := []Algorithm{Doubling, Halving, Ring}
	if p > 2 && p&(p-1) == 0 && bytes > doublingMost {
		few = few[1:]
	}
	first := plain.least(p, bytes, few...)
	if p != c.Ranks {
		if first == Ring && p == 3 && bytes <= pairsMost {
			return Pairwise
		}
		return first
	}
	clearly := 1.5
	if p == 2 { // whose sum has the same bits by any of them
		clearly = 1.1
	}
	most := slices.Clone(few)
	if p > 2 && bytes <= gatherMost {
		most = append(most, GatherCast) // only where it was seen to be fast: its root does all the work
	}
	best := c.least(p, bytes, most...)
	if clearly*float64(c.Predict(best, p, bytes, 1)) < float64(c.Predict(first, p, bytes, 1)) {
		return best
	}
	return first
}

// least is the one of the algorithms with the smallest prediction, the first of equal ones.
func (c Costs) least(p, bytes int, list ...Algorithm) Algorithm {
	best := list[0]
	for _, a := range list[1:] {
		if c.Predict(a, p, bytes, 1) < c.Predict(best, p, bytes, 1) {
			best = a
		}
	}
	return best
}

// segment is the length of a frame in bytes. It grows where there would be more frames than numbers for them.
func (c *core) segment(j *job, a Algorithm) int {
	s := c.opt.Segment
	if a == Shared {
		return c.sharedSegment(j.n * j.dtype.Size())
	}
	if most := j.n * j.dtype.Size() / (1 << 15); most > s {
		s = min(most, c.opt.MaxFrame)
	}
	return s &^ 63
}
