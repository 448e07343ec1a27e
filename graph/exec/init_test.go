package exec

import (
	"errors"
	"runtime"
	"testing"

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
