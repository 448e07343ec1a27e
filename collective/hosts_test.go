package collective

import (
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// TestCrossing counts what travels between hosts by hand: of n elements, two hosts that sum within first exchange a half each way and the other half
// of the sum, one after the other; a ring crosses at each of its links between hosts, 2(p-1)/p of n.
func TestCrossing(t *testing.T) {
	near, far := [][]int{{0, 1}, {2, 3}}, [][]int{{0, 2}, {1, 3}}
	six, trios := [][]int{{0, 2, 4}, {1, 3, 5}}, [][]int{{0, 1, 2}, {3, 4, 5}}
	for _, v := range []struct {
		a         Algorithm
		hosts     [][]int
		sixtieths int // of the vector's length
	}{
		{Hierarchy, near, 60},
		{Hierarchy, far, 60},
		{Hierarchy, six, 60},
		{Hierarchy, trios, 60},
		{Hierarchy, [][]int{{0, 1}, {2}}, 60},
		{Ring, near, 90},                 // one link each way
		{Ring, far, 180},                 // two
		{Ring, six, 300},                 // three, of 5/3
		{Ring, trios, 100},               // one
		{Ring, [][]int{{0, 1}, {2}}, 80}, // one, of 4/3
		{Halving, near, 120},             // the far partner is on the other host: two ranks, a half, twice
		{Halving, far, 60},               // the near one is: two ranks, a quarter, twice
		{Doubling, far, 120},
		{Pairwise, [][]int{{0, 1}, {2}}, 80},
	} {
		size := 0
		for _, h := range v.hosts {
			size += len(h)
		}
		if got, want := crossing(v.a, size, v.hosts), v.sixtieths*size*64/60; got != want {
			t.Errorf("%v on %v: %d of %d elements, want %d", v.a, v.hosts, got, size*64, want)
		}
	}
}

// TestHostsChoose: sums are made within hosts first where fewer bytes travel so; once measured, where that takes less time.
func TestHostsChoose(t *testing.T) {
	choose := func(hosts [][]int, bytes int, costs Costs) Algorithm {
		var peers View
		for _, h := range hosts {
			peers.Peers = append(peers.Peers, make([]transport.Name, len(h))...)
		}
		peers.Hosts = hosts
		c := newCore(0, peers, &Options{})
		if costs.Ranks > 0 {
			c.planner = &costs
		}
		n := bytes / 4
		j := job{n: n, dtype: tensor.F32}
		return c.choose(&j)
	}
	measured := func(ranks int, fast Algorithm) Costs {
		c := guess
		c.Ranks = ranks
		for line, a := range timed {
			for col, bytes := range timedBytes {
				if c.Times[line][col] = c.formula(Ring, ranks, float64(bytes), 1); a == fast {
					c.Times[line][col] /= 4
				}
			}
		}
		return c
	}
	near, far := [][]int{{0, 1}, {2, 3}}, [][]int{{0, 2}, {1, 3}}
	six, trios := [][]int{{0, 2, 4}, {1, 3, 5}}, [][]int{{0, 1, 2}, {3, 4, 5}}
	for _, v := range []struct {
		name  string
		hosts [][]int
		bytes int
		costs Costs
		want  []Algorithm
	}{
		{"neighbours share a host", near, 1 << 20, Costs{}, []Algorithm{Hierarchy}},
		{"far partners share one: halving sends as few bytes", far, 1 << 20, Costs{}, []Algorithm{Halving}},
		{"three on each: halving sends as few bytes, a ring five times as many", six, 1 << 20, Costs{}, []Algorithm{Halving}},
		{"three on each, numbered host by host as a cluster does it", trios, 1 << 20, Costs{}, []Algorithm{Hierarchy}},
		{"three hosts of two", [][]int{{0, 3}, {1, 4}, {2, 5}}, 1 << 20, Costs{}, []Algorithm{Hierarchy}},
		{"small ones go to everyone at once", six, 1 << 10, Costs{}, []Algorithm{Doubling, Halving, Ring}},
		{"a rank a host", [][]int{{0}, {1}, {2}}, 1 << 20, Costs{}, []Algorithm{Ring, Pairwise}},
		{"one host", [][]int{{0, 1, 2}}, 1 << 20, Costs{}, []Algorithm{Ring, Pairwise}},
		{"measured to be slow", six, 1 << 20, measured(6, Ring), []Algorithm{Ring}},
		{"measured to be fast", far, 1 << 20, measured(4, Hierarchy), []Algorithm{Hierarchy}},
		{"measured among others", six, 1 << 20, measured(4, Ring), []Algorithm{Halving}},
	} {
		if got := choose(v.hosts, v.bytes, v.costs); !slices.Contains(v.want, got) {
			t.Errorf("%s: %v, want %v", v.name, got, v.want)
		}
	}
}

// TestPartsCross: between hosts each rank's part of a sum travels once for each other host, and so does each part that is gathered.
func TestPartsCross(t *testing.T) {
	for _, hosts := range [][][]int{{{0, 1}, {2, 3}}, spread(7, 3), {{0, 1, 2, 3}, {4}}, hostsOf(8, 3)} {
		size := rankCount(hosts)
		on := make([]int, size)
		counts := make([]int, size)
		want := 0
		for r := range counts {
			on[r], _, _ = place(hosts, r)
			counts[r] = 100 + r
			want += counts[r] * (len(hosts) - 1)
		}
		for name, build := range map[string]func(b *builder){
			"reduce-scatter": func(b *builder) { b.reduceScatterByHosts(hosts, counts) },
			"all-gather":     func(b *builder) { b.allGatherByHosts(hosts, counts) },
		} {
			crossed := 0
			for rank := range size {
				b := newBuilder(rank, size, 64)
				build(b)
				for _, task := range b.plan.Tasks {
					if task.Do == DoSend && on[task.Peer] != on[rank] {
						crossed += task.To.Len()
					}
				}
			}
			if crossed != want {
				t.Errorf("%s on %v: %d elements travel between hosts, want %d", name, hosts, crossed, want)
			}
		}
	}
}
