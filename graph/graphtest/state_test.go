package graphtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/graph"
	. "github.com/trivium-ml/trivium/graph/graphtest"
)

func build(t *testing.T, b *graph.Builder) *graph.Graph {
	t.Helper()
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func run(t *testing.T, m *Machine, g *graph.Graph, feeds Feeds, v graph.Value, want ...float64) {
	t.Helper()
	out, err := m.Run(g, feeds, v)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out[0].Data, want) {
		t.Errorf("%v: got %v, want %v", v, out[0].Data, want)
	}
}

func fails(t *testing.T, m *Machine, g *graph.Graph, feeds Feeds, v graph.Value, want string) {
	t.Helper()
	if _, err := m.Run(g, feeds, v); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: error %v, want %q", v, err, want)
	}
}

func TestCase7Accumulator(t *testing.T) {
	b := graph.NewBuilder()
	a := b.Accumulator("a", graph.F32)
	step, g, n := b.Input("step", graph.I64), b.Input("g", graph.F32), b.Input("n", graph.I64)
	add, take := a.Apply(step, g), a.Take(n)
	m, all := NewMachine(), build(t, b)
	for _, x := range []float64{1, 2, 6} {
		run(t, m, all, Feeds{step: Scalar(0), g: Scalar(x)}, add, 1)
	}
	fails(t, m, all, Feeds{n: Scalar(4)}, take, "3 of 4 gradients")
	fails(t, m, all, Feeds{n: Scalar(0)}, take, "take(0), want at least 1")
	run(t, m, all, Feeds{n: Scalar(2)}, take, 3)
	if m.Accums["a"].Step != 1 {
		t.Errorf("step %d, want 1", m.Accums["a"].Step)
	}
	run(t, m, all, Feeds{step: Scalar(0), g: Scalar(9)}, add, 0)
	run(t, m, all, Feeds{step: Scalar(1), g: Scalar(9)}, add, 1)
}

func TestCase8SparseMeans(t *testing.T) {
	for perRow, want := range map[bool][]float64{false: {3, 3}, true: {3, 6}} {
		b := graph.NewBuilder()
		a := b.Accumulator("a", graph.F32, 2, 1)
		a.MeanPerRow = perRow
		zero := b.Scalar(graph.I64, 0)
		first := a.ApplyRows(zero, graph.ConstOf(b, []int64{0}, 1), graph.ConstOf(b, []float32{2}, 1, 1))
		second := a.ApplyRows(zero, graph.ConstOf(b, []int64{0, 1}, 2), graph.ConstOf(b, []float32{4, 6}, 2, 1))
		take := a.Take(b.Scalar(graph.I64, 2))
		m, g := NewMachine(), build(t, b)
		run(t, m, g, nil, first, 1)
		run(t, m, g, nil, second, 1)
		run(t, m, g, nil, take, want...)
	}
}

func TestVariables(t *testing.T) {
	b := graph.NewBuilder()
	v, slot := b.Variable("v", graph.F32, []int{2}, graph.Zeros()), b.Variable("slot", graph.F32, []int{2}, graph.Zeros())
	before := v.Read()
	set := v.Assign(graph.Add(before, before))
	more := v.AssignAdd(b.Const(graph.Fill(graph.F32, 1, 2)))
	step := v.Apply("momentum", b.Const(graph.Fill(graph.F32, 2, 2)), []*graph.Variable{slot}, b.Scalar(graph.F32, 0.5))
	after := v.Read()
	m, g := NewMachine(), build(t, b)
	m.Rules["momentum"] = func(p, g Array, slots []Array, params []float64) {
		for i := range p.Data {
			slots[0].Data[i] += g.Data[i]
			p.Data[i] -= params[0] * slots[0].Data[i]
		}
	}
	fails(t, m, g, nil, before, `Variable "v" has no value`)
	m.Vars["v"], m.Vars["slot"] = Of([]float64{1, 2}, 2), Zeros(2)
	out, err := m.Run(g, nil, before, set, more, step, after)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out[0].Data, []float64{1, 2}) || out[3].Data[0] != 3 || !slices.Equal(out[4].Data, []float64{2, 4}) || m.Versions["v"] != 3 {
		t.Errorf("before %v, version %v, after %v", out[0].Data, out[3].Data, out[4].Data)
	}
	if !slices.Equal(m.Vars["slot"].Data, []float64{2, 2}) {
		t.Errorf("slot %v", m.Vars["slot"].Data)
	}
}

func TestQueueAndExchange(t *testing.T) {
	b := graph.NewBuilder()
	q := b.Queue("q", 1, graph.Type{DType: graph.F32})
	in := q.Enqueue(b.Scalar(graph.F32, 7))
	out := q.Dequeue()[0]
	send := graph.Send(b.Const(graph.Fill(graph.F32, 3, 2)), "edge", "/task:1")
	recv := b.Recv("edge", "/task:0", graph.Type{DType: graph.F32, Shape: graph.Shape{graph.Axis("n")}})
	m, g := NewMachine(), build(t, b)
	fails(t, m, g, nil, out, "the queue is empty")
	run(t, m, g, nil, in)
	fails(t, m, g, nil, in, "the queue is full")
	run(t, m, g, nil, out, 7)
	fails(t, m, g, nil, recv, "nothing was sent")
	run(t, m, g, nil, send)
	run(t, m, g, nil, recv, 3, 3)
	fails(t, m, g, nil, send, "was sent before")
}

func TestDropoutRepeatsAndScales(t *testing.T) {
	b := graph.NewBuilder()
	y := graph.Dropout(b.Const(graph.Fill(graph.F32, 1, 10_000)), 0.25)
	g := build(t, b)
	m := NewMachine()
	first, err := m.Run(g, nil, y, y.Output(1))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := m.Run(g, nil, y)
	if !slices.Equal(first[0].Data, again[0].Data) || !slices.Equal(first[0].Data, first[1].Data) {
		t.Error("one step draws two masks")
	}
	m.Step = 1
	other, _ := m.Run(g, nil, y)
	if slices.Equal(first[0].Data, other[0].Data) {
		t.Error("two steps draw one mask")
	}
	sum := 0.0
	for _, x := range first[0].Data {
		sum += x
	}
	if sum < 9_700 || sum > 10_300 { // the deviation of the sum is 58
		t.Errorf("10,000 elements of mean 1 sum to %v", sum)
	}
}
