package train_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
)

func layout(t testing.TB, specs ...trivium.Spec) *trivium.Layout {
	t.Helper()
	l, err := trivium.NewLayout(specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// naiveTree is the tree's definition: the left half is the largest power of two below n.
func naiveTree(leaves [][]float32) []float32 {
	n := len(leaves)
	if n == 1 {
		return slices.Clone(leaves[0])
	}
	half := 1
	for 2*half < n {
		half *= 2
	}
	sum, right := naiveTree(leaves[:half]), naiveTree(leaves[half:])
	for i := range sum {
		sum[i] += right[i]
	}
	return sum
}

func TestTree(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	pool := tensor.NewPool(2)
	defer pool.Close()
	l := layout(t,
		trivium.Spec{Name: "a", Shape: []int{70, 1001}},
		trivium.Spec{Name: "b", Shape: []int{3}},
		trivium.Spec{Name: "tied", Shape: []int{3}, Tie: "b"})
	for _, cpu := range []*tensor.CPU{nil, {ISA: kernel.Best(), Pool: pool}} {
		tree := train.NewTree(l, cpu)
		for n := 1; n <= 19; n++ {
			leaves := make([][]float32, n)
			for v := range leaves {
				leaves[v] = make([]float32, l.Len())
				for i := range leaves[v] {
					leaves[v][i] = float32(r.NormFloat64())
				}
			}
			leaves[0][7], leaves[n-1][7] = float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1))
			g := trivium.NewGradient(l)
			loss, weight, err := tree.Sum(n, g, func(v int, g trivium.Gradient, _ func(int)) (float64, float64, error) {
				copy(g.Flat, leaves[v])
				return float64(v), 2, nil
			}, nil)
			if err != nil || loss != float64(n*(n-1)/2) || weight != float64(2*n) {
				t.Errorf("%d shards: loss %v, weight %v, %v", n, loss, weight, err)
			}
			for i, want := range naiveTree(leaves) {
				if math.Float32bits(g.Flat[i]) != math.Float32bits(want) {
					t.Fatalf("seed %d: %d shards: cell %d is %v, want %v", seed, n, i, g.Flat[i], want)
				}
			}
		}
	}
}

// TestTreeRowSparse adds gradients of which each shard touches other rows, and wants the dense sum on the union of them.
func TestTreeRowSparse(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	l := layout(t, trivium.Spec{Name: "e", Shape: []int{20, 2}, RowSparse: true}, trivium.Spec{Name: "b", Shape: []int{2}})
	tree := train.NewTree(l, nil)
	for range 50 {
		n := 1 + r.IntN(9)
		var want [42]float64
		var touched [20]bool
		g := trivium.NewGradient(l)
		_, _, err := tree.Sum(n, g, func(v int, g trivium.Gradient, _ func(int)) (float64, float64, error) {
			for i := range g.Flat {
				g.Flat[i] = float32(math.NaN()) // what is not touched is not looked at
			}
			g.Rows[0] = g.Rows[0][:0]
			for row := range int32(20) {
				if r.IntN(4) == 0 {
					g.Rows[0] = append(g.Rows[0], row)
					touched[row] = true
					for c := range int32(2) {
						g.Flat[2*row+c] = float32(r.IntN(100))
						want[2*row+c] += float64(g.Flat[2*row+c])
					}
				}
			}
			g.Flat[40], g.Flat[41] = 1, 2
			want[40], want[41] = want[40]+1, want[41]+2
			return 0, 0, nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var rows []int32
		for row, is := range touched {
			if is {
				rows = append(rows, int32(row))
			}
		}
		if !slices.Equal(g.Rows[0], rows) {
			t.Fatalf("seed %d: rows %v, want %v", seed, g.Rows[0], rows)
		}
		for i, w := range want {
			if (i >= 40 || touched[i/2]) && float64(g.Flat[i]) != w {
				t.Fatalf("seed %d: cell %d is %v, want %v", seed, i, g.Flat[i], w)
			}
		}
	}
}

// TestTreeMemory counts the gradients that the tree of 16 shards makes: 4, beside the caller's.
func TestTreeMemory(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "a", Shape: []int{4}})
	for n, want := range map[int]int{1: 0, 2: 1, 4: 2, 8: 3, 16: 4} {
		tree, g := train.NewTree(l, nil), trivium.NewGradient(l)
		seen := map[*float32]bool{}
		for range 3 {
			if _, _, err := tree.Sum(n, g, func(_ int, g trivium.Gradient, _ func(int)) (float64, float64, error) {
				g.Zero()
				seen[&g.Flat[0]] = true
				return 0, 0, nil
			}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != want+1 {
			t.Errorf("%d shards: %d gradients, want %d beside the caller's", n, len(seen)-1, want)
		}
	}
}

func TestTreeAfterAnError(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "a", Shape: []int{1}})
	tree, g, broken := train.NewTree(l, nil), trivium.NewGradient(l), errors.New("broken")
	for at := range 5 {
		if _, _, err := tree.Sum(5, g, func(v int, g trivium.Gradient, _ func(int)) (float64, float64, error) {
			if v == at {
				return 0, 0, broken
			}
			return 0, 0, nil
		}, nil); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if _, _, err := tree.Sum(5, g, func(_ int, g trivium.Gradient, _ func(int)) (float64, float64, error) {
			g.Flat[0] = 1
			return 0, 0, nil
		}, nil); err != nil || g.Flat[0] != 5 {
			t.Fatalf("after an error in shard %d: %v, %v", at, g.Flat, err)
		}
	}
}

// TestTreeReady: a tensor that is said to be ready has the bits of the whole sum already, and those that are not said are there at the end.
func TestTreeReady(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	l := layout(t, trivium.Spec{Name: "a", Shape: []int{40, 7}}, trivium.Spec{Name: "b", Shape: []int{3}}, trivium.Spec{Name: "c", Shape: []int{5}})
	tree := train.NewTree(l, nil)
	for n := 1; n <= 19; n++ {
		leaves := make([][]float32, n)
		for v := range leaves {
			leaves[v] = make([]float32, l.Len())
			for i := range leaves[v] {
				leaves[v][i] = float32(r.NormFloat64())
			}
		}
		want := trivium.NewGradient(l)
		copy(want.Flat, naiveTree(leaves))
		g := trivium.NewGradient(l)
		var said []int
		same := func(tensor int) {
			for i, v := range want.Tensor(tensor) {
				if math.Float32bits(g.Tensor(tensor)[i]) != math.Float32bits(v) {
					t.Fatalf("seed %d: %d shards: cell %d of tensor %d is %v, want %v", seed, n, i, tensor, g.Tensor(tensor)[i], v)
				}
			}
		}
		if _, _, err := tree.Sum(n, g, func(v int, g trivium.Gradient, ready func(int)) (float64, float64, error) {
			if (ready != nil) != (v == n-1) {
				t.Errorf("shard %d of %d: it can say what is ready: %v", v, n, ready != nil)
			}
			leaf := trivium.NewGradient(l)
			copy(leaf.Flat, leaves[v])
			for _, i := range []int{2, 0, 1} {
				copy(g.Tensor(i), leaf.Tensor(i))
				if ready != nil && i != 1 { // which it does not say
					ready(i)
					ready(i)
				}
			}
			return 0, 0, nil
		}, func(tensor int) {
			said = append(said, tensor)
			same(tensor)
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(said, []int{2, 0}) {
			t.Errorf("%d shards: ready were %v", n, said)
		}
		for i := range l.Tensors() {
			same(i)
		}
	}
}
