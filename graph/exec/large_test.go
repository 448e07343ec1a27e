package exec

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// TestTooLargeIsForgotten: sizes that are too large are not those that memory is planned for when smaller ones come, which it would suffice for;
// and where there is room for what is asked for and none for an eighth more, there is no more.
func TestTooLargeIsForgotten(t *testing.T) {
	b := graph.NewBuilder()
	n := graph.Axis("n")
	x := b.Input("x", graph.F64, n)
	y := graph.Sum(graph.BroadcastTo(x, n, n, n, n, n, n, n, n, n, n, n, n), nil, false)
	g := build(t, b)
	for i, o := range variants(t) {
		p := compile(t, g, fetches{x}, fetches{y}, nil, o)
		for range 3 { // so often that new plans are for more than is asked for
			if _, err := p.Run(ctx, nil, tensor.New(graph.F64, 9)); err == nil || !strings.Contains(err.Error(), "BroadcastTo") { // 2 TB
				t.Errorf("variant %d: %v, want an error that names BroadcastTo", i, err)
			}
			p.plans.add([]int{9}) // as if 2 and some more were so many
			got, err := p.Run(ctx, nil, f64s(l{1, 2}, 2))
			if err != nil {
				t.Fatalf("variant %d: %v", i, err)
			}
			if s := tensor.Flat[float64](got[0])[0]; s != 3*(1<<11) {
				t.Errorf("variant %d: %v, want %d", i, s, 3*(1<<11))
			}
		}
	}
}

// TestTooLarge: sizes that only the feeds tell may multiply to more than there can be; the run fails and names the node, and the next one
// is as if it had not been.
func TestTooLarge(t *testing.T) {
	b := graph.NewBuilder()
	n := graph.Axis("n")
	x := b.Input("x", graph.F64, n)
	y := graph.Sum(graph.BroadcastTo(x, n, n, n), nil, false)
	g := build(t, b)
	for i, o := range variants(t) {
		p := compile(t, g, fetches{x}, fetches{y}, nil, o)
		for _, n := range []int{70_000, 1 << 22, 1 << 16} {
			if _, err := p.Run(ctx, nil, tensor.New(graph.F64, n)); err == nil || !strings.Contains(err.Error(), "BroadcastTo") {
				t.Errorf("variant %d, %d: %v, want an error that names BroadcastTo", i, n, err)
			}
		}
		got, err := p.Run(ctx, nil, f64s(l{1, 2, 3, 4}, 4))
		if err != nil {
			t.Fatal(err)
		}
		if s := tensor.Flat[float64](got[0])[0]; s != 160 {
			t.Errorf("variant %d: %v, want 160", i, s)
		}
	}
}
