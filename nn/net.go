package nn

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/autodiff"
	"github.com/trivium-ml/trivium/graph/exec"
	"github.com/trivium-ml/trivium/tensor"
)

// A Net is a Model whose loss is a graph: it is differentiated once, compiled once, and its gradients land in the caller's vector.
type Net struct {
	cpu    *tensor.CPU
	g      *graph.Graph
	layout *trivium.Layout
	out    trivium.Outputs
	result graph.Value // of g: NetSpec.Scores
	init   func(seed uint64, p trivium.Params)

	state   *exec.State
	train   step // all inputs → weighted losses, gradients
	predict step // inputs → scores
	judge   step // scores, labels, weights → weighted losses
	vars    []*graph.Variable
	tensors []int // per fetch of train after the losses: its tensor; -1 for what the gradient of a row-sparse one is made of
	sparse  []*sparseGrad
	still   []int // row-sparse tensors that no gradient reaches: frozen, or not part of the loss

	losses, scores *tensor.Tensor
	dsts           []destination
	bound          *float32 // first of the parameters that the Variables lie in
	ones, room     []float32

	ready     func(tensor int) // of the call of Grad under way
	onFetched func(i int)      // n.fetched, bound once
}

// A step is a program with what it is fed.
type step struct {
	*exec.Program
	feeds []feed
	in    []*tensor.Tensor // of feeds
}

// A NetSpec says what the values of a graph mean.
type NetSpec struct {
	Loss   graph.Value  // one value a row, shape [batch], computed from Scores, the label and Variables alone: predictions are judged by it
	Scores graph.Value  // Outputs().Width values a row, shape [batch, width]
	Task   trivium.Task // what the scores are; of trivium.Binary there is one a row
	Margin bool         // they are margins (Outputs.Margin)

	// Init writes the initial parameters; nil: each Variable's own Init, drawn by the number of the Variable.
	Init func(seed uint64, p trivium.Params)
}

// FromGraph makes a model of the graph that s.Loss belongs to. The graph's inputs are fed by name: input "x" of shape [batch, …] with
// the batch's dense input "x"; "x.indptr" (i64, [batch+1]), "x.indices" (i32) and "x.values" with its sparse input "x"; "label" with
// classes (i32, [batch]) or real labels ([batch, width]). FromGraph adds the input "weight", multiplies each row's loss by it, and
// sums: never a mean. The Layout is the graph's Variables in creation order; those of two or more axes are decayed. Dropout is refused: a
// Model learns neither the seed and step that its random numbers belong to, nor that it predicts, when nothing may be dropped.
//
// The net is a [Graphed] model: its Scores can be exported as long as they have no effects, and use a sparse input only in SparseMatMul,
// where they may have changed its values one by one in a way that leaves zeros alone, such as Square.
//
// It runs on cpu; nil: on the caller.
func FromGraph(cpu *tensor.CPU, s NetSpec) (*Net, error) {
	b := s.Loss.Builder()
	if b == nil || s.Scores.Builder() != b {
		return nil, errors.New("nn: a net wants a loss and scores of one graph")
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	width, err := checkSpec(s)
	if err != nil {
		return nil, err
	}
	n := &Net{cpu: orCaller(cpu), init: s.Init, out: trivium.Outputs{Task: s.Task, Width: width, Margin: s.Margin}, result: s.Scores}
	given, err := b.Build()
	if err != nil {
		return nil, err
	}
	for _, v := range given.Inputs() {
		if given.Node(v.Node()).Name == "weight" {
			return nil, errors.New("nn: the graph of a net has no input \"weight\" of its own: a row's loss is multiplied by its weight afterwards")
		}
	}
	weighted := graph.Mul(s.Loss, b.Input("weight", graph.F32, graph.Axis("batch")))
	total := graph.Sum(weighted, nil, false)
	forward, err := b.Build()
	if err != nil {
		return nil, err
	}
	if r := random(forward); r != nil {
		return nil, fmt.Errorf("nn: %s (%s) draws random numbers; a net would draw the same in every update, and draw in predictions too", r.Op.Name, r.Name)
	}
	for _, node := range ancestors(forward, s.Scores) {
		if node.Op.Name == "Input" && node.Name == "label" {
			return nil, errors.New("nn: the Scores of a net depend on its input \"label\", and predictions are made without labels")
		}
	}
	if err := n.layOut(forward); err != nil {
		return nil, err
	}
	fetches := append([]graph.Value{weighted}, n.gradients(forward, total)...)
	if n.g, err = b.Build(); err != nil {
		return nil, err
	}
	if n.init == nil {
		n.init = n.initVariables
	}
	n.onFetched = n.fetched
	return n, n.compile(fetches, s.Scores, weighted)
}

// random finds a node that draws random numbers, in bodies too.
func random(g *graph.Graph) *graph.Node {
	for node := range g.Nodes() {
		if node.Op.Effect == graph.Random {
			return node
		}
		if node.Body != nil {
			if r := random(node.Body); r != nil {
				return r
			}
		}
	}
	return nil
}

func checkSpec(s NetSpec) (width int, err error) {
	loss, scores := s.Loss.Type(), s.Scores.Type()
	batch := graph.Axis("batch")
	if loss.DType != graph.F32 || len(loss.Shape) != 1 || loss.Shape[0] != batch {
		return 0, fmt.Errorf("nn: the loss of a net is f32[batch], one value a row; found %v", loss)
	}
	if scores.DType != graph.F32 || len(scores.Shape) != 2 || scores.Shape[0] != batch || !scores.Shape[1].Fixed() {
		return 0, fmt.Errorf("nn: the scores of a net are f32[batch,width]; found %v", scores)
	}
	width = scores.Shape[1].N
	if s.Task == trivium.Binary && width != 1 {
		return 0, fmt.Errorf("nn: the scores of a net of task %v are one a row, the log-odds of class 1 or a margin; found %v", s.Task, scores)
	}
	if s.Margin && s.Task != trivium.Binary {
		return 0, fmt.Errorf("nn: margins are the scores of a net of task %v, this one is of %v", trivium.Binary, s.Task)
	}
	return width, nil
}

// layOut makes the Layout of the graph's Variables.
func (n *Net) layOut(g *graph.Graph) (err error) {
	n.vars = g.Variables()
	if len(n.vars) == 0 {
		return errors.New("nn: the graph of a net has no Variables: there is nothing to train")
	}
	specs := make([]trivium.Spec, len(n.vars))
	for i, v := range n.vars {
		if v.DType() != graph.F32 {
			return fmt.Errorf("nn: Variable %q is %v; parameters are f32", v.Name, v.DType())
		}
		specs[i] = trivium.Spec{Name: v.Name, Shape: v.Shape(), Buffer: !v.Trainable}
		if len(v.Shape()) >= 2 {
			specs[i].Decay = 1
		}
	}
	for _, t := range sparseOnly(g) {
		if s := &specs[t.id]; s.Shape[0] >= sparseRows {
			s.RowSparse, s.Columns = true, t.columns
		}
	}
	n.layout, err = newLayout(specs...)
	return err
}

// readsOf lists, for each Variable, the values of its Read nodes.
func readsOf(g *graph.Graph) [][]graph.Value {
	vars := g.Variables()
	at := map[int]int{}
	for i, v := range vars {
		at[v.ID] = i
	}
	reads := make([][]graph.Value, len(vars))
	for node := range g.Nodes() {
		if node.Op.Name == "Read" {
			i := at[node.Resources[0]]
			reads[i] = append(reads[i], g.Value(node.ID, 0))
		}
	}
	return reads
}

// gradients adds the gradient nodes of total to the graph and returns what a training step fetches after the losses: one value for
// each dense tensor, zeros for one that the loss does not depend on; then what the gradient of each row-sparse one is made of.
func (n *Net) gradients(g *graph.Graph, total graph.Value) []graph.Value {
	var dense, sparse []graph.Value
	var owner, table []int // of dense, of sparse
	for i, reads := range readsOf(g) {
		switch rows := n.layout.Spec(i).RowSparse; {
		case rows && !n.vars[i].Trainable:
			n.still = append(n.still, i)
		case !n.vars[i].Trainable:
		case rows:
			sparse, table = append(sparse, reads...), append(table, i)
		default:
			for _, r := range reads {
				dense, owner = append(dense, r), append(owner, i)
			}
		}
	}
	sums := make([]graph.Value, len(n.vars))
	for k, grad := range autodiff.Gradients(total, dense, autodiff.Options{Dense: true}) {
		if i := owner[k]; sums[i].IsZero() {
			sums[i] = grad.Dense
		} else {
			sums[i] = graph.Add(sums[i], grad.Dense)
		}
	}
	var rows, fetches []graph.Value
	for k, grad := range autodiff.Gradients(total, sparse, autodiff.Options{}) {
		if grad.Rows.IsZero() {
			n.still = append(n.still, table[k])
			continue
		}
		s := newSparseGrad(n.layout, table[k], grad)
		n.sparse, rows = append(n.sparse, s), append(rows, s.fetches...)
	}
	for i, v := range n.vars {
		if n.layout.Spec(i).RowSparse {
			continue
		}
		if sums[i].IsZero() {
			sums[i] = total.Builder().Const(graph.Fill(graph.F32, 0, v.Shape()...))
		}
		fetches, n.tensors = append(fetches, sums[i]), append(n.tensors, i)
	}
	for range rows {
		n.tensors = append(n.tensors, -1)
	}
	return append(fetches, rows...)
}

func (n *Net) compile(fetches []graph.Value, scores, weighted graph.Value) error {
	var inputs, labels []graph.Value
	for _, v := range n.g.Inputs() {
		if name := n.g.Node(v.Node()).Name; name == "label" || name == "weight" {
			labels = append(labels, v)
		} else {
			inputs = append(inputs, v)
		}
	}
	var errs []error
	for _, v := range n.g.Inputs() { // once, though most feed two programs
		_, err := newFeed(n.g, v, scores)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	build := func(feeds []graph.Value, fetches ...graph.Value) (s step) {
		var err error
		s.Program, err = exec.Compile(n.g, feeds, fetches, nil, exec.Options{CPU: n.cpu})
		errs = append(errs, err)
		for _, v := range feeds {
			f, err := newFeed(n.g, v, scores)
			errs = append(errs, err)
			s.feeds, s.in = append(s.feeds, f), append(s.in, f.t)
		}
		return s
	}
	n.state = exec.NewState(exec.StateOptions{})
	n.train = build(n.g.Inputs(), fetches...)
	n.predict = build(inputs, scores)
	at := len(errs)
	n.judge = build(append([]graph.Value{scores}, labels...), weighted)
	if n.judge.Program == nil {
		errs[at] = fmt.Errorf("nn: the Loss of a net is computed from its Scores, not from what they are made of or made from, since predictions are judged by it: %w", errs[at])
	}
	n.losses, n.scores = tensor.New(tensor.F32, 0), tensor.New(tensor.F32, 0, n.out.Width)
	return errors.Join(errs...)
}

func (n *Net) Layout() *trivium.Layout { return n.layout }

// Graph returns the graph with its gradients, to be read.
func (n *Net) Graph() *graph.Graph { return n.g }

func (n *Net) Outputs() trivium.Outputs { return n.out }

func (n *Net) Init(seed uint64, p trivium.Params) { n.init(seed, p) }

// initVariables draws each Variable by its own Init.
func (n *Net) initVariables(seed uint64, p trivium.Params) {
	for i, v := range n.vars {
		initVariable(p.Tensor(i), v, seed, i)
	}
}

func (n *Net) Grad(ctx context.Context, p trivium.Params, b trivium.Batch, g trivium.Gradient, ready func(int)) (lossSum, weightSum float64, err error) {
	if err := n.begin(&n.train, p, &b); err != nil {
		return 0, 0, err
	}
	dst, err := n.destination(g)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range n.sparse {
		if err := s.attach(n.train.feeds); err != nil {
			return 0, 0, err
		}
	}
	n.ready = ready
	err = n.train.RunInto(ctx, n.state, n.train.in, dst, n.onFetched)
	n.ready = nil
	if err != nil {
		return 0, 0, err
	}
	for _, s := range n.sparse {
		s.scatter(n.cpu, g)
		if ready != nil {
			ready(s.tensor)
		}
	}
	for _, i := range n.still {
		g.Touch(i, nil)
		if ready != nil {
			ready(i)
		}
	}
	return sum64(n.room), b.WeightSum(), nil
}

// begin binds parameters and batch, and makes room for the losses.
func (n *Net) begin(s *step, p trivium.Params, b *trivium.Batch) error {
	if err := n.bind(p); err != nil {
		return err
	}
	for i := range s.feeds {
		if err := n.fill(&s.feeds[i], b, nil); err != nil {
			return err
		}
	}
	n.room = grown(n.room, b.Rows)
	return tensor.Attach(n.losses, n.room, b.Rows)
}

// fetched passes on that fetch i, of which the first is the losses, is complete.
func (n *Net) fetched(i int) {
	if i > 0 && n.tensors[i-1] >= 0 && n.ready != nil {
		n.ready(n.tensors[i-1])
	}
}

func (n *Net) Predict(ctx context.Context, p trivium.Params, b trivium.Batch, scores []float32) error {
	if err := n.begin(&n.predict, p, &b); err != nil {
		return err
	}
	if err := tensor.Attach(n.scores, scores[:b.Rows*n.out.Width], b.Rows); err != nil {
		return err
	}
	return n.predict.RunInto(ctx, n.state, n.predict.in, []*tensor.Tensor{n.scores}, nil)
}

func (n *Net) Loss(b trivium.Batch, scores []float32) (lossSum, weightSum float64, err error) {
	for i := range n.judge.feeds {
		if err := n.fill(&n.judge.feeds[i], &b, scores[:b.Rows*n.out.Width]); err != nil {
			return 0, 0, err
		}
	}
	n.room = grown(n.room, b.Rows)
	if err := tensor.Attach(n.losses, n.room, b.Rows); err != nil {
		return 0, 0, err
	}
	if err := n.judge.RunInto(context.Background(), n.state, n.judge.in, []*tensor.Tensor{n.losses}, nil); err != nil {
		return 0, 0, err
	}
	return sum64(n.room), b.WeightSum(), nil
}

// bind makes the Variables lie in p.
func (n *Net) bind(p trivium.Params) error {
	if len(p.Flat) == 0 || n.bound == &p.Flat[0] {
		return nil
	}
	for i, v := range n.vars {
		t, err := tensor.Of(p.Tensor(i), v.Shape()...)
		if err == nil {
			err = n.state.Bind(v, t)
		}
		if err != nil {
			return fmt.Errorf("nn: parameter %q: %w", v.Name, err)
		}
	}
	n.bound = &p.Flat[0]
	return nil
}

// A destination is where the fetches of a training step go, for one gradient vector.
type destination struct {
	first *float32
	dst   []*tensor.Tensor
}

// destinations bounds how many gradient vectors are remembered: exact mode uses one a level of its tree.
const destinations = 24

func (n *Net) destination(g trivium.Gradient) ([]*tensor.Tensor, error) {
	for i := range n.dsts {
		if n.dsts[i].first == &g.Flat[0] {
			return n.dsts[i].dst, nil
		}
	}
	d := destination{first: &g.Flat[0], dst: []*tensor.Tensor{n.losses}}
	for _, i := range n.tensors {
		if i < 0 {
			break
		}
		t, err := tensor.Of(g.Tensor(i), n.vars[i].Shape()...)
		if err != nil {
			return nil, fmt.Errorf("nn: gradient of %q: %w", n.vars[i].Name, err)
		}
		d.dst = append(d.dst, t)
	}
	for _, s := range n.sparse {
		d.dst = append(d.dst, s.dst...)
	}
	if len(n.dsts) == destinations {
		n.dsts = n.dsts[:0]
	}
	n.dsts = append(n.dsts, d)
	return d.dst, nil
}

// grown returns s with length n, in new memory if it must.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
