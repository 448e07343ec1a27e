package graph

import "fmt"

// ResourceKind says what a Resource is.
type ResourceKind uint8

// The kinds of resource.
const (
	VariableKind ResourceKind = iota + 1
	QueueKind
	AccumulatorKind
)

var resourceKindNames = [...]string{"", "Variable", "queue", "accumulator"}

func (k ResourceKind) String() string {
	if int(k) < len(resourceKindNames) {
		return resourceKindNames[k]
	}
	return fmt.Sprintf("resource(%d)", uint8(k))
}

// Resource is something that outlives a step: its contents are in the executor's State, found by Name.
type Resource struct {
	ID        int // position in Graph.Resources
	Kind      ResourceKind
	Name      string // scoped and unique among resources
	Device    string
	Types     []Type // one, fixed, of a Variable and an accumulator; those of an entry of a queue
	Init      Init   // of a Variable
	Trainable bool   // of a Variable
	Capacity  int    // of a queue, in entries
	// MeanPerRow divides each row of an accumulator by the gradients that touched it, not by all gradients taken.
	MeanPerRow bool
}

// Variable is a named tensor of fixed shape that lives between steps. Trainable is true at first; set it before Build.
type Variable struct {
	*Resource
	b *Builder
}

// Queue is a bounded first-in, first-out queue of tuples.
type Queue struct {
	*Resource
	b *Builder
}

// Accumulator collects gradients of one shape until enough of them are there.
type Accumulator struct {
	*Resource
	b *Builder
}

// InitKind names a distribution of initial values.
type InitKind uint8

// The kinds of initial value.
const (
	InitZeros     InitKind = iota
	InitConstant           // A everywhere
	InitUniform            // in [A, B)
	InitNormal             // mean A, deviation B
	InitTruncated          // mean A, deviation B, redrawn beyond two deviations
)

// Init says how a Variable starts; the zero value is all zeros.
type Init struct {
	Kind  InitKind
	A, B  float64
	Scale Scale
}

// Scale multiplies the numbers of an Init by something that depends on the Variable's shape.
type Scale uint8

// The scales. Of a matrix [in, out] the fans are in and out; of a filter [kh, kw, in, out] both are multiplied by kh·kw.
const (
	ScaleNone   Scale = iota
	ScaleFanIn        // 1/sqrt(fan in)
	ScaleFanAvg       // 1/sqrt((fan in + fan out)/2)
)

// Fan returns that of which the scale is one over the square root, for a Variable of that shape; of ScaleNone, 1. A vector's fans are
// both its length.
func (s Scale) Fan(shape []int) float64 {
	in, out := 1.0, 1.0
	switch n := len(shape); n {
	case 0:
	case 1:
		in, out = float64(shape[0]), float64(shape[0])
	default:
		window := 1
		for _, d := range shape[:n-2] {
			window *= d
		}
		in, out = float64(window*shape[n-2]), float64(window*shape[n-1])
	}
	switch s {
	case ScaleFanIn:
		return in
	case ScaleFanAvg:
		return (in + out) / 2
	}
	return 1
}

// Zeros starts at 0.
func Zeros() Init { return Init{} }

// Constant starts at x everywhere.
func Constant(x float64) Init { return Init{Kind: InitConstant, A: x} }

// Uniform draws from [lo, hi).
func Uniform(lo, hi float64) Init { return Init{Kind: InitUniform, A: lo, B: hi} }

// Normal draws from a normal distribution.
func Normal(mean, deviation float64) Init { return Init{Kind: InitNormal, A: mean, B: deviation} }

// GlorotUniform draws from ±sqrt(6/(fan in + fan out)) (Glorot and Bengio 2010).
func GlorotUniform() Init {
	return Init{Kind: InitUniform, A: -1.7320508075688772, B: 1.7320508075688772, Scale: ScaleFanAvg}
}

// HeNormal draws with deviation sqrt(2/fan in), for weights whose results a ReLU takes (He et al. 2015).
func HeNormal() Init {
	return Init{Kind: InitNormal, B: 1.4142135623730951, Scale: ScaleFanIn}
}

// Variables lists the Variables in creation order.
func (g *Graph) Variables() []*Variable {
	var vs []*Variable
	for _, r := range g.resources {
		if r.Kind == VariableKind {
			vs = append(vs, &Variable{r, g.origin})
		}
	}
	return vs
}

// Shape is the Variable's sizes.
func (v *Variable) Shape() []int {
	sizes, _ := v.Types[0].Shape.Fixed()
	return sizes
}

// DType is the Variable's element type.
func (v *Variable) DType() DType { return v.Types[0].DType }
