package nn_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// A sample is a model with a batch that it can learn.
type sample struct {
	model  string
	schema trivium.Schema
	batch  trivium.Batch
}

const testRows = 37 // four leaves of 8 rows and a short one

func samples() []sample {
	dense := trivium.InputSpec{Name: "x", Shape: []int{9}}
	sparse := trivium.InputSpec{Name: "x", Form: trivium.CSR, Shape: []int{40}}
	wide := trivium.InputSpec{Name: "x", Form: trivium.CSR, Shape: []int{20_000}}
	image := trivium.InputSpec{Name: "x", Shape: []int{16, 16, 1}}
	series := trivium.InputSpec{Name: "x", Shape: []int{5, 3}}
	var out []sample
	add := func(model string, in trivium.InputSpec, kind trivium.LabelKind, width int) {
		s := trivium.Schema{Inputs: []trivium.InputSpec{in}, Labels: trivium.LabelSpec{Kind: kind, Width: width}}
		out = append(out, sample{model, s, newBatch(s, testRows)})
	}
	for _, in := range []trivium.InputSpec{dense, sparse, wide} {
		add("logistic", in, trivium.Class, 2)
		add("svm", in, trivium.Class, 2)
		add("linear", in, trivium.Real, 1)
		add("softmax", in, trivium.Class, 3)
		add("mlp:7,5", in, trivium.Class, 3)
		add("mlp:6", in, trivium.Real, 2)
	}
	add("fm:3", sparse, trivium.Class, 2)
	add("fm:3", wide, trivium.Real, 1)
	add("cnn:3,4,6", image, trivium.Class, 3)
	add("lstm:4", series, trivium.Class, 3)
	return out
}

func newBatch(s trivium.Schema, rows int) trivium.Batch {
	stream := draw.Stream("nn test")
	unit := func(k int) float32 { return draw.Unit(7, stream, uint64(k)) }
	in := s.Inputs[0]
	x := trivium.Input{Name: in.Name, Form: in.Form, Shape: in.Shape}
	if in.Form == trivium.Dense {
		for k := range rows * in.Columns() {
			x.Values = append(x.Values, unit(k))
		}
	} else {
		x.Ptr = []int64{0}
		for r := range rows {
			cols := map[int32]bool{}
			for k := range 1 + r%4 {
				cols[int32(draw.Below(7, stream+1, uint64(r*8+k), uint64(in.Columns())))] = true
			}
			for c := range cols {
				x.Index = append(x.Index, c)
			}
			slices.Sort(x.Index[x.Ptr[r]:])
			x.Ptr = append(x.Ptr, int64(len(x.Index)))
		}
		for k := range x.Index {
			x.Values = append(x.Values, unit(k))
		}
	}
	b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{x}, Labels: trivium.Labels{Kind: s.Labels.Kind, Width: s.Labels.Width}}
	for r := range rows {
		if s.Labels.Kind == trivium.Class {
			b.Labels.Class = append(b.Labels.Class, int32(r%s.Labels.Width))
		} else {
			for c := range s.Labels.Width {
				b.Labels.Real = append(b.Labels.Real, unit(100_000+r*s.Labels.Width+c))
			}
		}
		b.Weights = append(b.Weights, 0.5+float32(r%3))
	}
	if err := b.Validate(); err != nil {
		panic(err)
	}
	return b
}

// build makes the model with parameters that are not at a kink or saddle.
func build(t testing.TB, s sample, threads int) (trivium.Model, trivium.Params) {
	t.Helper()
	cpu := tensor.NewCPU(threads, true)
	t.Cleanup(cpu.Close)
	m, err := nn.Standard().Build(s.model, s.schema, cpu)
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(m.Layout())
	m.Init(1, p)
	for i := range p.Flat {
		p.Flat[i] += 0.1 * draw.Unit(3, draw.Stream("nn test"), uint64(i))
	}
	return m, p
}

func (s sample) String() string {
	return fmt.Sprintf("%s on %v %v", s.model, s.schema.Inputs[0].Form, s.schema.Inputs[0].Shape)
}

func grad(t testing.TB, m trivium.Model, p trivium.Params, b trivium.Batch) (trivium.Gradient, float64, float64) {
	t.Helper()
	g := trivium.NewGradient(m.Layout())
	for i := range g.Flat {
		g.Flat[i] = float32(math.NaN()) // whatever the model leaves is seen
	}
	loss, weight, err := m.Grad(context.Background(), p, b, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dense(g), loss, weight
}

// dense writes zeros to the rows that g does not touch.
func dense(g trivium.Gradient) trivium.Gradient {
	for i := range g.Layout.Tensors() {
		if !g.Layout.Spec(i).RowSparse {
			continue
		}
		cells, cols := g.Tensor(i), g.Layout.Cols(i)
		for r := range g.Layout.Rows(i) {
			if _, ok := slices.BinarySearch(g.Rows[i], int32(r)); !ok {
				clear(cells[r*cols : (r+1)*cols])
			}
		}
	}
	return g
}

func loss(t testing.TB, m trivium.Model, p trivium.Params, b trivium.Batch) float64 {
	t.Helper()
	pred := m.(trivium.Predictor)
	scores := make([]float32, b.Rows*pred.Outputs().Width)
	if err := pred.Predict(context.Background(), p, b, scores); err != nil {
		t.Fatal(err)
	}
	l, _, err := pred.Loss(b, scores)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Every model's gradient is that of its loss, by central differences in the steepest direction and at single cells.
func TestGradientsAreThoseOfTheLoss(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.String(), func(t *testing.T) {
			m, p := build(t, s, 1)
			g, sum, weight := grad(t, m, p, s.batch)
			if want := loss(t, m, p, s.batch); !(math.Abs(sum-want) <= 1e-4*math.Abs(want)) {
				t.Errorf("Grad's loss is %v, Predict and Loss give %v", sum, want)
			}
			if want := s.batch.WeightSum(); weight != want {
				t.Errorf("weight sum %v, want %v", weight, want)
			}
			var norm float64
			for _, x := range g.Flat {
				norm += float64(x) * float64(x)
			}
			norm = math.Sqrt(norm)
			if norm == 0 || math.IsNaN(norm) {
				t.Fatalf("norm of the gradient is %v", norm)
			}
			step := func(h float64) float64 {
				q := trivium.NewParams(p.Layout)
				for i := range q.Flat {
					q.Flat[i] = p.Flat[i] + float32(h*float64(g.Flat[i])/norm)
				}
				return loss(t, m, q, s.batch)
			}
			const h = 2e-3
			if slope := (step(h) - step(-h)) / (2 * h); !(math.Abs(slope-norm) <= 0.02*norm) {
				t.Errorf("the loss rises by %v along the gradient, whose norm is %v", slope, norm)
			}
			for i := range m.Layout().Tensors() { // a cell of each tensor, the one with the largest gradient
				from, to := m.Layout().Range(i)
				at := from
				for k := from; k < to; k++ {
					if math.Abs(float64(g.Flat[k])) > math.Abs(float64(g.Flat[at])) {
						at = k
					}
				}
				q := trivium.NewParams(p.Layout)
				copy(q.Flat, p.Flat)
				q.Flat[at] = p.Flat[at] + h
				up := loss(t, m, q, s.batch)
				q.Flat[at] = p.Flat[at] - h
				slope := (up - loss(t, m, q, s.batch)) / (2 * h)
				if want := float64(g.Flat[at]); !(math.Abs(slope-want) <= 0.03*math.Abs(want)+0.02) {
					t.Errorf("tensor %q, cell %d: difference quotient %v, gradient %v", m.Layout().Spec(i).Name, at-from, slope, want)
				}
			}
		})
	}
}

// Sums, never means: the gradient of a batch is the sum of those of its parts.
func TestGradientsAdd(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.String(), func(t *testing.T) {
			m, p := build(t, s, 1)
			whole, sum, weight := grad(t, m, p, s.batch)
			a, sumA, weightA := grad(t, m, p, s.batch.Slice(0, 20))
			b, sumB, weightB := grad(t, m, p, s.batch.Slice(20, testRows))
			if weight != weightA+weightB {
				t.Errorf("weights %v + %v, want %v", weightA, weightB, weight)
			}
			if !(math.Abs(sum-sumA-sumB) <= 1e-4*math.Abs(sum)) {
				t.Errorf("losses %v + %v, want %v", sumA, sumB, sum)
			}
			for i := range whole.Flat {
				if got := a.Flat[i] + b.Flat[i]; !(math.Abs(float64(got-whole.Flat[i])) <= 1e-3*(1+math.Abs(float64(got)))) {
					t.Fatalf("cell %d: %v + %v, want %v", i, a.Flat[i], b.Flat[i], whole.Flat[i])
				}
			}
		})
	}
}

// Threads change no bit, and every tensor is reported ready once.
// TestViewsAreTheirRows: the gradient of some rows of a data set is that of these rows alone, and touches no others' columns.
func TestViewsAreTheirRows(t *testing.T) {
	const from, to = 9, 20
	for _, s := range samples() {
		in := s.batch.Inputs[0]
		if in.Form != trivium.CSR {
			continue
		}
		m, p := build(t, s, 1)
		var view trivium.Batch
		s.batch.SliceInto(&view, from, to)
		own := view
		own.Inputs = slices.Clone(view.Inputs)
		x := &own.Inputs[0]
		x.Index, x.Values, x.Ptr = in.Index[in.Ptr[from]:in.Ptr[to]], in.Values[in.Ptr[from]:in.Ptr[to]], nil
		for _, at := range in.Ptr[from : to+1] {
			x.Ptr = append(x.Ptr, at-in.Ptr[from])
		}
		a, b := trivium.NewGradient(m.Layout()), trivium.NewGradient(m.Layout())
		la, _, err := m.Grad(t.Context(), p, view, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		lb, _, err := m.Grad(t.Context(), p, own, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if la != lb || !slices.Equal(a.Flat, b.Flat) {
			t.Errorf("%s of %d columns: another gradient", s.model, s.schema.Inputs[0].Columns())
		}
		for i := range a.Rows {
			if !slices.Equal(a.Rows[i], b.Rows[i]) {
				t.Errorf("%s of %d columns: it touches %d rows, and has %d", s.model, s.schema.Inputs[0].Columns(), len(a.Rows[i]), len(b.Rows[i]))
			}
		}
	}
}

func TestThreadsChangeNoBit(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.String(), func(t *testing.T) {
			var want trivium.Gradient
			for _, threads := range []int{1, 2, 3} {
				m, p := build(t, s, threads)
				g := trivium.NewGradient(m.Layout())
				seen := make([]int, m.Layout().Tensors())
				lock := make(chan struct{}, 1)
				if _, _, err := m.Grad(context.Background(), p, s.batch, g, func(i int) { lock <- struct{}{}; seen[i]++; <-lock }); err != nil {
					t.Fatal(err)
				}
				for i, n := range seen {
					if n != 1 {
						t.Errorf("%d threads: tensor %d was ready %d times", threads, i, n)
					}
				}
				if dense(g); threads == 1 {
					want = g
				} else if !slices.Equal(g.Flat, want.Flat) {
					t.Errorf("%d threads give other bits than 1", threads)
				}
			}
		})
	}
}

// The dumb version: a perceptron row by row in float64.
func TestPerceptronAgreesWithTheDumbVersion(t *testing.T) {
	s := samples()[4] // mlp:7,5 on dense rows
	m, p := build(t, s, 2)
	g, sum, _ := grad(t, m, p, s.batch)
	widths := []int{9, 7, 5, 3}
	want := make([]float64, len(p.Flat))
	var wantSum float64
	for r := range s.batch.Rows {
		h := [][]float64{widen(s.batch.Inputs[0].Values[r*9 : (r+1)*9])}
		for l := range 3 {
			w, b := p.Tensor(2*l), p.Tensor(2*l+1)
			z := widen(b)
			for o := range z {
				for i, x := range h[l] {
					z[o] += x * float64(w[i*widths[l+1]+o])
				}
				if l < 2 {
					z[o] = max(z[o], 0)
				}
			}
			h = append(h, z)
		}
		var total float64
		for _, z := range h[3] {
			total += math.Exp(z)
		}
		label, weight := int(s.batch.Labels.Class[r]), float64(s.batch.Weights[r])
		wantSum += weight * (math.Log(total) - h[3][label])
		d := make([]float64, 3)
		for o, z := range h[3] {
			d[o] = weight * math.Exp(z) / total
		}
		d[label] -= weight
		for l := 2; l >= 0; l-- {
			from, _ := m.Layout().Range(2 * l)
			bias, _ := m.Layout().Range(2*l + 1)
			back := make([]float64, widths[l])
			for i, x := range h[l] {
				for o := range d {
					want[from+i*widths[l+1]+o] += x * d[o]
					back[i] += d[o] * float64(p.Tensor(2 * l)[i*widths[l+1]+o])
				}
				if l > 0 && x == 0 {
					back[i] = 0
				}
			}
			for o := range d {
				want[bias+o] += d[o]
			}
			d = back
		}
	}
	if !(math.Abs(sum-wantSum) <= 1e-5*wantSum) {
		t.Errorf("loss %v, want %v", sum, wantSum)
	}
	for i, x := range g.Flat {
		if !(math.Abs(float64(x)-want[i]) <= 1e-4*(1+math.Abs(want[i]))) {
			t.Fatalf("cell %d: %v, want %v", i, x, want[i])
		}
	}
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// The evaluation's case 1: sizes of its four models.
func TestCase1Parameters(t *testing.T) {
	digits := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{28, 28, 1}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 10}}
	table := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{10_000}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2}}
	for _, c := range []struct {
		model  string
		schema trivium.Schema
		want   int
	}{{"logistic", table, 10_001}, {"softmax", digits, 7_850}, {"mlp:100", digits, 79_510}, {"mlp:128,32", digits, 104_938}} {
		m, err := nn.Standard().Build(c.model, c.schema, tensor.NewCPU(1, false))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Layout().Len(); got != c.want {
			t.Errorf("%s has %d parameters, want %d", c.model, got, c.want)
		}
	}
}

// The evaluation's initial weights, at the ends of a layer, from its formula.
func TestInitialWeights(t *testing.T) {
	digits := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{28, 28, 1}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 10}}
	m, err := nn.Standard().Build("mlp:100", digits, tensor.NewCPU(1, false))
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(m.Layout())
	m.Init(42, p)
	for _, c := range []struct {
		tensor, cell  int
		stream, index uint64
		limit         float64
	}{{0, 0, 9, 0, math.Sqrt(6. / 784)}, {0, 78_399, 9, 78_399, math.Sqrt(6. / 784)}, {2, 0, 10, 0, math.Sqrt(6. / 110)}, {2, 999, 10, 999, math.Sqrt(6. / 110)}} {
		want := float32(float64(draw.Unit(42, c.stream, c.index)) * c.limit)
		if got := p.Tensor(c.tensor)[c.cell]; got != want {
			t.Errorf("tensor %d, cell %d: %v, want %v", c.tensor, c.cell, got, want)
		}
	}
	for _, bias := range []int{1, 3} {
		for i, x := range p.Tensor(bias) {
			if x != 0 {
				t.Errorf("bias %d of tensor %d is %v, want 0", i, bias, x)
			}
		}
	}
}

func TestBuildSaysWhatItWants(t *testing.T) {
	real1, real2 := trivium.LabelSpec{Kind: trivium.Real, Width: 1}, trivium.LabelSpec{Kind: trivium.Real, Width: 2}
	three := trivium.LabelSpec{Kind: trivium.Class, Width: 3}
	dense := trivium.InputSpec{Name: "x", Shape: []int{9}}
	sparse := trivium.InputSpec{Name: "x", Form: trivium.CSR, Shape: []int{9}}
	wide := trivium.InputSpec{Name: "x", Form: trivium.CSR, Shape: []int{20_000}}
	sequence := trivium.InputSpec{Name: "x", Shape: []int{3, 3}}
	for _, c := range []struct {
		model     string
		input     trivium.InputSpec
		labels    trivium.LabelSpec
		arguments bool // are what is wrong
		want      string
	}{
		{"nothing", dense, three, false, "no such model"},
		{"logistic", dense, three, false, "softmax takes any number"},
		{"logistic", dense, real1, false, "linear learns real numbers"},
		{"logistic:3", dense, three, true, "takes no arguments"},
		{"svm:3", dense, three, true, "takes no arguments"},
		{"linear", dense, three, false, "takes one real label a row, the data has 3 classes"},
		{"linear", dense, real2, false, "takes one real label a row, the data has 2 real labels a row"},
		{"linear", dense, trivium.LabelSpec{}, false, "the data has no labels"},
		{"linear:3", dense, three, true, "takes no arguments"},
		{"mlp:0", dense, three, true, "want a whole number from 1"},
		{"mlp:a", dense, three, true, `"a" is not the size of a hidden layer`},
		{"mlp:16777216,16777216", dense, three, false, "[16777216,16777216] has more than 1099511627776 elements"},
		{"mlp:1048576,4096", dense, three, false, "4305469443 parameters are more than the 4294967296 that a model may have"},
		{"softmax:3", dense, three, true, "takes no arguments"},
		{"softmax", dense, trivium.LabelSpec{}, false, "the data has no labels"},
		{"fm", dense, three, false, "takes sparse rows (libsvm, or a table with hashed columns)"},
		{"fm", sparse, real2, false, "takes labels of 2 classes or one real label a row, the data has 2 real labels a row"},
		{"fm:1,2", dense, three, true, "takes one number of factors"},
		{"fm:16777216", wide, real1, false, "335544340001 parameters are more than"},
		{"cnn", dense, three, false, "takes images"},
		{"cnn:8", dense, three, true, "takes sizes of convolutions"},
		{"lstm", dense, three, false, "takes sequences"},
		{"lstm:1,2", dense, three, true, "takes one number of units"},
		{"lstm:16777216", sequence, three, false, "16777216"},
	} {
		_, err := nn.Standard().Build(c.model, trivium.Schema{Inputs: []trivium.InputSpec{c.input}, Labels: c.labels}, tensor.NewCPU(1, false))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %v: error %v, want %q", c.model, c.labels, err, c.want)
		}
		if c.labels.Kind == trivium.NoLabel && strings.Contains(err.Error(), "linear learns") {
			t.Errorf("%s without labels: %v; nor does linear learn from these", c.model, err)
		}
		if _, arguments := errors.AsType[*nn.ArgumentError](err); arguments != c.arguments {
			t.Errorf("%s on %v: it is an ArgumentError: %v, want %v", c.model, c.labels, arguments, c.arguments)
		}
	}
}

// A batch that contradicts the schema is refused by a sentence, and what was there before is untouched.
func TestGradRefusesOtherBatches(t *testing.T) {
	for _, s := range samples() {
		m, p := build(t, s, 1)
		g := trivium.NewGradient(m.Layout())
		other := s.batch
		other.Inputs = []trivium.Input{{Name: "y", Shape: []int{1}, Values: make([]float32, testRows)}}
		if _, _, err := m.Grad(context.Background(), p, other, g, nil); err == nil || !strings.Contains(err.Error(), `no input "x"`) {
			t.Errorf("%v: a batch without input x: %v", s, err)
		}
	}
}

func TestSparseInputWithADotInItsName(t *testing.T) {
	s := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "user.history", Form: trivium.CSR, Shape: []int{40}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 3},
	}
	m, err := nn.Standard().Build("softmax", s, tensor.NewCPU(1, false))
	if err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(m.Layout())
	m.Init(1, p)
	grad(t, m, p, newBatch(s, testRows))
}
