package graph

import (
	"fmt"
	"math"
)

var convAttrs = []AttrSpec{{"strides", KindInts, "rows, columns"}, {"pads", KindInts, "rows of zeros above, below, columns left, right"}}

// networkOps are the layers of neural networks.
var networkOps = []Op{
	{Name: "Softmax", Min: 1, Max: 1, Doc: "e^a over its sum, along the last axis", infer: inferSoftmax},
	{Name: "SoftmaxGrad", Min: 2, Max: 2, Doc: "y·(dy − Σ dy·y) along the last axis; operands dy, y", infer: inferSoftmaxGrad},
	{Name: "SoftmaxCrossEntropy", Min: 2, Max: 2, Doc: "−log softmax(logits)[label], one value a row", infer: inferSCE},
	{Name: "SoftmaxCrossEntropyGrad", Min: 3, Max: 3, Doc: "dy·(softmax(logits) − onehot(labels))", infer: inferSCEGrad},
	{Name: "SigmoidCrossEntropy", Min: 2, Max: 2, Doc: "−t·log σ(x) − (1−t)·log(1−σ(x)), summed over all axes but the first", infer: inferSigCE},
	{Name: "SigmoidCrossEntropyGrad", Min: 3, Max: 3, Doc: "dy·(σ(logits) − targets)", infer: inferSigCEGrad},
	{
		Name: "Conv2D", Min: 2, Max: 3, Doc: "act(correlation of images NHWC with filters [kh,kw,in,out] + bias)",
		Attrs: append([]AttrSpec{{"act", KindString, `"", "relu", "tanh" or "sigmoid"`}}, convAttrs...), infer: inferConv,
	},
	{
		Name: "Conv2DGradInput", Min: 2, Max: 2, Doc: "gradient of Conv2D's images; operands dy, filter",
		Attrs: append([]AttrSpec{shapeAttr}, convAttrs...), infer: inferConvGradInput,
	},
	{
		Name: "Conv2DGradFilter", Min: 2, Max: 2, Doc: "gradient of Conv2D's filters; operands images, dy",
		Attrs: append([]AttrSpec{shapeAttr}, convAttrs...), infer: inferConvGradFilter,
	},
	{
		Name: "MaxPool", Min: 1, Max: 1, Doc: "maximum of each window of images NHWC, and its i32 offset in its image; padding is never the maximum",
		Attrs: append([]AttrSpec{{"window", KindInts, "rows, columns"}}, convAttrs...), infer: inferPool,
	},
	{
		Name: "MaxPoolGrad", Min: 2, Max: 2, Doc: "dy added where the maxima were; operands dy, MaxPool's offsets",
		Attrs: append([]AttrSpec{shapeAttr, {"window", KindInts, "rows, columns"}}, convAttrs...), infer: inferPoolGrad,
	},
	{
		Name: "Dropout", Min: 1, Max: 1, Effect: Random, Doc: "a times a random mask of 0 and 1/(1−rate); outputs result, mask",
		Attrs: []AttrSpec{{"rate", KindFloat, "probability of 0"}}, infer: inferDropout,
	},
	{Name: "LSTMCell", Min: 6, Max: 6, Doc: "one step of a long short-term memory; operands x, h, c, wx, wh, b; outputs h′, c′ and the gates i, f, g, o", infer: inferLSTM},
	{Name: "LSTMCellGrad", Min: 5, Max: 5, Doc: "gradient of LSTMCell before its products; operands gates, c, c′, dh′, dc′; outputs dz, dc", infer: inferLSTMGrad},
}

func inferSoftmax(c *inference) ([]Type, error) {
	return c.in[:1], firstError(wantAxes("operand", c.in[0]), computes(c.in...))
}

func inferSoftmaxGrad(c *inference) ([]Type, error) {
	return c.in[:1], firstError(sameType("y", c.in[1], c.in[0]), wantAxes("dy", c.in[0]), computes(c.in...))
}

func wantAxes(what string, t Type) error {
	if len(t.Shape) == 0 {
		return fmt.Errorf("%s is a scalar, want axes", what)
	}
	return nil
}

func inferSCE(c *inference) ([]Type, error) {
	if err := wantRank("logits", c.in[0], 2); err != nil {
		return nil, err
	}
	if err := wantInteger("labels", c.in[1]); err != nil {
		return nil, err
	}
	rows := c.in[0].Shape[:1]
	if err := wantShape("labels", c.in[1], rows...); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, rows}}, computes(c.in[0])
}

func inferSCEGrad(c *inference) ([]Type, error) {
	loss, err := inferSCE(c)
	if err != nil {
		return nil, err
	}
	if err := wantShape("dy", c.in[2], loss[0].Shape...); err != nil {
		return nil, err
	}
	return c.in[:1], computes(c.in[0], c.in[2])
}

func inferSigCE(c *inference) ([]Type, error) {
	s := c.in[0].Shape
	if len(s) == 0 {
		return nil, fmt.Errorf("logits are a scalar, want rows")
	}
	if err := wantShape("targets", c.in[1], s...); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, s[:1]}}, computes(c.in...)
}

func inferSigCEGrad(c *inference) ([]Type, error) {
	loss, err := inferSigCE(c)
	if err != nil {
		return nil, err
	}
	if err := wantShape("dy", c.in[2], loss[0].Shape...); err != nil {
		return nil, err
	}
	return c.in[:1], computes(c.in...)
}

// windowed is the shape of a convolution or pooling: images [n,h,w,channels] seen through kh×kw windows.
func windowed(x Shape, kh, kw, channels int, strides, pads []int) (Shape, error) {
	if len(x) != 4 || !x[1].Fixed() || !x[2].Fixed() {
		return nil, fmt.Errorf("images are %v, want [n,h,w,c] with fixed h and w", x)
	}
	if len(strides) != 2 || len(pads) != 4 {
		return nil, fmt.Errorf("strides %v, pads %v: want 2 and 4 numbers", strides, pads)
	}
	for _, p := range pads {
		if p < 0 || p > 1<<20 {
			return nil, fmt.Errorf("pads %v: out of range", pads)
		}
	}
	h, w := x[1].N+pads[0]+pads[1], x[2].N+pads[2]+pads[3]
	if kh < 1 || kw < 1 || kh > h || kw > w || strides[0] < 1 || strides[1] < 1 {
		return nil, fmt.Errorf("window %d×%d with strides %v does not fit images %v with pads %v", kh, kw, strides, x, pads)
	}
	return Shape{x[0], N((h-kh)/strides[0] + 1), N((w-kw)/strides[1] + 1), N(channels)}, nil
}

// convolved is the shape of Conv2D's result for images x and filters f.
func convolved(c *inference, x, f Shape) (Shape, error) {
	k, fixed := f.Fixed()
	if !fixed || len(k) != 4 {
		return nil, fmt.Errorf("filters are %v, want fixed [kh,kw,in,out]", f)
	}
	if len(x) != 4 || x[3] != f[2] {
		return nil, fmt.Errorf("images %v and filters %v differ in channels", x, f)
	}
	return windowed(x, k[0], k[1], k[3], c.ints("strides"), c.ints("pads"))
}

func inferConv(c *inference) ([]Type, error) {
	s, err := convolved(c, c.in[0].Shape, c.in[1].Shape)
	if err != nil {
		return nil, err
	}
	if len(c.in) == 3 {
		if err := wantShape("bias", c.in[2], s[3]); err != nil {
			return nil, err
		}
	}
	if err := checkActivation(c.str("act")); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, s}}, computes(c.in...)
}

func inferConvGradInput(c *inference) ([]Type, error) {
	x := c.shape("shape")
	s, err := convolved(c, x, c.in[1].Shape)
	if err != nil {
		return nil, err
	}
	if err := wantShape("dy", c.in[0], s...); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, x}}, computes(c.in...)
}

func inferConvGradFilter(c *inference) ([]Type, error) {
	f := c.shape("shape")
	s, err := convolved(c, c.in[0].Shape, f)
	if err != nil {
		return nil, err
	}
	if err := wantShape("dy", c.in[1], s...); err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, f}}, computes(c.in...)
}

func pooled(c *inference, x Shape) (Shape, error) {
	k, pads := c.ints("window"), c.ints("pads")
	if len(x) != 4 || !x[3].Fixed() || len(k) != 2 {
		return nil, fmt.Errorf("images are %v and the window %v, want [n,h,w,c] with fixed h, w, c and 2 numbers", x, k)
	}
	if len(pads) == 4 && (max(pads[0], pads[1]) >= k[0] || max(pads[2], pads[3]) >= k[1] || x[1] == N(0) || x[2] == N(0)) {
		return nil, fmt.Errorf("pads %v leave windows %v of padding alone on images %v", pads, k, x)
	}
	if n, fixed := x[1:].Elements(); fixed && n > math.MaxInt32 {
		return nil, fmt.Errorf("images are %v: of one with more than %d elements an i32 does not hold every offset", x, math.MaxInt32)
	}
	return windowed(x, k[0], k[1], x[3].N, c.ints("strides"), pads)
}

func inferPool(c *inference) ([]Type, error) {
	s, err := pooled(c, c.in[0].Shape)
	return []Type{{c.in[0].DType, s}, {I32, s}}, firstError(err, computes(c.in...))
}

func inferPoolGrad(c *inference) ([]Type, error) {
	x := c.shape("shape")
	s, err := pooled(c, x)
	if err != nil {
		return nil, err
	}
	return []Type{{c.in[0].DType, x}}, firstError(wantShape("dy", c.in[0], s...), sameType("offsets", c.in[1], Type{I32, s}), computes(c.in[0]))
}

func inferDropout(c *inference) ([]Type, error) {
	if r := c.float("rate"); !(r >= 0 && r < 1) {
		return nil, fmt.Errorf("rate %g, want at least 0 and less than 1", r)
	}
	return []Type{c.in[0], c.in[0]}, computes(c.in...)
}

func inferLSTM(c *inference) ([]Type, error) {
	if err := computes(c.in...); err != nil {
		return nil, err
	}
	x, h, wx := c.in[0], c.in[1], c.in[3]
	if len(x.Shape) != 2 || len(h.Shape) != 2 || !h.Shape[1].Fixed() || h.Shape[1].N > maxElements/4 {
		return nil, fmt.Errorf("x is %v and h %v, want [n,in] and [n,units] with fixed units", x, h)
	}
	n, in, u := x.Shape[0], x.Shape[1], h.Shape[1]
	gates := N(4 * u.N)
	err := firstError(wantShape("h", h, n, u), wantShape("c", c.in[2], n, u), wantShape("wx", wx, in, gates),
		wantShape("wh", c.in[4], u, gates), wantShape("b", c.in[5], gates))
	dt := x.DType
	return []Type{{dt, Shape{n, u}}, {dt, Shape{n, u}}, {dt, Shape{n, gates}}}, err
}

func inferLSTMGrad(c *inference) ([]Type, error) {
	gates, cell := c.in[0], c.in[1]
	if len(cell.Shape) != 2 || !cell.Shape[1].Fixed() || cell.Shape[1].N > maxElements/4 {
		return nil, fmt.Errorf("c is %v, want [n,units] with fixed units", cell)
	}
	n, u := cell.Shape[0], cell.Shape[1]
	err := firstError(wantShape("gates", gates, n, N(4*u.N)), wantShape("c′", c.in[2], n, u), wantShape("dh′", c.in[3], n, u),
		wantShape("dc′", c.in[4], n, u), computes(c.in...))
	return []Type{gates, cell}, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Softmax is e^a over its sum along the last axis. Gradient: y·(dy − Σ dy·y).
func Softmax(a Value) Value { return apply("Softmax", nil, a) }

// SoftmaxGrad is y·(dy − Σ dy·y) along the last axis; y is Softmax's result. Gradient: of dy SoftmaxGrad(g, y), of y g·(dy − Σ dy·y) −
// dy·Σ g·y.
func SoftmaxGrad(dy, y Value) Value { return apply("SoftmaxGrad", nil, dy, y) }

// SoftmaxCrossEntropy is −log softmax(logits)[label] for logits [rows,classes] and integer labels [rows]: one value a row. A label
// outside [0, classes) is an error at Run. Gradient: SoftmaxCrossEntropyGrad.
func SoftmaxCrossEntropy(logits, labels Value) Value {
	return apply("SoftmaxCrossEntropy", nil, logits, labels)
}

// SoftmaxCrossEntropyGrad is dy·(softmax(logits) − onehot(labels)), [rows,classes], for dy [rows]. Gradient: of logits through softmax,
// of dy the sum of g·(softmax − onehot) over classes.
func SoftmaxCrossEntropyGrad(logits, labels, dy Value) Value {
	return apply("SoftmaxCrossEntropyGrad", nil, logits, labels, dy)
}

// SigmoidCrossEntropy is the logistic loss of logits x and targets t of one shape [rows,...], each t in [0,1]: max(x,0) − x·t +
// log(1+e^−|x|), summed over all axes but the first, so one value a row. Gradient: SigmoidCrossEntropyGrad, and −dy·x of the targets.
func SigmoidCrossEntropy(logits, targets Value) Value {
	return apply("SigmoidCrossEntropy", nil, logits, targets)
}

// SigmoidCrossEntropyGrad is dy·(σ(logits) − targets), shaped like logits, for dy [rows]. Gradient: g·dy·σ′, −g·dy and the sum of
// g·(σ − targets) over all axes but the first.
func SigmoidCrossEntropyGrad(logits, targets, dy Value) Value {
	return apply("SigmoidCrossEntropyGrad", nil, logits, targets, dy)
}

// Window is the geometry of Conv2D and MaxPool. A zero stride is 1 for Conv2D and the window's size for MaxPool. Pads are zeros above,
// below, left and right; Same chooses them so that a stride of 1 keeps height and width (more below and right when uneven).
type Window struct {
	Strides [2]int
	Pads    [4]int
	Same    bool
}

// resolve fills in defaults for images x and windows kh×kw.
func (w Window) resolve(x Shape, kh, kw int, strides [2]int) (stride, pads []int) {
	k := [2]int{kh, kw}
	for i := range 2 {
		if w.Strides[i] != 0 {
			strides[i] = w.Strides[i]
		}
		if w.Same && len(x) == 4 && strides[i] > 0 {
			size := x[1+i].N
			total := max(((size+strides[i]-1)/strides[i]-1)*strides[i]+k[i]-size, 0)
			w.Pads[2*i], w.Pads[2*i+1] = total/2, total-total/2
		}
	}
	return strides[:], w.Pads[:]
}

// Conv2D is act(x ⋆ filters + bias): the correlation of images [n,h,w,in] with filters [kh,kw,in,out], bias [out] or the zero Value.
// The result is [n,h′,w′,out]. Gradient, with dz = dy·act′: Conv2DGradInput, Conv2DGradFilter, and dz summed over all but channels.
func Conv2D(x, filters, bias Value, act Activation, w Window) Value {
	kh, kw := 1, 1
	if f := filters.Shape(); len(f) == 4 {
		kh, kw = f[0].N, f[1].N
	}
	strides, pads := w.resolve(x.Shape(), kh, kw, [2]int{1, 1})
	attrs := []Attr{attrString(string(act)), attrInts(strides), attrInts(pads)}
	if bias.IsZero() {
		return apply("Conv2D", attrs, x, filters)
	}
	return apply("Conv2D", attrs, x, filters, bias)
}

// Conv2DGradInput is the gradient of Conv2D's images of the given shape. Gradient: Conv2D of g, and Conv2DGradFilter.
func Conv2DGradInput(dy, filters Value, shape Shape, strides, pads []int) Value {
	return apply("Conv2DGradInput", []Attr{attrShape(shape), attrInts(strides), attrInts(pads)}, dy, filters)
}

// Conv2DGradFilter is the gradient of Conv2D's filters of the given shape. Gradient: Conv2DGradInput, and Conv2D with g.
func Conv2DGradFilter(x, dy Value, shape Shape, strides, pads []int) Value {
	return apply("Conv2DGradFilter", []Attr{attrShape(shape), attrInts(strides), attrInts(pads)}, x, dy)
}

// MaxPool is the maximum of each kh×kw window of images [n,h,w,c]; its node's output 1 is the i32 offset, in its image, of the first
// maximum in row-major order. Padding is never the maximum. Gradient: MaxPoolGrad.
func MaxPool(x Value, kh, kw int, w Window) Value {
	strides, pads := w.resolve(x.Shape(), kh, kw, [2]int{kh, kw})
	return apply("MaxPool", []Attr{attrInts([]int{kh, kw}), attrInts(strides), attrInts(pads)}, x)
}

// MaxPoolGrad is zeros of MaxPool's image shape with each element of dy added at its offset, in ascending order of dy. It has no gradient
// itself.
func MaxPoolGrad(dy, offsets Value, shape Shape, window, strides, pads []int) Value {
	return apply("MaxPoolGrad", []Attr{attrShape(shape), attrInts(window), attrInts(strides), attrInts(pads)}, dy, offsets)
}

// Dropout zeroes each element with probability rate and multiplies the others by 1/(1−rate); see Keep for the random numbers. Gradient:
// dy times the same mask.
func Dropout(a Value, rate float64) Value { return apply("Dropout", []Attr{attrFloat(rate)}, a) }

// LSTMCell is one step for x [n,in], h and c [n,units], wx [in,4·units], wh [units,4·units] and b [4·units], whose columns are the input,
// forget, cell and output gates: i,f,o = σ(z), g = tanh(z), c′ = f·c + i·g, h′ = o·tanh(c′), where z = x·wx + h·wh + b. Gradient: through
// LSTMCellGrad.
func LSTMCell(x, h, c, wx, wh, b Value) (nextH, nextC Value) {
	v := apply("LSTMCell", nil, x, h, c, wx, wh, b)
	return v, v.Output(1)
}

// LSTMCellGrad is the gradient of an LSTMCell's z and c from its gates [n,4·units], c, c′ and the gradients of h′ and c′. It has no
// gradient itself.
func LSTMCellGrad(gates, c, nextC, dh, dc Value) (dz, dcell Value) {
	v := apply("LSTMCellGrad", nil, gates, c, nextC, dh, dc)
	return v, v.Output(1)
}

// Output is output i of v's node: masks, gates and the stacked values of a Scan.
func (v Value) Output(i int) Value {
	if n := v.def(); n == nil || i < 0 || i >= len(n.Types) {
		return Value{v.b, -1, 0}
	}
	return Value{v.b, v.node, int32(i)}
}
