// Package lda finds topics in documents by collapsed Gibbs sampling (Griffiths and Steyvers 2004), on tables: PMLS's latent Dirichlet
// allocation.
//
// A row of data is a document: a sparse input with a column for each word, and how often it occurs. The tables hold how often each word is
// of each topic (words), and how many words are (totals). Which topic each word of a document is of stays with the worker that has the
// document. In a round a worker reads the rows of its documents' words, draws a new topic for each of their words given all others, and
// adds what changed. Rounds apply whole, so that no count is ever read negative; a row and the totals may be of different rounds.
//
// The draw is sparse (Yao, Mimno and McCallum 2009): its three parts are what any topic has, what the document's topics have, and what the
// word's topics have, and only topics that are there are looked at.
package lda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train/server"
)

// Options of the model.
type Options struct {
	Topics      int
	Alpha, Beta float64 // of the Dirichlet priors of a document's topics and of a topic's words
}

// DefaultOptions are those of Griffiths and Steyvers.
func DefaultOptions() Options { return Options{Topics: 10, Alpha: 1, Beta: 0.1} }

// most is of arguments: priors beyond it leave nothing of any count.
const most = 1e9

// Parse reads the arguments of a model: the number of topics, and KEY=X, as in "lda:10,alpha=1,beta=0.1".
func Parse(args string) (o Options, err error) {
	o = DefaultOptions()
	var errs []error
	for _, word := range strings.Split(args, ",") {
		key, value, found := strings.Cut(word, "=")
		if word == "" {
			continue
		}
		if !found {
			key, value = "topics", word
		}
		x, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil || !(x > 0 && x <= most):
			errs = append(errs, fmt.Errorf("lda: %s: want a number above 0, of at most %g, found %q", key, most, value))
		case key == "topics" && x == math.Trunc(x) && x <= 1<<15:
			o.Topics = int(x)
		case key == "alpha":
			o.Alpha = x
		case key == "beta":
			o.Beta = x
		default:
			errs = append(errs, fmt.Errorf("lda: want up to 32,768 topics, alpha or beta, found %q", word))
		}
	}
	return o, errors.Join(errs...)
}

// New returns the model for data of that schema.
func New(args string, s trivium.Schema, _ *tensor.CPU) (trivium.Model, error) {
	o, err := Parse(args)
	if err != nil {
		return nil, &nn.ArgumentError{Err: err}
	}
	if len(s.Inputs) != 1 || s.Inputs[0].Form != trivium.CSR {
		return nil, errors.New("lda: wants one sparse input, with a column for each word")
	}
	m := &Model{Options: o, vocabulary: s.Inputs[0].Shape[0]}
	m.layout, err = trivium.NewLayout(
		trivium.Spec{Name: "words", Shape: []int{m.vocabulary, o.Topics}},
		trivium.Spec{Name: "totals", Shape: []int{1, o.Topics}},
	)
	return m, err
}

// A Model is the counts. It implements server.Program.
type Model struct {
	Options
	vocabulary int
	layout     *trivium.Layout

	words, totals ps.Table[int32]
	draw          *rand.Rand
	docs          map[int64]*document // of this worker, by ID

	at    map[int32]int // of the words in this round
	ids   []int64
	rows  []int32 // their counts, one word after the other
	total []int32
	moved []int32 // what the round changed, laid out as rows
	turn  []int32 // and of the totals

	s sampler
}

// A document is which topic each of its words is of.
type document struct {
	topics []uint16 // in the order of the row's columns, each as often as it occurs
}

// Layout implements trivium.Model.
func (m *Model) Layout() *trivium.Layout { return m.layout }

// Init implements trivium.Model. Nothing is counted yet.
func (m *Model) Init(_ uint64, p trivium.Params) { clear(p.Flat) }

// Grad implements trivium.Model: there is none.
func (m *Model) Grad(context.Context, trivium.Params, trivium.Batch, trivium.Gradient, func(int)) (lossSum, weightSum float64, err error) {
	return 0, 0, errors.New("lda: topics are drawn, on tables: train it with --topology server")
}

// Tables implements server.Program.
func (m *Model) Tables() []ps.Spec {
	return []ps.Spec{
		{Name: "words", Rows: int64(m.vocabulary), Cols: int64(m.Topics), Cell: ps.Int32},
		{Name: "totals", Rows: 1, Cols: int64(m.Topics), Cell: ps.Int32},
	}
}

// Keeps implements server.Keeper.
func (m *Model) Keeps() string { return "the topics of the words" }

// Begin implements server.Beginner.
func (m *Model) Begin(_ context.Context, w *ps.Worker, p server.Part) (err error) {
	if m.words, err = ps.TableOf[int32](w, "words"); err != nil {
		return err
	}
	m.totals, err = ps.TableOf[int32](w, "totals")
	m.draw = rand.New(rand.NewPCG(p.Job.Seed, uint64(p.Rank)))
	m.docs, m.at = map[int64]*document{}, map[int32]int{}
	m.total, m.turn = make([]int32, m.Topics), make([]int32, m.Topics)
	m.s.init(m)
	return err
}

// RoundLoss implements server.Scorer: over the words of the round, minus the log probability of each under all others (the first time: under
// no knowledge).
func (m *Model) RoundLoss() (lossSum, weightSum float64) { return m.s.loss, m.s.drawn }

// Round implements server.Program.
func (m *Model) Round(ctx context.Context, _ *ps.Worker, b trivium.Batch) error {
	m.s.loss, m.s.drawn = 0, 0
	if b.Rows == 0 {
		return nil
	}
	in := &b.Inputs[0]
	if b.Weights != nil { // a document of twice the words is another than two of them, and half a word has no topic
		return &data.Error{Row: -1, Offset: -1, Field: "weights", Msg: "lda counts whole documents: give no --weight and no --class-weight, and one that is to count twice give twice"}
	}
	if err := counts(b.IDs, in); err != nil {
		return err
	}
	if err := m.read(ctx, in); err != nil {
		return err
	}
	for r := range b.Rows {
		lo, hi := in.Ptr[r], in.Ptr[r+1]
		d := m.docs[b.IDs[r]]
		if d == nil {
			d = m.begin(in.Index[lo:hi], in.Values[lo:hi])
			m.docs[b.IDs[r]] = d
			continue // its first draw was by chance
		}
		m.s.sweep(m, d, in.Index[lo:hi], in.Values[lo:hi])
	}
	return m.add()
}

// counts refuses documents whose numbers are not how often words occur.
func counts(ids []int64, in *trivium.Input) error {
	for r, id := range ids {
		for i := in.Ptr[r]; i < in.Ptr[r+1]; i++ {
			if n := in.Values[i]; !(n >= 0 && n < 1<<31 && n == float32(int32(n))) {
				return &data.Error{Row: id, Offset: -1, Field: fmt.Sprintf("column %d", in.Index[i]), Msg: fmt.Sprintf("lda wants how often the word occurs, a whole number of 0 or more, found %v", n)}
			}
		}
	}
	return nil
}

// read copies the rows of the words of a batch.
func (m *Model) read(ctx context.Context, in *trivium.Input) error {
	clear(m.at)
	m.ids = m.ids[:0]
	for _, w := range in.Index[in.Ptr[0]:in.Ptr[len(in.Ptr)-1]] {
		if _, ok := m.at[w]; !ok {
			m.at[w] = len(m.ids)
			m.ids = append(m.ids, int64(w))
		}
	}
	n := len(m.ids) * m.Topics
	m.rows = slices.Grow(m.rows[:0], n)[:n]
	m.moved = slices.Grow(m.moved[:0], n)[:n]
	clear(m.moved)
	clear(m.turn)
	if n > 0 {
		if _, err := m.words.GetRows(ctx, m.ids, m.rows); err != nil {
			return err
		}
	}
	if _, err := m.totals.Get(ctx, 0, m.total); err != nil {
		return err
	}
	for i, x := range m.rows {
		if x < 0 {
			return fmt.Errorf("lda: word %d is %d times of topic %d", m.ids[i/m.Topics], x, i%m.Topics)
		}
	}
	for k, x := range m.total {
		if x < 0 {
			return fmt.Errorf("lda: %d words are of topic %d", x, k)
		}
	}
	return nil
}

// begin draws the first topics of a document by chance.
func (m *Model) begin(words []int32, times []float32) *document {
	d := new(document)
	for i, w := range words {
		for range int(times[i]) {
			k := m.draw.IntN(m.Topics)
			d.topics = append(d.topics, uint16(k))
			m.moved[m.at[w]*m.Topics+k]++
			m.turn[k]++
			m.s.loss += math.Log(float64(m.vocabulary))
			m.s.drawn++
		}
	}
	return d
}

// add tells the tables what changed.
func (m *Model) add() error {
	for i, id := range m.ids {
		row := m.moved[i*m.Topics : (i+1)*m.Topics]
		if slices.ContainsFunc(row, func(x int32) bool { return x != 0 }) {
			if err := m.words.DenseInc(id, 0, row); err != nil {
				return err
			}
		}
	}
	return m.totals.DenseInc(0, 0, m.turn)
}

// LogLikelihood is log p(w, z) of saved parameters and the topics of documents, by how often each topic occurs in each.
func (o Options) LogLikelihood(p trivium.Params, documents [][]int) float64 {
	lg := func(x float64) float64 {
		y, _ := math.Lgamma(x)
		return y
	}
	words, totals := p.Tensor(0), p.Tensor(1)
	v := float64(len(words)/o.Topics) * o.Beta
	var sum float64
	for k := range o.Topics {
		sum += lg(v) - lg(float64(totals[k])+v)
		for w := k; w < len(words); w += o.Topics {
			sum += lg(float64(words[w])+o.Beta) - lg(o.Beta)
		}
	}
	for _, d := range documents {
		a, n := float64(o.Topics)*o.Alpha, 0
		for _, x := range d {
			n += x
			sum += lg(float64(x)+o.Alpha) - lg(o.Alpha)
		}
		sum += lg(a) - lg(float64(n)+a)
	}
	return sum
}

// Documents returns how often each topic occurs in each document of this worker.
func (m *Model) Documents() [][]int {
	var all [][]int
	for _, d := range m.docs {
		counts := make([]int, m.Topics)
		for _, k := range d.topics {
			counts[k]++
		}
		all = append(all, counts)
	}
	return all
}

var (
	_ server.Program  = (*Model)(nil)
	_ server.Beginner = (*Model)(nil)
	_ server.Keeper   = (*Model)(nil)
	_ server.Scorer   = (*Model)(nil)
)
