package traintest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// Toy is a softmax regression written by hand, row by row, with nothing shared with package nn: small enough to be read in one go.
// Its only cleverness is none.
type Toy struct {
	layout        *trivium.Layout
	cols, classes int
	scores        []float32
}

// Models returns the model "toy".
func Models() nn.Models {
	return nn.Models{"toy": func(args string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
		if len(s.Inputs) != 1 || s.Inputs[0].Form != trivium.Dense || s.Labels.Kind != trivium.Class {
			return nil, fmt.Errorf("toy: wants one dense input and class labels, found %+v", s)
		}
		m := &Toy{cols: s.Inputs[0].Columns(), classes: s.Labels.Width}
		m.scores = make([]float32, m.classes)
		var err error
		m.layout, err = trivium.NewLayout(
			trivium.Spec{Name: "weight", Shape: []int{m.classes, m.cols}, Decay: 1},
			trivium.Spec{Name: "bias", Shape: []int{m.classes}})
		return m, err
	}}
}

// Layout returns weight and bias.
func (m *Toy) Layout() *trivium.Layout { return m.layout }

// Init draws small weights; biases are 0.
func (m *Toy) Init(seed uint64, p trivium.Params) {
	r := rand.New(rand.NewPCG(seed, 0))
	clear(p.Flat)
	for i := range p.Tensor(0) {
		p.Flat[i] = float32(r.NormFloat64()) / 100
	}
}

func (m *Toy) row(p trivium.Params, x, scores []float32) {
	w, b := p.Tensor(0), p.Tensor(1)
	for k := range scores {
		s := b[k]
		for j, v := range x {
			s += float32(w[k*m.cols+j] * v)
		}
		scores[k] = s
	}
}

// Grad sums weight × gradient row by row.
func (m *Toy) Grad(_ context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	x := b.Inputs[0].Values
	if len(x) != b.Rows*m.cols || len(b.Labels.Class) != b.Rows {
		return 0, 0, fmt.Errorf("toy: input %q: %d rows want %d values, found %d", b.Inputs[0].Name, b.Rows, b.Rows*m.cols, len(x))
	}
	g.Zero()
	gw, gb := g.Tensor(0), g.Tensor(1)
	for i := range b.Rows {
		weight := float32(1)
		if b.Weights != nil {
			weight = b.Weights[i]
		}
		row := x[i*m.cols : (i+1)*m.cols]
		m.row(p, row, m.scores)
		lossSum += float64(weight) * crossEntropy(m.scores, int(b.Labels.Class[i]))
		weightSum += float64(weight)
		for k, s := range m.scores { // now the gradient of the scores
			s *= weight
			gb[k] += s
			for j, v := range row {
				gw[k*m.cols+j] += float32(s * v)
			}
		}
	}
	if ready != nil {
		ready(0)
		ready(1)
	}
	return lossSum, weightSum, nil
}

// crossEntropy returns the loss and turns scores into its gradient.
func crossEntropy(scores []float32, class int) float64 {
	most := scores[0]
	for _, s := range scores {
		most = max(most, s)
	}
	var sum float64
	for _, s := range scores {
		sum += math.Exp(float64(s - most))
	}
	loss := math.Log(sum) - float64(scores[class]-most)
	for k, s := range scores {
		scores[k] = float32(math.Exp(float64(s-most)) / sum)
	}
	scores[class]--
	return loss
}

// Outputs is one logit a class.
func (m *Toy) Outputs() trivium.Outputs {
	return trivium.Outputs{Task: trivium.MultiClass, Width: m.classes}
}

// Predict writes the logits.
func (m *Toy) Predict(_ context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	for i := range b.Rows {
		m.row(p, b.Inputs[0].Values[i*m.cols:(i+1)*m.cols], scores[i*m.classes:(i+1)*m.classes])
	}
	return nil
}

// Loss is the cross-entropy of scores.
func (m *Toy) Loss(b trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	for i := range b.Rows {
		weight := 1.0
		if b.Weights != nil {
			weight = float64(b.Weights[i])
		}
		copy(m.scores, scores[i*m.classes:])
		lossSum += weight * crossEntropy(m.scores, int(b.Labels.Class[i]))
		weightSum += weight
	}
	return lossSum, weightSum, nil
}

// The toy data: blobs around three centres.
const (
	toyRows, toyValid, toyTest = 203, 60, 60
	toyCols, toyClasses        = 5, 3
)

// Sources returns the source "toy": rows around one centre a class, some of them weighted, with validation and test rows; and "wide".
func Sources() data.Sources {
	return data.Sources{"wide": wide, "toy": func(_ context.Context, d trivium.Data) (*data.Splits, error) {
		r := rand.New(rand.NewPCG(7, 7))
		var centres [toyClasses][toyCols]float64
		for k := range centres {
			for j := range centres[k] {
				centres[k][j] = r.NormFloat64()
			}
		}
		schema := trivium.Schema{
			Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.Dense, Shape: []int{toyCols}}},
			Labels: trivium.LabelSpec{Kind: trivium.Class, Width: toyClasses, Names: []string{"0", "1", "2"}},
		}
		part := func(rows int) data.Dataset {
			b := trivium.Batch{
				Rows: rows, Inputs: []trivium.Input{{Name: "x", Form: trivium.Dense, Shape: []int{toyCols}}},
				Labels: trivium.Labels{Kind: trivium.Class, Width: toyClasses},
			}
			for i := range rows {
				k := i % toyClasses
				for j := range toyCols {
					b.Inputs[0].Values = append(b.Inputs[0].Values, float32(centres[k][j]+0.8*r.NormFloat64()))
				}
				b.Labels.Class = append(b.Labels.Class, int32(k))
				b.Weights = append(b.Weights, float32(1+i%2)/2)
			}
			return data.Memory(schema, b)
		}
		return &data.Splits{Train: part(toyRows), Valid: part(toyValid), Test: part(toyTest), Checksum: "toy", Notes: []string{"the data is a toy"}}, nil
	}}
}

// wide returns the rows of data.Adult with their columns spread over so many that the models of package nn are row-sparse.
func wide(ctx context.Context, d trivium.Data) (*data.Splits, error) {
	s, err := data.Adult(ctx, d)
	if err != nil {
		return nil, err
	}
	const columns = 1 << 14
	for _, part := range []*data.Dataset{&s.Train, &s.Test} {
		var b trivium.Batch
		if err := (*part).Read(ctx, &b, 0, (*part).Rows()); err != nil {
			return nil, err
		}
		schema, in := (*part).Schema(), b.Inputs[0]
		apart := int32(columns / schema.Inputs[0].Columns())
		in.Shape, in.Index = []int{columns}, slices.Clone(in.Index)
		for i, c := range in.Index {
			in.Index[i] = c/8*8*apart + c%8 // some rows side by side
		}
		b.Inputs = []trivium.Input{in}
		schema.Inputs = []trivium.InputSpec{{Name: in.Name, Form: in.Form, Shape: in.Shape}}
		*part = data.Memory(schema, b)
	}
	return s, nil
}
