package server

import (
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// An ownRule is the optimizer of a worker that has its own: of each of its gradients it makes the worker's part of an update (part).
//
// Of a row of a row-sparse tensor that on average k of n workers have in an update, local's gradient is the sum of the k over n, and local makes n/k steps
// of it while one worker makes one. So here a rule is given k/n of the gradient, and one step of it forgets as much as one optimizer's n/k do:
// its β are to that power (pacer). What is kept is then as large as what one optimizer keeps, however often the row was touched, and any number
// of workers goes on from the mean of it, and so does local. A sum of squares forgets nothing, but lacks those of n/k - 1 steps for each that it
// has: each of its own counts for n/k.
type ownRule struct {
	pace      // of all but rows of which others make some of the steps
	isa       kernel.ISA
	l         *trivium.Layout
	slots     [][]float32
	counts    [][]uint32 // of each row-sparse tensor: the updates of a row, where the rule counts them
	were      [][]uint32 // before this run
	scheduled bool       // the learning rate depends on an update's number
	workers   int
	foreign   bool   // the rule is the program's own
	pacer     *pacer // of rows; nil: all are stepped by the rule itself
	views     [][]float32
	last      []float32 // this worker's last gradient of each cell
	product   []float32 // of successive ones; nil: the rule has no squares, or the worker is alone

	rounds  int64      // with rows
	touched [][]uint32 // of each row-sparse tensor: the rounds that touched a row; nil: the worker is alone, or its steps are linear and keep nothing
}

// newOwnRule returns that of one of so many workers, of a run whose optimizer's state is this, and was so when the run began.
func newOwnRule(job *trivium.Job, rule trivium.Optimizer, isa kernel.ISA, l *trivium.Layout, state *optim.State, were [][]uint32, workers int) (*ownRule, error) {
	r := &ownRule{
		pace: newPace(job, rule, 1), isa: isa, l: l, slots: state.Slots(), counts: state.RowSteps(), were: were,
		workers: workers, views: make([][]float32, rule.Slots()), touched: make([][]uint32, l.Tensors()),
	}
	_, ours := rule.(*optim.Rule)
	r.foreign = !ours
	r.scheduled = job.Optimizer.Schedule != "" && r.rate != nil && workers > 1
	if workers == 1 || r.linear && rule.Slots() == 0 {
		r.squares = -1
		return r, nil
	}
	if r.squares >= 0 {
		r.last, r.product = tensor.Aligned[float32](l.Len()), tensor.Aligned[float32](l.Len())
		copy(r.product, r.slots[r.squares]) // a checkpoint has the squares of all workers' mean
	}
	for i := range l.Tensors() {
		if s := l.Spec(i); s.RowSparse && s.Tie == "" {
			r.touched[i] = make([]uint32, l.Rows(i))
		}
	}
	var err error
	if ours && r.ftrl == nil {
		r.pacer, err = newPacer(job, isa, workers, 1/float64(workers), remembered(job.Optimizer.Name))
	}
	return r, err
}

// remembered are the parameters that say how long rules remember gradients and squares.
func remembered(name string) map[string]float64 {
	switch name {
	case "momentum", "nesterov":
		return map[string]float64{"momentum": 0.9}
	case "adam", "adamw":
		return map[string]float64{"beta1": 0.9, "beta2": 0.999}
	}
	return memory(name)
}

// dense makes u, a mean gradient of cells of dense tensors at p, this worker's part of update step.
func (r *ownRule) dense(step int64, from int, p, u []float32) {
	n, share := float64(r.workers), 1/float32(r.workers)
	slots, last, product := r.at(from, len(u))
	if r.ftrl != nil && product != nil {
		r.place(r.isa, r.l, from, p, u, u, slots[0], slots[r.squares], last, product, r.rounds == 1, placing(n, 1, 1, 1))
		kernel.Scale(r.isa, u, u, share)
		return
	}
	if product != nil {
		r.remember(r.isa, r.l, from, p, u, last, product, r.rounds == 1)
	}
	r.rule.Apply(step, r.l, from, p, u, u, slots)
	r.scale(r.isa, u, slots, product, share, n)
}

// row makes u, a mean gradient of a row of a row-sparse tensor at p, whose first cell is `from`, this worker's part of update step.
func (r *ownRule) row(step int64, tensor, row, from int, p, u []float32) {
	n, was := step, int64(0)
	if c := r.counts[tensor]; c != nil {
		c[row]++
		n, was = int64(c[row]), int64(r.were[tensor][row])
	}
	slots, last, product := r.at(from, len(u))
	if r.touched[tensor] == nil {
		share := r.due(&r.pace, n, was, n-was) / float32(r.workers)
		r.rule.Apply(n, r.l, from, p, u, u, slots)
		kernel.Scale(r.isa, u, u, share)
		return
	}
	r.touched[tensor][row]++
	k := int64(r.touched[tensor][row])
	by, of := together(float64(k)/float64(r.rounds), r.workers), r.ofMean(k)
	if r.ftrl != nil { // its n is a sum of squares, and z where the parameter is 0 one of gradients: each counts for 1/of
		root := math.Sqrt(of)
		kernel.Scale(r.isa, u, u, float32(root))
		r.place(r.isa, r.l, from, p, u, u, slots[0], slots[r.squares], last, product, k == 1, placing(by, 1, root, 1/root))
		kernel.Scale(r.isa, u, u, float32(1/by))
		return
	}
	x := &r.pace
	if r.pacer != nil {
		x = r.pacer.of(of)
		n = int64(math.Round(float64(was)*of)) + k
	}
	share := r.due(x, n, was, k) / float32(by)
	kernel.Scale(r.isa, u, u, float32(of*x.weight))
	if product != nil {
		x.remember(r.isa, r.l, from, p, u, last, product, k == 1)
	}
	x.rule.Apply(n, r.l, from, p, u, u, slots)
	if x.sums() { // of the root of one optimizer's sum: the weight is not in it, but in the gradient over it
		share /= float32(x.weight)
	}
	x.scale(r.isa, u, slots, product, share, by)
}

// at returns the state of cells from `from` on. It is valid until the next call.
func (r *ownRule) at(from, n int) (slots [][]float32, last, product []float32) {
	for i, v := range r.slots {
		r.views[i] = v[from : from+n]
	}
	if r.product == nil {
		return r.views, nil, nil
	}
	return r.views, r.last[from : from+n], r.product[from : from+n]
}

// ofMean is how much of this worker's gradient of a row there is in the mean of all workers', where it has touched the row so often. In the first
// rounds a row is not taken for one that all have (keeper.ofMean).
func (r *ownRule) ofMean(touched int64) float64 {
	return together(float64(touched)/float64(max(r.rounds, int64(r.workers))), r.workers) / float64(r.workers)
}

// due is the learning rate of the update that a row is in, in parts of that which the pace's rule takes in step n. A schedule counts the updates that
// one optimizer would make of the row: before this run, and of which this worker has touched so many.
func (r *ownRule) due(x *pace, n, before, touched int64) float32 {
	if !r.scheduled {
		return 1
	}
	k := float64(touched)
	rate := x.rate(n)
	if rate == 0 {
		return 1
	}
	updates := k * float64(r.workers) / together(k/float64(r.rounds), r.workers)
	return float32(r.rate(before+int64(math.Ceil(updates))) / rate)
}

// meanSquares makes v, the squares of this worker's rule, those of all gradients' mean.
func (r *ownRule) meanSquares(v []float32, t *tables) {
	if r.product == nil {
		return
	}
	for _, x := range t.runs {
		r.mean(v[x[0]:x[1]], r.product[x[0]:x[1]], float64(r.workers))
	}
	for _, x := range t.sparse {
		for i, k := range r.touched[x.tensor] {
			if k > 0 {
				from, to := x.from+i*x.cols, x.from+(i+1)*x.cols
				r.mean(v[from:to], r.product[from:to], together(float64(k)/float64(r.rounds), r.workers))
			}
		}
	}
}

// ownUpdate makes the worker's part of an update from the sum of its gradients, divided by so much.
func (w *worker) ownUpdate(step int64, by float64) {
	if by == 0 {
		return
	}
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	own, p, mean := w.rules, w.run.Params.Flat, float32(by*w.tooLong(by))
	if own.rounds++; own.rounds == 1 && w.job.Optimizer.Name == "ftrl" { // it begins where the model does with its first update, whatever that one's number
		step = 1
	}
	of := func(from, to int) (at, u []float32) {
		kernel.ScaleInto(own.isa, w.update[from:to], w.gradient.Flat[from:to], mean)
		return p[from:to], w.update[from:to]
	}
	// One that looks at all cells of the gradient has them in one run: optim.NewState refuses it where some tensors are row-sparse.
	for _, r := range w.tables.runs {
		at, u := of(r[0], r[1])
		own.dense(step, r[0], at, u)
	}
	for _, x := range w.tables.sparse {
		for _, r := range w.gradient.Rows[x.tensor] {
			from := x.from + int(r)*x.cols
			at, u := of(from, from+x.cols)
			own.row(step, x.tensor, int(r), from, at, u)
		}
	}
}

// tooLong is how many times the job's limit the norm of the whole gradient is, at least 1: the rule, which is given a part at a time,
// finds no part too long once all are divided by it.
func (w *worker) tooLong(by float64) float64 {
	limit := w.job.Optimizer.ClipNorm
	if limit == 0 || w.rules.foreign { // such a rule clips by itself, if it does
		return 1
	}
	var sum float64
	add := func(from, to int) {
		for at := from; at < to; at += normBlock {
			sum += optim.SumSquares(w.run.CPU.ISA, w.gradient.Flat[at:min(at+normBlock, to)])
		}
	}
	for _, r := range w.tables.runs {
		add(r[0], r[1])
	}
	for _, x := range w.tables.sparse {
		for _, r := range w.gradient.Rows[x.tensor] {
			add(x.from+int(r)*x.cols, x.from+(int(r)+1)*x.cols)
		}
	}
	return max(1, math.Sqrt(sum)/by/limit)
}

// normBlock is the number of squares that are added at once.
const normBlock = 4096
