package exec

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/graph"
)

// TestCase31CompileIsLinear compiles 10,000 and 100,000 nodes, among them many losses with gradients: ten times the nodes may take at most 13
// times the work. Work is what no other program on the machine changes: how often the passes look at a node, and the bytes and objects
// that they allocate. The time is logged.
func TestCase31CompileIsLinear(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory makes large graphs slower")
	}
	type work struct {
		looked, bytes, objects int
		took                   time.Duration
	}
	works := map[int]work{}
	for _, n := range []int{10000, 100000} {
		b := graph.NewBuilder()
		x := b.Input("x", graph.F32, graph.N(4))
		logits, labels := b.Input("logits", graph.F32, graph.N(2), graph.N(3)), b.Input("labels", graph.I32, graph.N(2))
		dy := b.Input("dy", graph.F32, graph.N(2))
		vs, last := fetches{x}, fetches{}
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for i := range n {
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
			if i%100 == 0 {
				z := graph.Mul(logits, b.Scalar(graph.F32, float64(i)))
				loss := graph.SoftmaxCrossEntropy(z, labels)
				last = append(last, loss, graph.SoftmaxCrossEntropyGrad(z, labels, dy))
			}
		}
		last = append(last, vs[len(vs)-20:]...)
		g := build(t, b)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun := time.Now()
		p := compile(t, g, fetches{x, logits, labels, dy}, last, nil, Options{})
		took := time.Since(begun)
		runtime.ReadMemStats(&after)
		works[n] = work{p.looked, int(after.TotalAlloc - before.TotalAlloc), int(after.Mallocs - before.Mallocs), took}
	}
	small, large := works[10000], works[100000]
	t.Logf("10,000 nodes: %+v; 100,000: %+v", small, large)
	if large.looked > 13*small.looked || large.bytes > 13*small.bytes || large.objects > 13*small.objects {
		t.Errorf("ten times the nodes: %+v for %+v; want at most 13 times", large, small)
	}
}
