package nn

import (
	"fmt"
	"testing"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/graph"
)

// TestSameBitsInitial: normal initial weights do not depend on whether the processor rounds the product of deviation and draw before it is added to
// the mean (arm64 does not, unless told to): with a mean that is the product's opposite they are 0, and not what rounding left. CI runs it on both.
func TestSameBitsInitial(t *testing.T) {
	const seed, deviation, n = 5, 0.37, 20
	b := graph.NewBuilder()
	for _, c := range []struct {
		kind graph.InitKind
		draw func(seed, stream, index uint64) float64
	}{{graph.InitNormal, draw.Normal}, {graph.InitTruncated, draw.Truncated}} {
		for j := range n {
			product := float64(deviation * c.draw(seed, 9, uint64(j)))
			v := b.Variable(fmt.Sprintf("w%d.%d", c.kind, j), graph.F32, []int{n}, graph.Init{Kind: c.kind, A: -product, B: deviation})
			w := make([]float32, n)
			initVariable(w, v, seed, 0)
			if w[j] != 0 || w[(j+1)%n] == 0 {
				t.Errorf("kind %d, weight %d of mean %v: %v, want 0; the next one is %v", c.kind, j, -product, w[j], w[(j+1)%n])
			}
		}
	}
}
