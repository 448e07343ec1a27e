package exec

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/graph"
)

// TestCase31CompileIsLinear compares the time to compile 10,000 and 100,000 nodes: ten times the nodes, at most 13 times the time. It
// logs that ratio and fails at growthMax, since other programs on the machine make it larger, and a pass that looks at all nodes for each
// makes it 100. What nothing else on the machine changes is held to 13: the bytes and the objects that a compilation allocates.
func TestCase31CompileIsLinear(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory makes large graphs slower")
	}
	graphs := map[int]func() time.Duration{}
	bytes, objects := map[int]uint64{}, map[int]uint64{}
	evict := make([]byte, 64<<20)
	for _, n := range []int{10000, 100000} {
		b := graph.NewBuilder()
		x := b.Input("x", graph.F32, graph.N(4))
		vs := fetches{x}
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for range n {
			a, c := vs[max(0, len(vs)-1-r.IntN(30))], vs[max(0, len(vs)-1-r.IntN(30))]
			switch r.IntN(4) {
			case 0:
				vs = append(vs, graph.Add(a, c))
			case 1:
				vs = append(vs, graph.Tanh(a))
			case 2:
				vs = append(vs, graph.Softmax(a))
			default:
				vs = append(vs, graph.Mul(a, b.Scalar(graph.F32, float64(r.IntN(5)))))
			}
		}
		g := build(t, b)
		last := vs[len(vs)-20:]
		graphs[n] = func() time.Duration {
			runtime.GC() // how often the collector runs, and over how much, depends on all that the test holds
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			for i := 0; i < len(evict); i += 64 { // the small graph would start in cache, which the large one does not fit
				evict[i]++
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			compile(t, g, fetches{x}, last, nil, Options{})
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			bytes[n], objects[n] = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
			return took
		}
	}
	small, large, ratio := time.Hour, time.Hour, 0.0
	for round := range 25 { // until noise has spared both once
		small, large = min(small, graphs[10000]()), min(large, graphs[100000]())
		if ratio = float64(large) / float64(small); round >= 6 && ratio <= 13 {
			break
		}
	}
	t.Logf("10,000 nodes in %v, 100,000 in %v: %.1f times, where at most 13 is wanted", small, large, ratio)
	if bytes[100000] > 13*bytes[10000] || objects[100000] > 13*objects[10000] {
		t.Errorf("ten times the nodes: %d bytes for %d, %d objects for %d; want at most 13 times", bytes[100000], bytes[10000], objects[100000], objects[10000])
	}
	const growthMax = 30
	if ratio > growthMax {
		t.Fatalf("ten times the nodes took %.1f times the time", ratio)
	}
}
