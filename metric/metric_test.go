package metric_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/elementary"
	"github.com/trivium-ml/trivium/metric"
)

var (
	binary = trivium.Outputs{Task: trivium.Binary, Width: 1}
	margin = trivium.Outputs{Task: trivium.Binary, Width: 1, Margin: true}
	two    = trivium.Outputs{Task: trivium.MultiClass, Width: 2}
	three  = trivium.Outputs{Task: trivium.MultiClass, Width: 3}
	real2  = trivium.Outputs{Task: trivium.Regression, Width: 2}
)

func classesOf(width int, weights []float32, class ...int32) trivium.Batch {
	return trivium.Batch{Rows: len(class), Labels: trivium.Labels{Kind: trivium.Class, Width: width, Class: class}, Weights: weights}
}

func Example() {
	m, err := metric.New("auc", binary)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Of the four pairs of a positive and a negative row, the positive one scores higher in three.
	if err := m.Add(binary, classesOf(2, nil, 0, 0, 1, 1), []float32{-2, 0.4, 0.3, 1}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(m.Name(), m.Value())

	_, err = metric.New("acuracy", binary)
	fmt.Println(err)
	// Output:
	// auc 0.75
	// metric: no metric is called "acuracy"; did you mean "accuracy"?
}

func TestValues(t *testing.T) {
	// Predictions: 0, 2, 2 (a tie of 1 and 2 goes to 1), none (NaN).
	nan := float32(math.NaN())
	scores3 := []float32{3, 1, 2, 0, 1, 5, 0, 4, 4, nan, 0, 0}
	labels3 := []int32{0, 1, 1, 0}
	for _, c := range []struct {
		name    string
		o       trivium.Outputs
		b       trivium.Batch
		scores  []float32
		want    float64
		similar float64
	}{
		{"accuracy", binary, classesOf(2, nil, 0, 1, 1, 0), []float32{-1, 1, -1, 0}, 0.75, 0},
		{"accuracy", binary, classesOf(2, []float32{1, 1, 4, 2}, 0, 1, 1, 0), []float32{-1, 1, -1, 0}, 0.5, 0},
		{"accuracy", three, classesOf(3, nil, labels3...), scores3, 0.5, 0},
		{"confusion", three, classesOf(3, nil, labels3...), scores3, 0.5, 0},
		{"top2", three, classesOf(3, nil, labels3...), scores3, 0.75, 0},
		{"top3", three, classesOf(3, nil, 2, 1), []float32{1, 1, 1, 1, 1, 1}, 1, 0},
		{"top2", three, classesOf(3, nil, 2, 1), []float32{1, 1, 1, 1, 1, 1}, 0.5, 0},
		{"logloss", binary, classesOf(2, nil, 1), []float32{0}, math.Ln2, 1e-15},
		{"logloss", binary, classesOf(2, nil, 1), []float32{-1000}, 1000, 0},
		{"logloss", binary, classesOf(2, nil, 0, 1), []float32{2, 2}, (math.Log1p(math.Exp(2)) + math.Log1p(math.Exp(-2))) / 2, 1e-15},
		{"logloss", three, classesOf(3, nil, 1), []float32{1000, 1000, 1000}, math.Log(3), 1e-12},
		{
			"logloss", three, classesOf(3, []float32{3, 1}, 0, 2),
			[]float32{1, 0, 0, 1, 0, 0},
			(3*(math.Log(math.E+2)-1) + math.Log(math.E+2)) / 4, 1e-15,
		},
		{"auc", binary, classesOf(2, nil, 0, 1), []float32{5, 5}, 0.5, 0},
		{"auc", binary, classesOf(2, nil, 0, 1), []float32{0, float32(math.Copysign(0, -1))}, 0.5, 0},
		{"auc", binary, classesOf(2, nil, 0, 1), []float32{-3, -2}, 1, 0},
		{"auc", binary, classesOf(2, []float32{3, 1, 2}, 0, 0, 1), []float32{0, 2, 1}, 0.75, 0},
		// Binary precision, recall, F1 of class 1: right 2, predicted 3, labelled 4.
		{"precision", binary, classesOf(2, nil, 1, 1, 0, 1, 1, 0), []float32{1, 1, 1, -1, -1, -1}, 2. / 3, 1e-15},
		{"recall", binary, classesOf(2, nil, 1, 1, 0, 1, 1, 0), []float32{1, 1, 1, -1, -1, -1}, 0.5, 0},
		{"f1", binary, classesOf(2, nil, 1, 1, 0, 1, 1, 0), []float32{1, 1, 1, -1, -1, -1}, 4. / 7, 1e-15},
		{"precision", binary, classesOf(2, nil, 1, 0), []float32{-1, -1}, 0, 0},
		// The same of a model with a score for each of two classes, such as mlp: it is the difference that counts.
		{"precision", two, classesOf(2, nil, 1, 1, 0, 1, 1, 0), []float32{0, 1, 1, 2, 2, 3, 1, 0, 2, 1, 3, 2}, 2. / 3, 1e-15},
		{"recall", two, classesOf(2, nil, 1, 1, 0, 1, 1, 0), []float32{0, 1, 1, 2, 2, 3, 1, 0, 2, 1, 3, 2}, 0.5, 0},
		{"f1", two, classesOf(2, nil, 1, 1, 0, 1, 1, 0), []float32{0, 1, 1, 2, 2, 3, 1, 0, 2, 1, 3, 2}, 4. / 7, 1e-15},
		{"auc", two, classesOf(2, nil, 0, 0, 1, 1), []float32{5, 3, 1, 1.4, 7, 7.3, -1, 0}, 0.75, 0},
		// Macro: class 0 right 1 of 1 predicted, 2 labelled; class 1: 1 of 1 predicted, 2 labelled; class 2 predicted once, never there.
		{"precision", three, classesOf(3, nil, labels3...), scores3, 2. / 3, 1e-15},
		{"recall", three, classesOf(3, nil, labels3...), scores3, 1. / 3, 1e-15},
		{"f1", three, classesOf(3, nil, labels3...), scores3, (2./3 + 2./3) / 3, 1e-15},
		{
			"rmse", real2,
			trivium.Batch{Rows: 2, Labels: trivium.Labels{Kind: trivium.Real, Width: 2, Real: []float32{1, 2, 3, 4}}},
			[]float32{1, 4, 3, 4},
			1, 0,
		},
		// Deviations of the labels: 2 and 18, errors 0 + 1 and 4 + 0; and with one row counted three times 0.75·2² + … = 3, errors 0 and 12.
		{
			"r2", real2,
			trivium.Batch{Rows: 2, Labels: trivium.Labels{Kind: trivium.Real, Width: 2, Real: []float32{1, 2, 3, 8}}},
			[]float32{1, 4, 4, 8},
			(1 - 1./2 + 1 - 4./18) / 2, 1e-15,
		},
		{
			"r2",
			trivium.Outputs{Task: trivium.Regression, Width: 1},
			trivium.Batch{Rows: 3, Weights: []float32{3, 0, 1}, Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: []float32{1, 50, 3}}},
			[]float32{3, 0, 3},
			1 - 12./3, 1e-15,
		},
		// A row of weight 0 counts for nothing, whatever its scores are.
		{"accuracy", binary, classesOf(2, []float32{1, 0}, 1, 1), []float32{1, nan}, 1, 0},
		{"logloss", binary, classesOf(2, []float32{1, 0}, 1, 1), []float32{0, nan}, math.Ln2, 1e-15},
		{"auc", binary, classesOf(2, []float32{1, 1, 0}, 0, 1, 1), []float32{1, 2, nan}, 1, 0},
		{
			"rmse", real2,
			trivium.Batch{Rows: 2, Weights: []float32{1, 0}, Labels: trivium.Labels{Kind: trivium.Real, Width: 2, Real: []float32{1, 2, 3, 4}}},
			[]float32{2, 3, nan, 3e38},
			1, 0,
		},
		{
			"mae", real2,
			trivium.Batch{Rows: 2, Weights: []float32{3, 1}, Labels: trivium.Labels{Kind: trivium.Real, Width: 2, Real: []float32{1, 2, 3, 4}}},
			[]float32{1, 4, 3, 4},
			0.75, 0,
		},
	} {
		m, err := metric.New(c.name, c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if v := m.Value(); !math.IsNaN(v) {
			t.Errorf("%s over nothing is %v, want NaN", c.name, v)
		}
		if err := m.Add(c.o, c.b, c.scores); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := m.Value(); !(math.Abs(got-c.want) <= c.similar) {
			t.Errorf("%s of labels %v, scores %v is %v, want %v", c.name, c.b.Labels.Class, c.scores, got, c.want)
		}
		m.Reset()
		if v := m.Value(); !math.IsNaN(v) {
			t.Errorf("%s after Reset is %v, want NaN", c.name, v)
		}
	}
}

// TestSameBitsLogLoss: the log loss, which early stopping goes by, is made of functions that are the same on every processor, to the last
// bit.
func TestSameBitsLogLoss(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	loss := func(o trivium.Outputs, class int32, scores ...float32) float64 {
		m := must(metric.New("logloss", o))
		if err := m.Add(o, classesOf(max(2, len(scores)), nil, class), scores); err != nil {
			t.Fatal(err)
		}
		return m.Value()
	}
	for range 1000 {
		s := -8 * r.Float32()
		if got, want := loss(binary, 0, s), elementary.Log1p(elementary.Exp(float64(s))); got != want {
			t.Fatalf("log loss of label 0, score %v is %v, want %v", s, got, want)
		}
		sum := 1 + elementary.Exp(float64(s))
		sum += elementary.Exp(-2)
		if got, want := loss(three, 0, 0, s, -2), elementary.Log(sum); got != want {
			t.Fatalf("log loss of label 0, scores 0, %v and -2 is %v, want %v", s, got, want)
		}
	}
}

func TestAUCOneClass(t *testing.T) {
	m := must(metric.New("auc", binary))
	if err := m.Add(binary, classesOf(2, nil, 1, 1), []float32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if v := m.Value(); !math.IsNaN(v) {
		t.Errorf("AUC over one class is %v, want NaN", v)
	}
}

// TestAUCAgainstPairs compares with the definition, every pair, over weighted rows with many ties.
func TestAUCAgainstPairs(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		n := 2 + r.IntN(60)
		b, scores := randomBinary(r, n)
		var won, all float64
		for i := range n {
			for j := range n {
				if b.Labels.Class[i] == 1 && b.Labels.Class[j] == 0 {
					w := float64(b.Weights[i]) * float64(b.Weights[j])
					all += w
					switch {
					case scores[i] > scores[j]:
						won += w
					case scores[i] == scores[j]:
						won += w / 2
					}
				}
			}
		}
		m := must(metric.New("auc", binary))
		if err := m.Add(binary, b, scores); err != nil {
			t.Fatal(err)
		}
		if got, want := m.Value(), won/all; math.Abs(got-want) > 1e-12 && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("seed %d: AUC of %d rows is %v, over all pairs %v", seed, n, got, want)
		}
	}
}

// TestBest: a metric whose best value is 1 says that more is better, and one whose best is 0 that less is.
func TestBest(t *testing.T) {
	for _, name := range metric.Names() {
		best, known := metric.Best(name)
		made := 0
		for _, task := range []trivium.Task{trivium.Binary, trivium.MultiClass, trivium.Regression} {
			m, err := metric.New(name, trivium.Outputs{Task: task, Width: 1 + int(task)})
			if err != nil {
				continue
			}
			if made++; !known || (best == 1) != m.HigherIsBetter() || best != 0 && best != 1 {
				t.Errorf("%s is at best %v (%v), and more is better: %v", name, best, known, m.HigherIsBetter())
			}
		}
		if made == 0 {
			t.Errorf("%s fits no model", name)
		}
	}
	if _, known := metric.Best("mine"); known {
		t.Error("a metric of a program's own is known")
	}
}

func randomBinary(r *rand.Rand, n int) (trivium.Batch, []float32) {
	b := classesOf(2, make([]float32, n), make([]int32, n)...)
	scores := make([]float32, n)
	for i := range n {
		b.Labels.Class[i], b.Weights[i], scores[i] = int32(r.IntN(2)), float32(r.IntN(3)), float32(r.IntN(9)-4)/4
	}
	return b, scores
}

// TestMergeAndTravel cuts rows in two, merges what travelled as bytes, and wants the value of the whole: exactly, since these sums are
// of small whole numbers, or nearly for log-loss.
func TestMergeAndTravel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	for _, name := range metric.Names() {
		o := binary
		switch name {
		case "rmse", "mae", "r2":
			continue // TestValues has their sums, TestR2 its own
		case "top5":
			continue
		}
		b, scores := randomBinary(r, 50)
		whole, left, right := must(metric.New(name, o)), must(metric.New(name, o)), must(metric.New(name, o))
		cut := r.IntN(51)
		for _, err := range []error{
			whole.Add(o, b, scores), left.Add(o, b.Slice(0, cut), scores[:cut]), right.Add(o, b.Slice(cut, 50), scores[cut:]),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		p, err := right.AppendBinary([]byte("prefix"))
		if err != nil {
			t.Fatal(err)
		}
		arrived := must(metric.New(name, o))
		if err := arrived.UnmarshalBinary(p[len("prefix"):]); err != nil {
			t.Fatal(err)
		}
		if err := left.Merge(arrived); err != nil {
			t.Fatal(err)
		}
		if got, want := left.Value(), whole.Value(); !(math.Abs(got-want) <= 1e-12) {
			t.Errorf("seed %d: %s of halves merged is %v, of the whole %v", seed, name, got, want)
		}
		if err := left.UnmarshalBinary(p[len("prefix") : len(p)-1]); err == nil {
			t.Errorf("%s: cut bytes were accepted", name)
		}
	}
}

// TestR2: halves that travelled and were merged have the value of the whole, of labels far from 0, whose squares lose what they differ by; and
// that is as exact sums have it. Labels that are all equal have none.
func TestR2(t *testing.T) {
	o := trivium.Outputs{Task: trivium.Regression, Width: 1}
	r := rand.New(rand.NewPCG(3, 4))
	const n = 1000
	b := trivium.Batch{Rows: n, Weights: make([]float32, n), Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: make([]float32, n)}}
	scores := make([]float32, n)
	for i := range n {
		b.Labels.Real[i], b.Weights[i] = 1e7+float32(r.IntN(9)), float32(r.IntN(3))
		scores[i] = b.Labels.Real[i] + float32(r.IntN(3)-1)
	}
	var weight, sum, errors, deviation float64
	for i, y := range b.Labels.Real {
		w, e := float64(b.Weights[i]), float64(scores[i]-y)
		weight, sum, errors = weight+w, sum+w*float64(y), errors+w*e*e
	}
	for i, y := range b.Labels.Real {
		d := float64(y) - sum/weight
		deviation += float64(b.Weights[i]) * d * d
	}
	want := 1 - errors/deviation
	for _, cut := range []int{0, 1, 400, n} {
		left, right, arrived := must(metric.New("r2", o)), must(metric.New("r2", o)), must(metric.New("r2", o))
		if err := left.Add(o, b.Slice(0, cut), scores[:cut]); err != nil {
			t.Fatal(err)
		}
		if err := right.Add(o, b.Slice(cut, n), scores[cut:]); err != nil {
			t.Fatal(err)
		}
		p, err := right.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := arrived.UnmarshalBinary(p); err != nil {
			t.Fatal(err)
		}
		if err := left.Merge(arrived); err != nil {
			t.Fatal(err)
		}
		if got := left.Value(); !(math.Abs(got-want) <= 1e-10) {
			t.Errorf("cut at %d: %v, want %v", cut, got, want)
		}
		if err := arrived.UnmarshalBinary(p[:len(p)-1]); err == nil {
			t.Error("cut bytes were accepted")
		}
	}
	for label := range 100 {
		y := 0.1 + float32(label)/7
		equal := trivium.Batch{Rows: 3, Weights: []float32{0.7, 3, 1e-6}, Labels: trivium.Labels{Kind: trivium.Real, Width: 1, Real: []float32{y, y, y}}}
		same, more := must(metric.New("r2", o)), must(metric.New("r2", o))
		for _, err := range []error{more.Add(o, equal, []float32{5, 5, 5}), same.Merge(more), same.Add(o, equal, []float32{5, 5, 5}), same.Merge(more)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if v := same.Value(); !math.IsNaN(v) {
			t.Fatalf("of labels that are all %v it is %v, want NaN", y, v)
		}
	}
}

func TestErrors(t *testing.T) {
	accuracy := must(metric.New("accuracy", three))
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(metric.New("auc", three)), "does not fit a model for multi-class; accuracy would"},
		{second(metric.New("rmse", binary)), "accuracy or auc would"},
		{second(metric.New("logloss", margin)), "margins, which make none; accuracy or auc would do"},
		{second(metric.New("top5", binary)), "several classes"},
		{second(metric.New("top05", three)), `"top5"`},
		{second(metric.New("top1", three)), `"top1"`},
		{second(metric.New("top1001", three)), `"top1001"`},
		{second(metric.New("confusion", trivium.Outputs{Task: trivium.MultiClass, Width: 1 << 20})), "2048 classes at most, found 1048576"},
		{accuracy.Add(three, classesOf(3, nil, 0, 7), make([]float32, 6)), "row 1: class 7 is outside 0 to 2"},
		{accuracy.Add(three, classesOf(3, nil, 0), make([]float32, 6)), "want 3, found 6"},
		{accuracy.Add(binary, classesOf(2, nil, 0), make([]float32, 1)), "was made for multi-class"},
		{accuracy.Add(three, classesOf(3, []float32{-1}, 0), make([]float32, 3)), "row 0: the weight is -1"},
		{accuracy.Add(three, trivium.Batch{Rows: 1}, make([]float32, 3)), "wants class labels, found none"},
		{accuracy.Merge(must(metric.New("logloss", three))), "accuracy cannot take in logloss"},
		{must(metric.New("auc", binary)).Add(binary, classesOf(2, nil, 7), make([]float32, 1)), "class 7 is outside 0 to 1"},
		{must(metric.New("f1", three)).Add(three, classesOf(3, nil, 7), make([]float32, 3)), "class 7 is outside 0 to 2"},
		{must(metric.New("confusion", three)).Add(three, classesOf(3, nil, 7), make([]float32, 3)), "class 7 is outside 0 to 2"},
		{must(metric.New("top2", three)).Add(three, classesOf(3, nil, 7), make([]float32, 3)), "class 7 is outside 0 to 2"},
		{accuracy.Merge(nil), "accuracy cannot take in nothing"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
}

func TestConfusionDraws(t *testing.T) {
	m := must(metric.New("confusion", binary)).(*metric.Confusion)
	if err := m.Add(binary, classesOf(2, nil, 0, 1, 1), []float32{-1, 1, -1}); err != nil {
		t.Fatal(err)
	}
	want := "label \\ predicted         0         1\n                0         1         0\n                1         1         1\n"
	if got := m.String(); got != want {
		t.Errorf("drawn:\n%swant:\n%s", got, want)
	}
	if m.Classes() != 2 || m.Count(1, 0) != 1 || m.Count(0, 1) != 0 {
		t.Errorf("%d classes, %v and %v", m.Classes(), m.Count(1, 0), m.Count(0, 1))
	}
	if v := m.Value(); !(math.Abs(v-2./3) <= 1e-15) {
		t.Errorf("its value is %v", v)
	}
}

// TestManyClasses: what is no matrix has room for a million classes.
func TestManyClasses(t *testing.T) {
	const n = 1 << 20
	many := trivium.Outputs{Task: trivium.MultiClass, Width: n}
	for _, name := range []string{"precision", "recall", "f1"} {
		m := must(metric.New(name, many))
		scores := make([]float32, 2*n)
		scores[n-1], scores[n] = 1, 1
		if err := m.Add(many, classesOf(n, nil, n-1, 1), scores); err != nil {
			t.Fatal(err)
		}
		// Class n-1 is right, class 1 is missed, class 0 is mistaken for it.
		if got, want := m.Value(), 1./3; !(math.Abs(got-want) <= 1e-12) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// FuzzUnmarshal decodes any bytes as any metric: an error or a metric that encodes to what it was read from, never a panic.
func FuzzUnmarshal(f *testing.F) {
	names := metric.Names()
	for i, name := range names {
		if m, err := metric.New(name, binary); err == nil {
			_ = m.Add(binary, classesOf(2, nil, 0, 1), []float32{0, 1})
			p, _ := m.AppendBinary(nil)
			f.Add(uint8(i), p)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, p []byte) {
		m, err := metric.New(names[int(which)%len(names)], binary)
		if err != nil {
			return
		}
		if m.UnmarshalBinary(p) != nil {
			return
		}
		_ = m.Value()
		if q, err := m.AppendBinary(nil); err != nil || len(q) > len(p) {
			t.Fatalf("%x came back as %x, %v", p, q, err)
		}
	})
}

func must(m trivium.Metric, err error) trivium.Metric {
	if err != nil {
		panic(err)
	}
	return m
}

func second(_ trivium.Metric, err error) error { return err }
