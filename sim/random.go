package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/draw"
)

// A Mix says what a random plan is made of. The zero value works.
type Mix struct {
	Kinds  []Kind        // that may be drawn; nil: all but Slice
	Faults int           // at most; 0: 8
	Until  time.Duration // faults begin before it; 0: 5 s
	MaxFor time.Duration // that a fault lasts; 0: 1 s
}

// RandomPlan draws a plan for w's nodes. Each seed switches on a random half of the kinds, since faults can mask one another (swarm
// testing: Groce et al. 2012).
func RandomPlan(seed uint64, w *World, m Mix) Plan {
	if len(w.nodes) == 0 {
		return nil
	}
	m.Faults = cmp.Or(m.Faults, 8)
	m.Until = cmp.Or(m.Until, 5*time.Second)
	m.MaxFor = cmp.Or(m.MaxFor, time.Second)
	if m.Kinds == nil {
		m.Kinds = Kinds()[:Slice]
	}
	d := &dice{key: draw.Mix(seed ^ draw.Stream("sim: plan"))}
	var on []Kind
	for _, k := range m.Kinds {
		if d.below(2) == 0 {
			on = append(on, k)
		}
	}
	if len(on) == 0 {
		on = append(on, m.Kinds[d.below(len(m.Kinds))])
	}
	var p Plan
	for range 1 + d.below(m.Faults) {
		f := Fault{Kind: on[d.below(len(on))]}
		f.At = d.time(m.Until)
		f.For = 10*time.Microsecond + d.time(m.MaxFor)
		d.fill(&f, len(w.nodes))
		if f.check(len(w.nodes)) == nil {
			p = append(p, f)
		}
	}
	slices.SortStableFunc(p, func(a, b Fault) int { return int(a.At - b.At) })
	return p
}

// fill draws whom a fault happens to, and how much.
func (d *dice) fill(f *Fault, nodes int) {
	switch f.Kind {
	case Crash, Wipe, Vanish, Pause, Slow, Skew, Jump, TornDisk, ShortDisk, FailingDisk, FullDisk:
		f.Nodes = d.some(nodes, 1)
		if d.below(4) == 0 {
			f.Nodes = d.some(nodes, 1+d.below(nodes))
		}
	case Delay, Jitter, Bandwidth, Loss, Duplicate, Reorder, Corrupt, Reset, Clog, Slice:
		if k := d.below(3); k > 0 {
			f.Nodes = d.some(nodes, min(k, nodes))
		}
	case Partition, Mute, Deafen:
		// One node, half of them, or any number; the store is on either side.
		size := []int{1, nodes / 2, 1 + d.below(nodes)}[d.below(3)]
		f.Nodes = d.some(nodes, max(size, 1))
		if d.below(2) == 0 {
			f.Nodes = append(f.Nodes, Meta)
		}
	case Bridge:
		f.Nodes = d.some(nodes, 1+nodes/2)
	case Ring, Swizzle:
		f.Nodes = d.some(nodes, nodes)
	}
	switch f.Kind {
	case Slow:
		f.Arg = float64(int(2) << d.below(6))
	case Skew:
		f.Arg = float64(d.below(41)-20) / 100
	case Jump:
		f.Arg = float64(1+d.below(1000)) / 100
	case Delay, Jitter, MetaSlow:
		f.Arg = float64(1+d.below(200)) / 1000
	case Bandwidth:
		f.Arg = float64(int(1<<14) << d.below(10))
	case Slice:
		f.Arg = float64(1 + d.below(100))
	case Loss, Duplicate, Reorder, Corrupt:
		f.Arg = []float64{0.001, 0.01, 0.1, 0.5}[d.below(4)]
	}
}

// dice draw one number after the other. Only plans are made with them: what happens in a run is drawn by name.
type dice struct{ key, n uint64 }

func (d *dice) bits() uint64 {
	d.n++
	return draw.Mix(d.key + draw.Weyl*d.n)
}

func (d *dice) below(n int) int { return int(d.bits() >> 1 % uint64(n)) }

func (d *dice) time(limit time.Duration) time.Duration {
	return time.Duration(upTo(d.bits(), int64(limit))).Truncate(10 * time.Microsecond)
}

// some returns so many different nodes.
func (d *dice) some(nodes, count int) []Node {
	all := make([]Node, nodes)
	for i := range all {
		all[i] = Node(i)
	}
	for i := range min(count, nodes) {
		j := i + d.below(nodes-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:min(count, nodes)]
}
