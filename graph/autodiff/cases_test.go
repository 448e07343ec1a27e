package autodiff_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/graphtest"
)

const f64 = graph.F64

// sum is the total of a value: what the cases differentiate.
func sum(v graph.Value) graph.Value { return graph.Sum(v, nil, false) }

// grads is the dense gradients of y by xs.
func grads(y graph.Value, xs ...graph.Value) []graph.Value {
	out := make([]graph.Value, len(xs))
	for i, g := range autodiff.Gradients(y, xs, autodiff.Options{Dense: true}) {
		out[i] = g.Dense
	}
	return out
}

// expect builds the graph, evaluates v and compares its elements.
func expect(t *testing.T, b *graph.Builder, feeds graphtest.Feeds, v graph.Value, want ...float64) {
	t.Helper()
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := graphtest.Eval(g, feeds, v)
	if err != nil {
		t.Fatal(err)
	}
	near(t, v.String(), got[0].Data, want)
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-6*math.Max(1, math.Abs(want[i]))) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}

func array(shape []int, data ...float64) graphtest.Array { return graphtest.Of(data, shape...) }

func TestCase14Identities(t *testing.T) {
	b := graph.NewBuilder()
	x, unused := b.Input("x", f64), b.Input("unused", f64, graph.Axis("n"))
	feeds := graphtest.Feeds{x: graphtest.Scalar(2), unused: array([]int{2}, 7, 8)}
	cube := graph.Mul(graph.Mul(x, x), x)
	first := grads(cube, x)[0]
	expect(t, b, feeds, grads(cube, cube)[0], 1)
	expect(t, b, feeds, first, 12)
	expect(t, b, feeds, grads(first, x)[0], 12)
	expect(t, b, feeds, grads(cube, unused)[0], 0, 0)
	expect(t, b, feeds, grads(graph.StopGradient(cube), x)[0], 0)
	expect(t, b, feeds, grads(graph.Mul(x, graph.StopGradient(x)), x)[0], 2)
}

func TestCase15Broadcast(t *testing.T) {
	b := graph.NewBuilder()
	x, y := b.Input("x", f64, graph.N(2), graph.N(3)), b.Input("y", f64, graph.N(3))
	feeds := graphtest.Feeds{x: graphtest.Zeros(2, 3), y: graphtest.Zeros(3)}
	expect(t, b, feeds, grads(sum(graph.Add(x, y)), y)[0], 2, 2, 2)
}

func TestCase15GatherStaysSparse(t *testing.T) {
	b := graph.NewBuilder()
	table := b.Input("table", f64, graph.N(3), graph.N(1))
	rows := graph.ConstOf(b, []int64{0, 0, 1, 1, 2}, 5)
	y := sum(graph.Gather(table, rows))
	feeds := graphtest.Feeds{table: graphtest.Zeros(3, 1)}
	expect(t, b, feeds, grads(y, table)[0], 2, 2, 1)
	g := autodiff.Gradients(y, []graph.Value{table}, autodiff.Options{})[0]
	if !g.Dense.IsZero() || g.Rows.IsZero() {
		t.Fatalf("gradient of Gather is dense: %+v", g)
	}
	expect(t, b, feeds, g.Rows, 0, 0, 1, 1, 2)
	expect(t, b, feeds, g.Values, 1, 1, 1, 1, 1)
}

func TestTwoGathersStaySparse(t *testing.T) {
	b := graph.NewBuilder()
	table, some := b.Input("table", f64, graph.N(4)), b.Input("some", graph.I64, graph.Axis("some"))
	y := graph.Add(sum(graph.Gather(table, some)), sum(graph.Gather(table, graph.ConstOf(b, []int64{3}, 1))))
	feeds := graphtest.Feeds{table: graphtest.Zeros(4), some: array([]int{2}, 1, 3)}
	g := autodiff.Gradients(y, []graph.Value{table}, autodiff.Options{})[0]
	expect(t, b, feeds, g.Rows, 3, 1, 3)
	expect(t, b, feeds, grads(y, table)[0], 0, 1, 0, 2)
	// One more use that is dense makes all of it dense.
	z := graph.Add(y, sum(table))
	g = autodiff.Gradients(z, []graph.Value{table}, autodiff.Options{})[0]
	expect(t, b, feeds, g.Dense, 1, 2, 1, 3)
}

func TestCase15Slice(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", f64, graph.N(2), graph.N(3))
	y := sum(graph.Slice(x, graph.Range{Start: 1, Stop: 2}, graph.Range{Start: 0, Stop: 3, Step: 2}))
	expect(t, b, graphtest.Feeds{x: graphtest.Zeros(2, 3)}, grads(y, x)[0], 0, 0, 0, 1, 0, 1)
}

func TestCase15ReduceMaxTies(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", f64, graph.N(3))
	feeds := graphtest.Feeds{x: array([]int{3}, 3, 3, 1)}
	expect(t, b, feeds, grads(graph.ReduceMax(x, nil, false), x)[0], 0.5, 0.5, 0)
	expect(t, b, feeds, grads(sum(graph.Max(x, b.Scalar(f64, 3))), x)[0], 0.5, 0.5, 0)
	expect(t, b, feeds, grads(sum(graph.ReLU(graph.Sub(x, b.Scalar(f64, 3)))), x)[0], 0, 0, 0)
}

func TestCase16SoftmaxCrossEntropy(t *testing.T) {
	b := graph.NewBuilder()
	x, label := b.Input("x", f64, graph.Axis("rows"), graph.N(3)), b.Input("label", graph.I64, graph.Axis("rows"))
	loss := graph.SoftmaxCrossEntropy(x, label)
	feeds := graphtest.Feeds{x: array([]int{2, 3}, 1000, 0, -1000, 1000, 0, -1000), label: array([]int{2}, 0, 2)}
	expect(t, b, feeds, loss, 0, 2000)
	expect(t, b, feeds, grads(sum(loss), x)[0], 0, 0, 0, 1, 0, -1)

	b = graph.NewBuilder()
	ten := b.Const(graph.Fill(f64, 0, 1, 10))
	loss = graph.SoftmaxCrossEntropy(ten, graph.ConstOf(b, []int64{3}, 1))
	expect(t, b, nil, loss, math.Log(10))
	expect(t, b, nil, grads(sum(loss), ten)[0], .1, .1, .1, -.9, .1, .1, .1, .1, .1, .1)
}

func TestCase17LeastSquares(t *testing.T) {
	b := graph.NewBuilder()
	x := graph.ConstOf(b, []float64{1, 2, 3, 4}, 2, 2)
	w, y := graph.ConstOf(b, []float64{1, -1}, 2, 1), graph.ConstOf(b, []float64{0, 1}, 2, 1)
	loss := graph.Mean(graph.Square(graph.Sub(graph.MatMul(x, w), y)), nil, false)
	expect(t, b, nil, loss, 2.5)
	expect(t, b, nil, grads(loss, w)[0], -7, -10)
}

func TestCase18Convolution(t *testing.T) {
	b := graph.NewBuilder()
	x := graph.ConstOf(b, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, 3, 3, 1)
	k := b.Const(graph.Fill(f64, 1, 2, 2, 1, 1))
	y := graph.Conv2D(x, k, graph.Value{}, graph.Linear, graph.Window{})
	expect(t, b, nil, y, 12, 16, 24, 28)
	d := grads(sum(y), x, k)
	expect(t, b, nil, d[0], 1, 2, 1, 2, 4, 2, 1, 2, 1)
	expect(t, b, nil, d[1], 12, 16, 24, 28)
	expect(t, b, nil, graph.MaxPool(x, 2, 2, graph.Window{Strides: [2]int{1, 1}}), 5, 6, 8, 9)
}

func TestCase19LSTM(t *testing.T) {
	b := graph.NewBuilder()
	zero := func(shape ...int) graph.Value { return b.Const(graph.Fill(f64, 0, shape...)) }
	h, c := graph.LSTMCell(zero(1, 3), zero(1, 1), b.Const(graph.Fill(f64, 2, 1, 1)), zero(3, 4), zero(1, 4), zero(4))
	expect(t, b, nil, c, 1)
	expect(t, b, nil, h, 0.3807970779778823)
}

func TestCase20RunningSum(t *testing.T) {
	b := graph.NewBuilder()
	x := b.Input("x", f64, graph.Axis("time"))
	_, ys := graph.Scan([]graph.Value{b.Scalar(f64, 0)}, []graph.Value{x}, func(c, x []graph.Value) (next, y []graph.Value) {
		s := graph.Add(c[0], x[0])
		return []graph.Value{s}, []graph.Value{s}
	})
	feeds := graphtest.Feeds{x: array([]int{3}, 1, 2, 3)}
	expect(t, b, feeds, ys[0], 1, 3, 6)
	expect(t, b, feeds, grads(sum(ys[0]), x)[0], 3, 2, 1)
	expect(t, b, graphtest.Feeds{x: array([]int{0})}, grads(sum(ys[0]), x)[0])

	b = graph.NewBuilder()
	x = graph.ConstOf(b, []float64{1, 2, 3}, 3)
	total, s := b.Scalar(f64, 0), b.Scalar(f64, 0)
	for i := range 3 {
		s = graph.Add(s, graph.Reshape(graph.Slice(x, graph.Range{Start: i, Stop: i + 1})))
		total = graph.Add(total, s)
	}
	expect(t, b, nil, total, 10)
	expect(t, b, nil, grads(total, x)[0], 3, 2, 1)
}
