package graph

import "fmt"

// linearOps are products of matrices, dense and sparse.
var linearOps = []Op{
	{
		Name: "MatMul", Min: 2, Max: 2, Doc: "op(a)·op(b); op transposes when asked",
		Attrs: []AttrSpec{{"ta", KindBool, "transpose a"}, {"tb", KindBool, "transpose b"}}, infer: inferMatMul,
	},
	{
		Name: "Dense", Min: 2, Max: 3, Doc: "act(x·w + bias)",
		Attrs: []AttrSpec{{"act", KindString, `"", "relu", "tanh" or "sigmoid"`}}, infer: inferDense,
	},
	{
		Name: "Transpose", Min: 1, Max: 1, Doc: "axes in another order: axis i of the result is axis perm[i]",
		Attrs: []AttrSpec{{"perm", KindInts, "a permutation of the axes"}}, infer: inferTranspose,
	},
	{Name: "SparseMatMul", Min: 4, Max: 4, Doc: "a CSR matrix (indptr, indices, values) times a dense matrix", infer: inferSparse},
	{
		Name: "SparseMatMulGradRows", Min: 3, Max: 3, Doc: "row-sparse gradient of SparseMatMul's weights: row j is values[j]·dy[row of j]; operands indptr, values, dy",
		infer: inferSparseGradRows,
	},
	{
		Name: "SparseMatMulGradWeights", Min: 4, Max: 4, Doc: "dense gradient of SparseMatMul's weights; operands indptr, indices, values, dy",
		Attrs: []AttrSpec{{"rows", KindInt, "rows of the weights"}}, infer: inferSparseGradWeights,
	},
	{Name: "SparseMatMulGradValues", Min: 4, Max: 4, Doc: "gradient of SparseMatMul's values; operands indptr, indices, w, dy", infer: inferSparseGradValues},
}

// Activation names a function that Dense and Conv2D apply to their result.
type Activation string

// The activations.
const (
	Linear    Activation = ""
	WithReLU  Activation = "relu"
	WithTanh  Activation = "tanh"
	WithSigma Activation = "sigmoid"
)

func checkActivation(act string) error {
	switch Activation(act) {
	case Linear, WithReLU, WithTanh, WithSigma:
		return nil
	}
	return fmt.Errorf(`activation %q, want "", "relu", "tanh" or "sigmoid"`, act)
}

func inferMatMul(c *inference) ([]Type, error) {
	if err := computes(c.in...); err != nil {
		return nil, err
	}
	a, b := c.in[0], c.in[1]
	if len(a.Shape) != 2 || len(b.Shape) != 2 {
		return nil, fmt.Errorf("%v and %v: want two matrices", a, b)
	}
	m, k, k2, n := a.Shape[0], a.Shape[1], b.Shape[0], b.Shape[1]
	if c.bool("ta") {
		m, k = k, m
	}
	if c.bool("tb") {
		k2, n = n, k2
	}
	if k != k2 {
		return nil, fmt.Errorf("inner axes differ: %v and %v", k, k2)
	}
	return one(a.DType, Shape{m, n})
}

func inferDense(c *inference) ([]Type, error) {
	out, err := inferMatMul(c)
	if err != nil {
		return nil, err
	}
	if len(c.in) == 3 {
		if err := wantShape("bias", c.in[2], out[0].Shape[1]); err != nil {
			return nil, err
		}
	}
	return out, checkActivation(c.str("act"))
}

func inferTranspose(c *inference) ([]Type, error) {
	perm, s := c.ints("perm"), c.in[0].Shape
	seen, out := make([]bool, len(s)), make(Shape, len(s))
	for i, a := range perm {
		if len(perm) != len(s) || a < 0 || a >= len(s) || seen[a] {
			return nil, fmt.Errorf("%v is no permutation of the axes of %v", perm, s)
		}
		seen[a], out[i] = true, s[a]
	}
	if len(perm) != len(s) {
		return nil, fmt.Errorf("%v is no permutation of the axes of %v", perm, s)
	}
	return one(c.in[0].DType, out)
}

// csr checks the operands of a CSR matrix that are there: a zero Type stands for one that is not.
func csr(indptr, indices, values Type) error {
	if err := wantRank("indptr", indptr, 1); err != nil {
		return err
	}
	if err := wantInteger("indptr", indptr); err != nil {
		return err
	}
	if indices.DType.Valid() {
		if err := wantRank("indices", indices, 1); err != nil {
			return err
		}
		if err := wantInteger("indices", indices); err != nil {
			return err
		}
	}
	if values.DType.Valid() {
		if err := wantRank("values", values, 1); err != nil {
			return err
		}
	}
	if indices.DType.Valid() && values.DType.Valid() && !indices.Shape.Equal(values.Shape) {
		return fmt.Errorf("indices are %v, values %v: want one shape", indices, values)
	}
	return nil
}

func inferSparse(c *inference) ([]Type, error) {
	if err := csr(c.in[0], c.in[1], c.in[2]); err != nil {
		return nil, err
	}
	if err := wantRank("w", c.in[3], 2); err != nil {
		return nil, err
	}
	return []Type{{c.in[3].DType, Shape{c.in[0].Shape[0].Plus(-1), c.in[3].Shape[1]}}}, computes(c.in[2:]...)
}

func sparseDY(indptr, dy Type) error {
	if err := wantRank("dy", dy, 2); err != nil {
		return err
	}
	return wantShape("dy", dy, indptr.Shape[0].Plus(-1), dy.Shape[1])
}

func inferSparseGradRows(c *inference) ([]Type, error) {
	if err := csr(c.in[0], Type{}, c.in[1]); err != nil {
		return nil, err
	}
	if err := sparseDY(c.in[0], c.in[2]); err != nil {
		return nil, err
	}
	return []Type{{c.in[2].DType, Shape{c.in[1].Shape[0], c.in[2].Shape[1]}}}, computes(c.in[1:]...)
}

func inferSparseGradWeights(c *inference) ([]Type, error) {
	if err := csr(c.in[0], c.in[1], c.in[2]); err != nil {
		return nil, err
	}
	if err := sparseDY(c.in[0], c.in[3]); err != nil {
		return nil, err
	}
	return []Type{{c.in[3].DType, Shape{N(c.int("rows")), c.in[3].Shape[1]}}}, computes(c.in[2:]...)
}

func inferSparseGradValues(c *inference) ([]Type, error) {
	if err := csr(c.in[0], c.in[1], Type{}); err != nil {
		return nil, err
	}
	if err := sparseDY(c.in[0], c.in[3]); err != nil {
		return nil, err
	}
	if err := wantRank("w", c.in[2], 2); err != nil {
		return nil, err
	}
	if c.in[2].Shape[1] != c.in[3].Shape[1] {
		return nil, fmt.Errorf("w is %v, dy %v: want equal columns", c.in[2], c.in[3])
	}
	return []Type{{c.in[2].DType, c.in[1].Shape}}, computes(c.in[2:]...)
}

// MatMul is a·b of matrices [m,k] and [k,n]. Gradient: dy·bᵀ and aᵀ·dy.
func MatMul(a, b Value) Value { return MatMulT(a, b, false, false) }

// MatMulT is op(a)·op(b), where op transposes when ta or tb says so; nothing is copied to transpose. Gradient: MatMulT again.
func MatMulT(a, b Value, ta, tb bool) Value {
	return apply("MatMul", []Attr{attrBool(ta), attrBool(tb)}, a, b)
}

// Dense is act(x·w + bias) for x [m,k], w [k,n] and bias [n], or no bias when that is the zero Value: the bits of the separate
// operations. Gradient, with dz = dy·act′: dz·wᵀ, xᵀ·dz and dz summed over rows.
func Dense(x, w, bias Value, act Activation) Value {
	attrs := []Attr{attrString(string(act))}
	if bias.IsZero() {
		return apply("Dense", attrs, x, w)
	}
	return apply("Dense", attrs, x, w, bias)
}

// Transpose reorders axes: axis i of the result is axis perm[i] of a. Gradient: the inverse Transpose.
func Transpose(a Value, perm ...int) Value {
	return apply("Transpose", []Attr{attrInts(perm)}, a)
}

// SparseMatMul is a CSR matrix times w [k,n]: row i of the result is the sum over j in [indptr[i], indptr[i+1]) of
// values[j]·w[indices[j]]. indptr has one entry more than rows, as in Axis("batch").Plus(1); the result is [rows,n]. Gradient: of w
// row-sparse (rows indices, see SparseMatMulGradRows), of values see SparseMatMulGradValues.
func SparseMatMul(indptr, indices, values, w Value) Value {
	return apply("SparseMatMul", nil, indptr, indices, values, w)
}

// SparseMatMulGradRows is the gradient of SparseMatMul's w, one row for each entry: values[j]·dy[row of j], [entries,n]. It has no
// gradient itself.
func SparseMatMulGradRows(indptr, values, dy Value) Value {
	return apply("SparseMatMulGradRows", nil, indptr, values, dy)
}

// SparseMatMulGradWeights is the gradient of SparseMatMul's w [rows,n], dense. It has no gradient itself.
func SparseMatMulGradWeights(indptr, indices, values, dy Value, rows int) Value {
	return apply("SparseMatMulGradWeights", []Attr{attrInt(rows)}, indptr, indices, values, dy)
}

// SparseMatMulGradValues is the gradient of SparseMatMul's values: entry j is w[indices[j]]·dy[row of j], [entries]. It has no
// gradient itself.
func SparseMatMulGradValues(indptr, indices, w, dy Value) Value {
	return apply("SparseMatMulGradValues", nil, indptr, indices, w, dy)
}
