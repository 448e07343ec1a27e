package graph_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/trivium-ml/trivium/graph"
)

func Example() {
	b := NewBuilder()
	x := b.Input("x", F32, Axis("batch"), N(784))
	label := b.Input("label", I64, Axis("batch"))
	var logits Value
	b.With(Scope{Name: "layer"}, func() {
		w := b.Variable("w", F32, []int{784, 10}, GlorotUniform())
		bias := b.Variable("b", F32, []int{10}, Zeros())
		logits = Dense(x, w.Read(), bias.Read(), Linear)
	})
	SoftmaxCrossEntropy(logits, label)
	g, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	g.Format(os.Stdout)
	// Output:
	// graph of 6 nodes
	//   Variable layer/w f32[784,10] uniform [-1.732,1.732) / √(mean fan) trainable
	//   Variable layer/b f32[10] zeros trainable
	//   0 x = Input() f32[batch,784]
	//   1 label = Input() i64[batch]
	//   2 layer/Read = Read() f32[784,10] of layer/w
	//   3 layer/Read_1 = Read() f32[10] of layer/b
	//   4 layer/Dense = Dense(x, layer/Read, layer/Read_1) {act=""} f32[batch,10]
	//   5 SoftmaxCrossEntropy = SoftmaxCrossEntropy(layer/Dense, label) f32[batch]
}

func ExampleScan() {
	b := NewBuilder()
	x := b.Input("x", F32, Axis("time"), Axis("batch"), N(8))
	zero := BroadcastTo(b.Scalar(F32, 0), Axis("batch"), N(8))
	last, sums := Scan([]Value{zero}, []Value{x}, func(carry, x []Value) (next, y []Value) {
		s := Add(carry[0], x[0])
		return []Value{s}, []Value{s}
	})
	fmt.Println(last[0].Type(), sums[0].Type())
	// Output: f32[batch,8] f32[time,batch,8]
}

func TestBroadcast(t *testing.T) {
	n := Axis("n")
	for _, c := range []struct{ a, b, want Shape }{
		{Of(2, 3), Of(3), Of(2, 3)},
		{Of(2, 1), Of(1, 3), Of(2, 3)},
		{Shape{n, N(3)}, Of(3), Shape{n, N(3)}},
		{Shape{n, N(1)}, Of(1, 3), Shape{n, N(3)}},
		{nil, Shape{n}, Shape{n}},
		{Shape{n}, Of(1), Shape{n}},
		{Shape{n}, Of(3), nil}, // 3 could be bound, and then 4
		{Shape{n}, Shape{Axis("m")}, nil},
		{Shape{n}, Shape{n.Plus(1)}, nil},
		{Of(2), Of(3), nil},
	} {
		for range 2 {
			got, err := Broadcast(c.a, c.b)
			if (err != nil) != (c.want == nil) || err == nil && !got.Equal(c.want) {
				t.Errorf("%v with %v: %v, %v; want %v", c.a, c.b, got, err, c.want)
			}
			c.a, c.b = c.b, c.a
		}
	}
}

func TestBindAndSizes(t *testing.T) {
	s := Shape{Axis("batch").Plus(1), N(3)}
	ax := Axes{}
	if err := s.Bind(ax, []int{5, 3}); err != nil || ax["batch"] != 4 {
		t.Fatalf("bound %v, %v", ax, err)
	}
	if sizes, err := (Shape{Axis("batch").Plus(-1)}).Sizes(ax); err != nil || sizes[0] != 3 {
		t.Errorf("sizes %v, %v", sizes, err)
	}
	for _, c := range []struct {
		sizes []int
		want  string
	}{
		{[]int{5}, "want 2 axes"},
		{[]int{5, 2}, "axis 1: want 3, given 2"},
		{[]int{6, 3}, "axis 0 (batch+1): want 5, given 6"},
	} {
		if err := s.Bind(ax, c.sizes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Bind(%v): %v, want %q", c.sizes, err, c.want)
		}
	}
	if _, err := (Shape{Axis("time")}).Sizes(ax); err == nil || !strings.Contains(err.Error(), `no feed gives the size of "time"`) {
		t.Errorf("unbound axis: %v", err)
	}
	if err := (Shape{Axis("n").Plus(1)}).Bind(Axes{}, []int{0}); err == nil {
		t.Error("an axis shorter than nothing was bound")
	}
}

// What a slice of a dynamic axis is inferred to be holds for every size that it can be taken of.
func TestSliceLengths(t *testing.T) {
	for start := -4; start <= 4; start++ {
		for _, stop := range []int{-4, -3, -2, -1, 0, 1, 2, 3, 4, End} {
			for step := 1; step <= 2; step++ {
				b := NewBuilder()
				v := SliceAt(b.Input("x", F32, Axis("n")), []int{start}, []int{stop}, []int{step})
				if b.Err() != nil {
					continue
				}
				for n := range 9 {
					_, want, err := ResolveSlice(start, stop, step, n)
					sizes, bad := v.Shape().Sizes(Axes{"n": n})
					if err == nil && (bad != nil || sizes[0] != want) {
						t.Fatalf("%d:%d:%d of %d: inferred %v %v, is %d", start, stop, step, n, v.Shape(), bad, want)
					}
				}
			}
		}
	}
}

// Bounds and steps as large as an int holds choose what they say, or are refused: no sum of them overflows.
func TestSlicesFarOut(t *testing.T) {
	for _, c := range []struct{ start, stop, step, size, first, n int }{
		{0, End, math.MaxInt, 5, 0, 1},
		{2, End, math.MaxInt, 5, 2, 1},
		{-1, End, math.MaxInt - 1, 5, 4, 1},
		{5, End, math.MaxInt, 5, 5, 0},
		{0, End, math.MaxInt, 0, 0, 0},
		{0, 5, 4, 5, 0, 2},
		{0, 5, 5, 5, 0, 1},
	} {
		first, n, err := ResolveSlice(c.start, c.stop, c.step, c.size)
		if err != nil || first != c.first || n != c.n {
			t.Errorf("%+v: %d from %d, %v", c, n, first, err)
		}
	}
	dynamic := func(start, stop, step int) {
		b := NewBuilder()
		v := SliceAt(b.Input("x", F32, Axis("n")), []int{start}, []int{stop}, []int{step})
		if b.Err() == nil {
			t.Errorf("%d:%d:%d of n is taken, as %v", start, stop, step, v.Shape())
		}
	}
	for _, at := range []int{math.MinInt, math.MinInt + 1, -1<<40 - 1, 1<<40 + 1, math.MaxInt - 1, math.MaxInt} {
		for _, other := range []int{math.MinInt, -5, 0, 5, End, math.MaxInt} {
			if _, _, err := ResolveSlice(at, other, 1, 5); err == nil {
				t.Errorf("%d:%d of 5 is taken", at, other)
			}
			dynamic(at, other, 1)
			dynamic(other, at, 1)
		}
		dynamic(0, 5, at)
	}
}

// TestReshapeOpen: an open axis is a size, or the dynamic axis that is left.
func TestReshapeOpen(t *testing.T) {
	n, m := Axis("batch"), Axis("time").Plus(1)
	for _, c := range []struct{ from, to, want Shape }{
		{Shape{n, N(28), N(28)}, Shape{N(-1), N(784)}, Shape{n, N(784)}},
		{Shape{n, N(28), N(28)}, Shape{n, N(-1)}, Shape{n, N(784)}},
		{Shape{m, n, N(2)}, Shape{N(2), N(-1), m}, Shape{N(2), n, m}},
		{Shape{n, n}, Shape{n, N(-1)}, Shape{n, n}},
		{Shape{n, N(0)}, Shape{N(-1), n}, Shape{N(0), n}},
		{Shape{n}, Shape{N(-1), n}, Shape{N(1), n}},
		{Shape{}, Shape{N(-1)}, Shape{N(1)}},
	} {
		b := NewBuilder()
		if got := Reshape(b.Input("x", F32, c.from...), c.to...); b.Err() != nil || !slices.Equal(got.Shape(), c.want) {
			t.Errorf("%v as %v: %v, %v, want %v", c.from, c.to, got.Shape(), b.Err(), c.want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	n := Axis("batch")
	for name, c := range map[string]struct {
		f    func(b *Builder) Value
		want string
	}{
		"dtypes":   {func(b *Builder) Value { return Add(b.Scalar(F32, 1), b.Scalar(F64, 1)) }, "element types differ: f32 and operand 1 f64"},
		"integers": {func(b *Builder) Value { return Exp(b.Scalar(I64, 1)) }, "operand 0 is i64, want f32 or f64; Cast it"},
		"stretch":  {func(b *Builder) Value { return Add(b.Input("x", F32, n), b.Const(Fill(F32, 0, 3))) }, "do not broadcast: axis 0 is batch against 3"},
		"reshape to another axis of that spelling": {func(b *Builder) Value { return Reshape(b.Input("x", F32, n, Axis("a").Plus(1)), n, Axis("a+1")) }, "does not hold as many elements"},
		"reshape":                 {func(b *Builder) Value { return Reshape(b.Input("x", F32, n, N(6)), n, N(2), N(2)) }, "[batch,2,2] does not hold as many elements as [batch,6]"},
		"reshape to any size":     {func(b *Builder) Value { return Reshape(b.Input("x", F32, N(0), N(4)), N(-1), N(0)) }, "the open axis of [-1,0] may have any size"},
		"reshape to no size":      {func(b *Builder) Value { return Reshape(b.Input("x", F32, n, N(4)), N(-1)) }, "[-1] does not hold as many elements as [batch,4], whichever"},
		"reshape to no whole one": {func(b *Builder) Value { return Reshape(b.Input("x", F32, N(3), N(4)), N(5), N(-1)) }, "[5,-1] does not hold as many elements as [3,4], whichever"},
		"reshape to two":          {func(b *Builder) Value { return Reshape(b.Input("x", F32, N(4), N(4)), N(-1), N(-1)) }, "[-1,-1] leaves two axes to be worked out"},
		"reshape to another":      {func(b *Builder) Value { return Reshape(b.Input("x", F32, n, Axis("a")), Axis("z"), N(-1)) }, "[z,-1] does not hold as many elements as [batch,a], whichever"},
		"reshape away two":        {func(b *Builder) Value { return Reshape(b.Input("x", F32, n, Axis("a")), N(-1)) }, "[-1] does not hold as many elements as [batch,a], whichever"},
		"axes":                    {func(b *Builder) Value { return Sum(b.Input("x", F32, n), []int{1}, false) }, "axes [1] of [batch]: out of range"},
		"perm":                    {func(b *Builder) Value { return Transpose(b.Input("x", F32, n, N(2)), 1, 1) }, "[1 1] is no permutation"},
		"slice":                   {func(b *Builder) Value { return Slice(b.Const(Fill(F32, 0, 3)), Range{Start: 1, Stop: 5}) }, "slice 1:5 of an axis of 3"},
		"concat":                  {func(b *Builder) Value { x := b.Input("x", F32, n); return Concat(0, x, x) }, "only one operand may be dynamic"},
		"labels":                  {func(b *Builder) Value { return SoftmaxCrossEntropy(b.Input("x", F32, n, N(2)), b.Scalar(F32, 0)) }, "labels are f32"},
		"channels": {func(b *Builder) Value {
			return Conv2D(b.Input("x", F32, n, N(8), N(8), N(3)), b.Const(Fill(F32, 0, 3, 3, 1, 4)), Value{}, Linear, Window{})
		}, "differ in channels"},
		"window": {func(b *Builder) Value { return MaxPool(b.Input("x", F32, n, N(2), N(2), N(1)), 3, 3, Window{}) }, "window 3×3"},
		"nothing to pool": {func(b *Builder) Value {
			return MaxPool(b.Input("x", F32, n, N(0), N(2), N(1)), 2, 2, Window{Pads: [4]int{1, 1, 0, 0}})
		}, "pads [1 1 0 0] leave windows [2 2] of padding alone on images [batch,0,2,1]"},
		"offsets": {func(b *Builder) Value { return MaxPool(b.Input("x", F32, n, N(1<<15), N(1<<15), N(2)), 2, 2, Window{}) }, "an i32 does not hold every offset"},
		"rate":    {func(b *Builder) Value { return Dropout(b.Input("x", F32, n), 1) }, "rate 1, want"},
		"literal": {func(b *Builder) Value { return ConstOf(b, []float32{1, 2}, 3) }, "want 3 elements, given 2"},
		"name":    {func(b *Builder) Value { b.Input("x", F32); return b.Input("x", F32) }, `name "x" is empty or taken`},
		"second Variable": {func(b *Builder) Value {
			b.Variable("v", F32, nil, Zeros())
			return b.Variable("v", F32, nil, Zeros()).Read()
		}, `name "v" is empty or taken`},
		"kind of initial value": {func(b *Builder) Value {
			return b.Variable("v", F32, nil, Init{Kind: 9}).Read()
		}, `Variable: "v": unknown kind of initial value 9, want at most 4`},
		"initial value of integers": {func(b *Builder) Value {
			return b.Variable("v", U8, nil, Constant(300)).Read()
		}, `Variable: "v" is u8, which cannot hold the initial value 300`},
		"scale of initial values": {func(b *Builder) Value {
			return b.Variable("v", F32, nil, Init{Kind: InitNormal, B: 1, Scale: 7}).Read()
		}, `Variable: "v": unknown scale of initial values 7, want at most 2`},
		"zero":    {func(b *Builder) Value { return Add(b.Scalar(F32, 1), Value{}) }, "input 1: the zero Value"},
		"foreign": {func(b *Builder) Value { return Add(b.Scalar(F32, 1), NewBuilder().Input("other", F32)) }, "input 1: other belongs to another graph"},
		"carry": {func(b *Builder) Value {
			last, _ := Scan([]Value{b.Scalar(F32, 0)}, []Value{b.Input("x", F32, n)}, func(c, x []Value) (next, y []Value) {
				return []Value{Cast(c[0], F64)}, nil
			})
			return last[0]
		}, "carry 0 is f32[] and its successor f64[]"},
		"a scan of what failed": {func(b *Builder) Value {
			_, ys := Scan(nil, []Value{Exp(b.Scalar(I64, 1)), b.Scalar(F32, 1)}, func(_, x []Value) (next, y []Value) { return nil, []Value{Add(x[0], x[1])} })
			return ys[0]
		}, "operand 0 is i64"},
		"effect": {func(b *Builder) Value {
			v := b.Variable("v", F32, nil, Zeros())
			_, ys := Scan(nil, []Value{b.Input("x", F32, n)}, func(c, x []Value) (next, y []Value) { return nil, []Value{v.Assign(x[0])} })
			return ys[0]
		}, "Assign: inside the body of Scan"},
		"negative":                {func(b *Builder) Value { return b.Const(Fill(F32, 0, 2, -1)) }, "axis 1 of [2,-1] is negative"},
		"a byte of 300":           {func(b *Builder) Value { return b.Scalar(U8, 300) }, "Const(): literal u8[]: want a number that u8 can hold, given 300"},
		"a negative byte":         {func(b *Builder) Value { return b.Const(Fill(U8, -1, 2)) }, "literal u8[2]: want a number that u8 can hold, given -1"},
		"an i32 of 2^31":          {func(b *Builder) Value { return b.Scalar(I32, 1<<31) }, "i32 can hold, given 2.147483648e+09"},
		"an i64 of 2^63":          {func(b *Builder) Value { return b.Scalar(I64, 1<<63) }, "i64 can hold, given 9.223372036854776e+18"},
		"an i64 that is none":     {func(b *Builder) Value { return b.Scalar(I64, math.NaN()) }, "i64 can hold, given NaN"},
		"a product beyond an int": {func(b *Builder) Value { return b.Const(Fill(U8, 0, 1<<21, 1<<21, 1<<21)) }, "elements"},
		"slot": {func(b *Builder) Value {
			v, other := b.Variable("v", F32, nil, Zeros()), NewBuilder()
			other.Variable("first", F32, nil, Zeros())
			return v.Apply("momentum", b.Scalar(F32, 1), []*Variable{other.Variable("s", F32, nil, Zeros())})
		}, `slot "s" is of another graph than "v"`},
		"slot of another type": {func(b *Builder) Value {
			v := b.Variable("v", F32, nil, Zeros())
			return v.Apply("momentum", b.Scalar(F32, 1), []*Variable{b.Variable("s", F64, nil, Zeros())})
		}, `slot "s" is f64, want the Variable's f32`},
		"a rule for integers": {func(b *Builder) Value {
			return b.Variable("v", I32, nil, Zeros()).Apply("sgd", b.Scalar(I32, 1), nil)
		}, "the Variable is i32, want f32 or f64"},
		"sum of bytes": {func(b *Builder) Value {
			return b.Variable("v", U8, nil, Zeros()).AssignAdd(b.Scalar(U8, 1))
		}, "the Variable is u8, want f32, f64, i32 or i64"},
	} {
		b := NewBuilder()
		v := c.f(b)
		Add(Neg(v), Square(v)) // later mistakes do not hide the first
		_, err := b.Build()
		if err == nil || !strings.HasPrefix(err.Error(), "graph: ") || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), " at shape_test.go:") {
			t.Errorf("%s: error %v\nwant %q and a line of this file", name, err, c.want)
		}
	}
}

func TestBuilderGoesOnAfterBuild(t *testing.T) {
	b := NewBuilder()
	x := b.Input("x", F32)
	first, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	before := string(first.Encode())
	y := Neg(x)
	second, err := b.Build()
	if err != nil || string(first.Encode()) != before || first.Contains(y) || !second.Contains(y) || !second.Contains(x) {
		t.Fatalf("a graph changed after Build, or does not have its values: %v", err)
	}
}

// TestScaledInits: the limits of Glorot and Bengio 2010, the deviation of He et al. 2015, of a filter too.
func TestScaledInits(t *testing.T) {
	for _, c := range []struct {
		shape   []int
		in, out float64
	}{{[]int{300, 50}, 300, 50}, {[]int{5, 3, 8, 20}, 15 * 8, 15 * 20}} {
		g, h := GlorotUniform(), HeNormal()
		limit, deviation := g.B/math.Sqrt(g.Scale.Fan(c.shape)), h.B/math.Sqrt(h.Scale.Fan(c.shape))
		if want := math.Sqrt(6 / (c.in + c.out)); g.Kind != InitUniform || g.A != -g.B || !(math.Abs(limit-want) <= 1e-15) {
			t.Errorf("%v: Glorot's limit is %v, want %v", c.shape, limit, want)
		}
		if want := math.Sqrt(2 / c.in); h.Kind != InitNormal || h.A != 0 || !(math.Abs(deviation-want) <= 1e-15) {
			t.Errorf("%v: He's deviation is %v, want %v", c.shape, deviation, want)
		}
	}
}

func TestDot(t *testing.T) {
	var w strings.Builder
	if err := everything(t).Dot(&w); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`n0 [label="x\nf32[batch,3]"]`, `r0 [shape=ellipse label="layer/w\nf32[3,2]"]`, "r0 -> n1", "[style=dashed]"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in\n%s", want, w.String())
		}
	}
}

func TestEveryOperationIsDescribed(t *testing.T) {
	for op := range Ops() {
		if op.Doc == "" || op.Max >= 0 && op.Max < op.Min {
			t.Errorf("%s: doc %q, operands %d to %d", op.Name, op.Doc, op.Min, op.Max)
		}
		for _, a := range op.Attrs {
			if a.Doc == "" || a.Name == "" {
				t.Errorf("%s: attribute %q has no description", op.Name, a.Name)
			}
		}
	}
}
