package graph

import "fmt"

// elementOps compute each element from the elements at the same place; operands are broadcast.
var elementOps = []Op{
	{Name: "Add", Min: 2, Max: 2, Doc: "a + b", infer: inferBinary},
	{Name: "Sub", Min: 2, Max: 2, Doc: "a − b", infer: inferBinary},
	{Name: "Mul", Min: 2, Max: 2, Doc: "a · b", infer: inferBinary},
	{Name: "Div", Min: 2, Max: 2, Doc: "a / b", infer: inferBinary},
	{Name: "Neg", Min: 1, Max: 1, Doc: "−a", infer: inferUnary},
	{Name: "Exp", Min: 1, Max: 1, Doc: "e^a", infer: inferUnary},
	{Name: "Log", Min: 1, Max: 1, Doc: "natural logarithm", infer: inferUnary},
	{Name: "Sqrt", Min: 1, Max: 1, Doc: "square root", infer: inferUnary},
	{Name: "Square", Min: 1, Max: 1, Doc: "a·a", infer: inferUnary},
	{Name: "Tanh", Min: 1, Max: 1, Doc: "hyperbolic tangent", infer: inferUnary},
	{Name: "Sigmoid", Min: 1, Max: 1, Doc: "1/(1+e^−a)", infer: inferUnary},
	{Name: "ReLU", Min: 1, Max: 1, Doc: "max(a, 0); its derivative at 0 is 0", infer: inferUnary},
	{Name: "Max", Min: 2, Max: 2, Doc: "the larger of a and b, NaN where either is; ties share the gradient evenly", infer: inferBinary},
	{Name: "Where", Min: 3, Max: 3, Doc: "a where the condition holds, else b", infer: inferWhere},
	{Name: "Less", Min: 2, Max: 2, Doc: "a < b", infer: compare},
	{Name: "Equal", Min: 2, Max: 2, Doc: "a = b", infer: compare},
	{
		Name: "Cast", Min: 1, Max: 1, Doc: "a as another element type; to integers towards zero, to bool a ≠ 0",
		Attrs: []AttrSpec{{"dtype", KindDType, "new element type"}},
		infer: func(c *inference) ([]Type, error) { return one(c.dtype("dtype"), c.in[0].Shape) },
	},
	{
		Name: "StopGradient", Min: 1, Max: 1, Doc: "a, through which no gradient flows",
		infer: func(c *inference) ([]Type, error) { return c.in[:1], nil },
	},
	{Name: "ReLUGrad", Min: 2, Max: 2, Doc: "dy where y > 0, else 0", infer: likeBoth},
	{Name: "TanhGrad", Min: 2, Max: 2, Doc: "dy·(1 − y²)", infer: likeBoth},
	{Name: "SigmoidGrad", Min: 2, Max: 2, Doc: "dy·y·(1 − y)", infer: likeBoth},
}

func inferUnary(c *inference) ([]Type, error) {
	return c.in[:1], computes(c.in...)
}

func inferBinary(c *inference) ([]Type, error) {
	if err := computes(c.in...); err != nil {
		return nil, err
	}
	s, err := Broadcast(c.in[0].Shape, c.in[1].Shape)
	if err != nil {
		return nil, err
	}
	return one(c.in[0].DType, s)
}

// likeBoth is for gradients of element-wise operations: dy and y have one type.
func likeBoth(c *inference) ([]Type, error) {
	if !c.in[0].Equal(c.in[1]) {
		return nil, fmt.Errorf("dy is %v, y is %v", c.in[0], c.in[1])
	}
	return c.in[:1], computes(c.in...)
}

func compare(c *inference) ([]Type, error) {
	if err := sameDType(c.in); err != nil {
		return nil, err
	}
	if dt := c.in[0].DType; dt == BF16 || dt == F16 {
		return nil, fmt.Errorf("operands are %v, which is for storage; Cast them", dt)
	}
	s, err := Broadcast(c.in[0].Shape, c.in[1].Shape)
	if err != nil {
		return nil, err
	}
	return one(Bool, s)
}

func inferWhere(c *inference) ([]Type, error) {
	if c.in[0].DType != Bool {
		return nil, fmt.Errorf("the condition is %v, want bool", c.in[0].DType)
	}
	if err := sameDType(c.in[1:]); err != nil {
		return nil, err
	}
	s, err := Broadcast(c.in[1].Shape, c.in[2].Shape)
	if err != nil {
		return nil, err
	}
	if s, err = Broadcast(c.in[0].Shape, s); err != nil {
		return nil, err
	}
	return one(c.in[1].DType, s)
}

// Add is a + b, broadcast. Gradient: dy to both, summed over broadcast axes.
func Add(a, b Value) Value { return apply("Add", nil, a, b) }

// Sub is a − b, broadcast. Gradient: dy and −dy, summed over broadcast axes.
func Sub(a, b Value) Value { return apply("Sub", nil, a, b) }

// Mul is a·b, broadcast. Gradient: dy·b and dy·a, summed over broadcast axes.
func Mul(a, b Value) Value { return apply("Mul", nil, a, b) }

// Div is a/b, broadcast. Gradient: dy/b and −dy·(a/b)/b, summed over broadcast axes.
func Div(a, b Value) Value { return apply("Div", nil, a, b) }

// Neg is −a. Gradient: −dy.
func Neg(a Value) Value { return apply("Neg", nil, a) }

// Exp is e^a. Gradient: dy·e^a.
func Exp(a Value) Value { return apply("Exp", nil, a) }

// Log is the natural logarithm. Gradient: dy/a.
func Log(a Value) Value { return apply("Log", nil, a) }

// Sqrt is the square root. Gradient: dy/(2·√a).
func Sqrt(a Value) Value { return apply("Sqrt", nil, a) }

// Square is a·a. Gradient: 2·dy·a.
func Square(a Value) Value { return apply("Square", nil, a) }

// Tanh is the hyperbolic tangent y. Gradient: dy·(1 − y²).
func Tanh(a Value) Value { return apply("Tanh", nil, a) }

// Sigmoid is y = 1/(1+e^−a). Gradient: dy·y·(1 − y).
func Sigmoid(a Value) Value { return apply("Sigmoid", nil, a) }

// ReLU is max(a, 0). Gradient: dy where a > 0, else 0.
func ReLU(a Value) Value { return apply("ReLU", nil, a) }

// Max is the larger of a and b, broadcast; NaN where either is. Gradient: dy to the larger, half to each of a tie, none past a NaN.
func Max(a, b Value) Value { return apply("Max", nil, a, b) }

// Where is a where cond (bool) holds, else b, all broadcast. Gradient: dy to the chosen one, 0 to the other.
func Where(cond, a, b Value) Value { return apply("Where", nil, cond, a, b) }

// Less is a < b as bool, broadcast. It has no gradient.
func Less(a, b Value) Value { return apply("Less", nil, a, b) }

// Equal is a = b as bool, broadcast. It has no gradient.
func Equal(a, b Value) Value { return apply("Equal", nil, a, b) }

// Cast is a as element type dt: to integers towards zero, to bool a ≠ 0. Gradient, between floats: dy cast back.
func Cast(a Value, dt DType) Value { return apply("Cast", []Attr{attrDType(dt)}, a) }

// StopGradient is a, through which no gradient flows.
func StopGradient(a Value) Value { return apply("StopGradient", nil, a) }

// ReLUGrad is dy where y > 0, else 0; y is ReLU's result. Gradient: of dy the same; of y none.
func ReLUGrad(dy, y Value) Value { return apply("ReLUGrad", nil, dy, y) }

// TanhGrad is dy·(1 − y²); y is Tanh's result. Gradient: g·(1 − y²) and −2·g·dy·y.
func TanhGrad(dy, y Value) Value { return apply("TanhGrad", nil, dy, y) }

// SigmoidGrad is dy·y·(1 − y); y is Sigmoid's result. Gradient: g·y·(1 − y) and g·dy·(1 − 2y).
func SigmoidGrad(dy, y Value) Value { return apply("SigmoidGrad", nil, dy, y) }
