package collective_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

func TestCase13Bucket(t *testing.T) {
	for _, v := range []struct {
		costs collective.Costs
		want  float64 // MB
	}{{collective.Costs{Alpha: 9e-6, Beta: 0.34e-9}, 3.25}, {collective.Costs{Alpha: 50e-6, Beta: 8e-9}, 1.58}} {
		if got := float64(v.costs.BucketBytes(1e8, 4)) / 1e6; !(math.Abs(got-v.want) <= 0.01) {
			t.Errorf("%+v: %.3f MB, want %v", v.costs, got, v.want)
		}
	}
	fast, slow := collective.Costs{Alpha: 1e-9, Beta: 1e-9}, collective.Costs{Alpha: 1, Beta: 1e-9}
	if a, b := fast.BucketBytes(1e6, 4), slow.BucketBytes(1e9, 4); a != transport.LongPayload || b != 16<<20 {
		t.Errorf("limits: %d and %d bytes", a, b)
	}
}

func TestCase14Planner(t *testing.T) {
	c := collective.Costs{Alpha: 9e-6, Beta: 0.34e-9, Gamma: 0.12e-9}
	for _, v := range []struct {
		bytes int
		a     collective.Algorithm
		want  float64 // µs
	}{
		{1 << 10, collective.Ring, 126.7},
		{1 << 10, collective.Halving, 54.7},
		{1 << 10, collective.Tree, 56.5},
		{4 << 20, collective.Ring, 3060},
		{4 << 20, collective.Halving, 2990},
		{4 << 20, collective.Tree, 10120},
	} {
		got := float64(c.Predict(v.a, 8, v.bytes, 1).Nanoseconds()) / 1e3
		if !(math.Abs(got-v.want) <= 0.003*v.want) {
			t.Errorf("%v, %d bytes: %.1f µs, want %v", v.a, v.bytes, got, v.want)
		}
	}
	if a := c.Choose(8, 1<<10); a != collective.Doubling {
		t.Errorf("1 KiB: %v", a)
	}
	if a := c.Choose(8, 32<<20); a != collective.Halving {
		t.Errorf("32 MiB, 8 ranks: %v", a)
	}
	if a := c.Choose(6, 32<<20); a != collective.Ring {
		t.Errorf("32 MiB, 6 ranks: %v", a)
	}
}

// TestBucketsFillPackets: of a bucket as short as can be, and of the last one, the half that two ranks exchange is a frame that TCP sends as one
// packet for each 64 KiB begun, over Ethernet and over loopback.
func TestBucketsFillPackets(t *testing.T) {
	const header = 48
	for _, packet := range []int{45 * 1448, 65_483} {
		for payload, want := range map[int]int{transport.LongPayload: 4, transport.LongPayload / 2: 2, transport.LongPayload / 4: 1} {
			if n := (payload + header + packet - 1) / packet; n != want || payload+header < packet*want*99/100 {
				t.Errorf("%d bytes are %d packets of %d, want %d that are full", payload, n, packet, want)
			}
		}
	}
}

// TestPredictedKinds: other operations than an allreduce are measured beside a prediction where there is a formula, of the longest part.
func TestPredictedKinds(t *testing.T) {
	const size, n = 3, 6000
	counts := []int{1000, 3000, 2000}
	var mu sync.Mutex
	var seen []collective.Measurement
	costs := collective.Costs{Alpha: 9e-6, Beta: 0.34e-9, Gamma: 0.12e-9}
	w := openHosts(t, inMemory, size, collective.Options{Costs: costs, Record: func(m collective.Measurement) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, m)
	}}, [][]int{{0, 1, 2}})
	for _, v := range []struct {
		op   collective.Op
		want float64 // µs
	}{
		{collective.Op{Kind: collective.ReduceScatter, Counts: counts}, 2 * (9 + 12*(0.34+0.12))},
		{collective.Op{Kind: collective.AllGather, Counts: counts}, 2 * (9 + 12*0.34)},
		{collective.Op{Kind: collective.Broadcast, Root: 1}, 2 * (9 + 24*0.34)},
		{collective.Op{Kind: collective.ReduceTo, Root: 1}, 2 * (9 + 24*(0.34+0.12))},
		{collective.Op{Kind: collective.Gather, Root: 1, Counts: counts}, 0},
		{collective.Op{Kind: collective.ReduceScatter, Counts: counts, Plan: collective.Hierarchy}, 0},
		{collective.Op{Kind: collective.AllGather, Counts: counts, Plan: collective.Hierarchy}, 0},
	} {
		mu.Lock()
		seen = nil
		mu.Unlock()
		w.must(func(r int, g *collective.Group) error {
			src, dst := n, n
			switch kind := v.op.Kind; {
			case kind == collective.ReduceScatter:
				dst = counts[r]
			case kind == collective.AllGather:
				src = counts[r]
			case kind == collective.Gather:
				if src = counts[r]; r != v.op.Root {
					dst = 0
				}
			case kind == collective.Broadcast && r != v.op.Root:
				src = 0
			case kind == collective.ReduceTo && r != v.op.Root:
				dst = 0
			}
			return run(t.Context(), g, v.op, collective.Of(make([]float32, dst)), collective.Of(make([]float32, src)))
		})
		mu.Lock()
		if len(seen) != size {
			t.Errorf("%v by %v: %d measurements", v.op.Kind, v.op.Plan, len(seen))
		}
		for _, m := range seen {
			if got := float64(m.Predicted.Nanoseconds()) / 1e3; !(math.Abs(got-v.want) <= 0.002) {
				t.Errorf("%v by %v: predicted %.3f µs, want %.3f", m.Kind, m.Algorithm, got, v.want)
			}
		}
		mu.Unlock()
	}
}

func TestCut(t *testing.T) {
	for _, lens := range [][]int{{}, {0}, {1}, {10, 20, 30}, {1 << 20, 5, 5, 5}, {5, 1 << 22, 5}, {100, 0, 100}, {1 << 18, 1 << 18, 1 << 18, 1 << 18}, {7840000, 1000, 1000000, 1000, 10000, 10}} {
		total := 0
		for _, n := range lens {
			total += n
		}
		buckets := collective.Cut(lens, 4, 1<<20)
		at := total
		seen := map[int]bool{}
		for i, b := range buckets {
			if b.To != at || b.From > b.To {
				t.Fatalf("%v: bucket %d is [%d, %d), after %d", lens, i, b.From, b.To, at)
			}
			if n := 4 * (b.To - b.From); n > 1<<20+1<<19 || i == 0 && n > firstMost {
				t.Errorf("%v: bucket %d has %d bytes", lens, i, n)
			}
			at = b.From
			for _, k := range b.Tensors {
				seen[k] = true
			}
		}
		if at != 0 || len(seen) != len(lens) {
			t.Errorf("%v: the buckets end at %d and hold %d tensors: %v", lens, at, len(seen), buckets)
		}
	}
}

// The buckets become shorter towards the end, where there is ever less to hide them behind: the last is a single layer, and each but the
// shortest has at most half of what is left.
func TestCutEnd(t *testing.T) {
	for _, layer := range []int{32 << 10, 128 << 10, 512 << 10} {
		lens := make([]int, 32)
		for i := range lens {
			lens[i] = layer
		}
		buckets := collective.Cut(lens, 4, collective.Costs{}.BucketBytes(4*32*layer, 2))
		for i, b := range buckets {
			if n := b.To - b.From; n > layer && 2*n > b.To {
				t.Errorf("layers of %d: bucket %d has %d of the %d cells that are left", layer, i, n, b.To)
			}
		}
		if b := buckets[len(buckets)-1]; b.To-b.From != layer {
			t.Errorf("layers of %d: the last bucket has %d", layer, b.To-b.From)
		}
	}
}

const firstMost = 256<<10 + 128<<10

// Buckets start in the order of their index, whatever the order in which tensors become final.
func TestLauncher(t *testing.T) {
	buckets := collective.Cut([]int{100000, 100000, 100000, 100000}, 4, 256<<10)
	var started []int
	l := collective.NewLauncher(buckets, func(i int) { started = append(started, i) })
	for range 2 {
		started = nil
		l.Reset()
		for _, tensor := range []int{3, 1, 1, 2} {
			if err := l.Ready(tensor); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(buckets); len(started) == 0 || len(started) == n {
			t.Fatalf("%d of %d buckets have started", len(started), n)
		}
		l.Rest()
		if err := l.Ready(0); err != nil {
			t.Fatal(err)
		}
		for i, k := range started {
			if i != k {
				t.Fatalf("started %v", started)
			}
		}
		if len(started) != len(buckets) {
			t.Fatalf("started %v of %d", started, len(buckets))
		}
	}
	if l.Ready(9) == nil {
		t.Error("tensor 9 of 4 is taken")
	}
}

// TestCalibrateHosts: hierarchical sums are measured where ranks share several hosts, and nowhere else.
func TestCalibrateHosts(t *testing.T) {
	for _, layered := range []bool{true, false} {
		hosts := collective.HostsOf(4, 2)
		if !layered {
			hosts = nil
		}
		w := openHosts(t, inMemory, 4, collective.Options{}, hosts)
		w.must(func(_ int, g *collective.Group) error {
			c, err := g.CalibrateFor(t.Context(), 200*time.Millisecond)
			if err == nil && c.Measured(collective.Hierarchy, 4) != layered {
				t.Errorf("hosts %v: hierarchical sums were measured: %v", hosts, !layered)
			}
			return err
		})
	}
}

// TestCalibrateLate: where the ranks take longer to wake up than calibration may last, the shortest vectors are measured all the same.
func TestCalibrateLate(t *testing.T) {
	w := open(t, inMemory, 2, collective.Options{})
	w.must(func(_ int, g *collective.Group) error {
		c, err := g.CalibrateFor(t.Context(), -time.Second)
		if err == nil && (c.Alpha <= 0 || c.Beta <= 0) {
			t.Errorf("costs %+v", c)
		}
		return err
	})
}

// TestCalibrateLimit: a pass of calibration begins no more than the time that is left is enough for, whatever an operation takes, and the
// last pass nothing. The second is over what the planner chooses, among three ranks with a core each what is measured as a ring.
func TestCalibrateLimit(t *testing.T) {
	g := open(t, inMemory, 3, collective.Options{}).groups[0]
	for _, pass := range []int{1, 4, 8} { // those over all cells, but for the first
		for _, left := range []time.Duration{-time.Second, 0, time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
			for _, each := range []time.Duration{20 * time.Microsecond, time.Millisecond, 50 * time.Millisecond} {
				if d := g.Foresee(pass, left, each); d > max(left, 0) {
					t.Errorf("pass %d begins what takes %v, with %v left", pass, d, left)
				}
			}
		}
		if d := g.Foresee(pass, time.Hour, time.Millisecond); d < time.Second/2 {
			t.Errorf("pass %d begins what takes %v, with an hour left", pass, d)
		}
	}
}

// TestGammaLate: what an addition costs is measured also where a busy machine gives the rank no time before its time is up. It was +Inf then, at all
// ranks, and predictions 292 years below 0.
func TestGammaLate(t *testing.T) {
	if gamma := collective.MeasureGammaLate(); !(gamma > 0 && gamma < 1) {
		t.Errorf("a byte is added in %v s", gamma)
	}
}

// Every measurement comes with its prediction, and calibration gives all ranks the same costs.
func TestCalibrate(t *testing.T) {
	var mu sync.Mutex
	var seen []collective.Measurement
	w := open(t, inMemory, 3, collective.Options{Record: func(m collective.Measurement) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, m)
	}})
	costs := make([]collective.Costs, 3)
	w.must(func(r int, g *collective.Group) error {
		c, err := g.CalibrateFor(t.Context(), 150*time.Millisecond)
		costs[r] = c
		if err != nil {
			return err
		}
		return g.AllReduce32(t.Context(), make([]float32, 1000))
	})
	if costs[0] != costs[1] || costs[0] != costs[2] || !(costs[0].Alpha > 0 && costs[0].Beta > 0 && costs[0].Gamma > 0) {
		t.Errorf("costs %+v", costs)
	}
	mu.Lock()
	last := seen[len(seen)-1]
	mu.Unlock()
	if last.Bytes != 4000 || last.Predicted <= 0 || last.Took <= 0 || last.Ranks != 3 {
		t.Errorf("the last measurement is %+v", last)
	}
	if fmt.Sprint(w.groups[0].Costs()) != fmt.Sprint(costs[0]) {
		t.Error("the group has other costs")
	}
}
