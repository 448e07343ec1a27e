package exec

import (
	"errors"
	"runtime"
	"testing"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// TestInitBesideSet: a value that is set while Init draws the initial one stays.
func TestInitBesideSet(t *testing.T) {
	const n = 1 << 16
	for range 20 {
		b := graph.NewBuilder()
		v := b.Variable("w", graph.F32, []int{n}, graph.Normal(5, 1))
		g := build(t, b)
		s := NewState(StateOptions{})
		done := make(chan error, 1)
		go func() { done <- s.Init(g) }()
		for begun := false; !begun; {
			runtime.Gosched()
			s.mu.Lock()
			begun = len(s.vars) > 0
			s.mu.Unlock()
		}
		if err := errors.Join(s.Set(v, tensor.New(graph.F32, n)), <-done); err != nil {
			t.Fatal(err)
		}
		got, _, err := s.Get(v)
		if err != nil || tensor.Flat[float32](got)[0] != 0 {
			t.Fatalf("a cell that was set to 0 is %v, %v", tensor.Flat[float32](got)[0], err)
		}
	}
}

// TestSameBitsInitial: a State's normal initial values do not depend on the processor: with a mean that is the opposite of the product of
// deviation and draw they are 0, and not what another draw, or a product that was not rounded, leaves. CI runs it on arm64 too, whose compiler
// fuses and whose package math is another.
func TestSameBitsInitial(t *testing.T) {
	const seed, deviation, n = 5, 0.37, 20
	key := initialKey(seed, "w")
	if initialKey(seed, "v") == key || initialKey(seed+1, "w") == key {
		t.Error("the numbers of a Variable depend not on its name, or not on the seed")
	}
	for kind, number := range map[graph.InitKind]func(seed, stream, index uint64) float64{
		graph.InitNormal: draw.Normal, graph.InitTruncated: draw.Truncated,
	} {
		for j := range n {
			product := float64(deviation * number(key, 0, uint64(j)))
			v := graph.NewBuilder().Variable("w", graph.F64, []int{n}, graph.Init{Kind: kind, A: -product, B: deviation})
			x, err := initial(seed, v)
			if err != nil {
				t.Fatal(err)
			}
			if w := tensor.Flat[float64](x); w[j] != 0 || w[(j+1)%n] == 0 {
				t.Errorf("kind %d, cell %d of mean %v: %v, want 0; the next one is %v", kind, j, -product, w[j], w[(j+1)%n])
			}
		}
	}
}
