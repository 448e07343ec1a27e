package server

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/train"
)

// The names of the updaters in the tables' definitions: of a run that begins, and of one that goes on.
const (
	fresh   = "trained"
	resumed = "trained on"
)

// The rounds in which rank 0 fills the tables. What it adds then is no gradient, but what the cells are told; of numbers, the bits.
const (
	roundValue = iota + 1 // the parameters
	roundSteps            // of a run that goes on: the updates that are behind them
	roundSlots            // and the optimizer's state, a round a vector
)

// loads is the number of rounds that fill the tables.
func loads(going bool, slots int) int {
	if going {
		return roundSteps + slots
	}
	return roundValue
}

// maxSlots is how many state vectors a rule may have at a server: ps keeps eight of an updater, which has one of its own in a run that goes on.
const maxSlots = 7

// A keeper is the optimizer of a server: the job's rule, behind rounds that fill the tables.
type keeper struct {
	rule  trivium.Optimizer
	part  part
	pacer *pacer  // nil: there is none
	apart bool    // each worker's round is a step of its own
	n     int     // workers that have rows
	share float32 // of such a step's update
	isa   kernel.ISA

	scheduled bool
	ftrl      bool

	most atomic.Int64 // steps of any cell in this run

	mu    sync.Mutex
	begun map[*trivium.Layout]uint32 // the first step that had weight of a lane's table that counts all rounds
}

// newKeeper returns the keeper of a job's rule. Where each worker's gradient is a step of its own, n of them make what is one update
// elsewhere: each adds its part. AdaGrad sums the squares of n steps where one update would add one, so its parts are 1/√n, and FTRL's weights are
// a function of its state, so its state is made that of one optimizer (proximal). What leaves for a checkpoint is one optimizer's (part.neutral).
func newKeeper(job *trivium.Job, own optim.Optimizers, apart bool, workers int) (*keeper, error) {
	isa := kernel.Best()
	if isa == kernel.Go {
		isa = kernel.GoExact // an update has the same bits at every server
	}
	rule, err := own.New(job.Optimizer, isa)
	if err != nil {
		return nil, &train.JobError{Err: err}
	}
	workers = busy(job.Batch, workers)
	k := &keeper{
		rule: rule, part: newPart(job, rule), apart: apart, n: workers, share: 1, isa: isa, begun: map[*trivium.Layout]uint32{},
		scheduled: job.Optimizer.Schedule != "", ftrl: job.Optimizer.Name == "ftrl",
	}
	if apart && workers > 1 {
		k.share = 1 / float32(workers)
		if betas := memory(job.Optimizer.Name); betas != nil {
			if k.pacer, err = newPacer(job, isa, workers, 1, betas); err != nil {
				return nil, err
			}
		}
	}
	return k, nil
}

// products reports whether the products of successive gradients are kept beside the rule's state, see part.
func (k *keeper) products() bool { return k.apart && k.n > 1 && k.part.squares >= 0 }

func (k *keeper) updaters() map[string]trivium.Optimizer {
	return map[string]trivium.Optimizer{fresh: &updater{k, loads(false, 0), false}, resumed: &updater{k, loads(true, k.rule.Slots()), true}}
}

// An updater is a keeper for tables that are filled in so many rounds.
type updater struct {
	*keeper
	loads int
	going bool // cells have updates behind them
}

// Slots implements trivium.Optimizer: the rule's; behind them the last gradient and the products, if they are kept; and last, of a run that goes on,
// the number of updates before it.
func (u *updater) Slots() int {
	n := u.rule.Slots()
	if u.products() {
		n += 2
	}
	if u.going {
		n++
	}
	return n
}

// state is the rule's part of the slots.
func (u *updater) state(slots [][]float32) [][]float32 { return slots[:u.rule.Slots()] }

// kept are the last gradient and the products, where they are kept.
func (u *updater) kept(slots [][]float32) (last, product []float32) {
	n := u.rule.Slots()
	return slots[n], slots[n+1]
}

// base is how many updates the row of the ith cell had before this run.
func (u *updater) base(slots [][]float32, i int) uint32 {
	if !u.going {
		return 0
	}
	return math.Float32bits(slots[len(slots)-1][i])
}

// CountsAll implements ps.Counter: an update whose rows all weigh nothing is one of the model, though not of the rows of a row-sparse tensor.
func (u *updater) CountsAll(l *trivium.Layout) bool { return !rowTable(l) }

// Elementwise implements trivium.Optimizer.
func (u *updater) Elementwise() bool { return u.rule.Elementwise() }

// Apply implements trivium.Optimizer.
func (u *updater) Apply(step int64, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	if step <= int64(u.loads) {
		u.load(step, g, out, slots)
		return
	}
	k := uint32(step - int64(u.loads))
	u.atMost(k)
	u.stepAs(k, u.base(slots, 0), u.begins(k, l), l, from, p, g, out, slots)
}

// load takes in what a round tells the cells.
func (u *updater) load(round int64, g, out []float32, slots [][]float32) {
	switch round {
	case roundValue:
		copy(out, g)
		return
	case roundSteps:
		copy(slots[len(slots)-1], g)
	default:
		k := int(round) - roundSlots
		copy(slots[k], g)
		if u.products() && k == u.part.squares { // a checkpoint has those of all workers' mean, as one optimizer has them
			_, product := u.kept(slots)
			u.part.taken(slots[k], product, u.n)
		}
	}
	clear(out)
}

// begins reports whether the kth step is the first of these cells that has weight. Rounds without count where all do (CountsAll).
func (u *updater) begins(k uint32, l *trivium.Layout) bool {
	if !u.ftrl { // nobody else asks
		return false
	}
	if rowTable(l) {
		return k == 1
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.begun[l] == 0 {
		u.begun[l] = k
	}
	return u.begun[l] == k
}

// Gathers implements ps.Gatherer: a rule that a program brings steps each row by itself.
func (u *updater) Gathers() bool {
	_, ours := u.rule.(*optim.Rule)
	return ours
}

// Counting implements ps.Gatherer: parts of updates depend on how many of them a row had.
func (u *updater) Counting() bool {
	return u.numbered() || u.apart && (!u.part.linear || u.rule.Slots() > 0)
}

// numbered reports whether a step depends on its very number, and not only on how often rows like this are touched.
func (u *updater) numbered() bool {
	r, ok := u.rule.(*optim.Rule)
	return !ok || r.Counting() || u.scheduled
}

// ApplyRows implements ps.Gatherer. Neighbours that are stepped alike are stepped together.
func (u *updater) ApplyRows(steps []uint32, l *trivium.Layout, p, g, out []float32, slots [][]float32) {
	if int64(steps[0]) <= int64(u.loads) { // and so are all others: a table is filled as a whole
		u.load(int64(steps[0]), g, out, slots)
		return
	}
	cols, counting, numbered := len(p)/len(steps), u.Counting(), u.numbered()
	if u.apart { // else nobody asks
		u.atMost(slices.Max(steps) - uint32(u.loads))
	}
	type likeness struct {
		begins, first bool
		a, b          uint32
	}
	like := func(i int) (x likeness) {
		k := steps[i] - uint32(u.loads)
		x.begins = u.begins(k, l)
		switch {
		case numbered:
			x.a, x.b = k, u.base(slots, i*cols)
		case counting:
			x.first, x.a = k == 1, uint32(u.level(int64(k), u.least())) // below least each number is one
		}
		return x
	}
	var room [8][]float32
	views := room[:len(slots)]
	for i := 0; i < len(steps); {
		j := len(steps)
		if counting || u.ftrl {
			x := like(i)
			for j = i + 1; j < len(steps) && like(j) == x; {
				j++
			}
		}
		for v := range slots {
			views[v] = slots[v][i*cols : j*cols]
		}
		k := steps[i] - uint32(u.loads)
		u.stepAs(k, u.base(slots, i*cols), u.begins(k, l), l, 0, p[i*cols:j*cols], g[i*cols:j*cols], out[i*cols:j*cols], views)
		i = j
	}
}

// levels are how many frequencies of rows there are for each worker: how often a row is touched is an estimate, and rows that are about as frequent
// are stepped together.
const levels = 16

// level is the frequency of a row with so many of `most` steps, in parts of levels × n.
func (k *keeper) level(steps, most int64) float64 {
	return math.Floor(float64(steps)*(levels*float64(k.n)/float64(most)) + 0.5)
}

// frequency is the probability that a gradient has a row, of which it is known that it had so many of `most` steps.
func (k *keeper) frequency(steps, most int64) float64 {
	return k.level(steps, most) / (levels * float64(k.n))
}

// least is how many steps the most frequent row is taken to have had: that of a run's first update is not taken for one that all have.
func (k *keeper) least() int64 { return max(k.most.Load(), int64(k.n)) }

// atMost takes in that cells have so many steps.
func (k *keeper) atMost(steps uint32) {
	n := int64(steps)
	for most := k.most.Load(); most < n && !k.most.CompareAndSwap(most, n); most = k.most.Load() {
	}
}

// stepAs makes the kth step of cells that all had so many updates before this run. begins: it is the first.
func (u *updater) stepAs(step, had uint32, begins bool, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	rows, k, base := rowTable(l), int64(step), int64(had)
	n, share, by := base+k, u.share, float64(u.n)
	if u.apart && !rows { // a schedule counts updates, an average that the rule keeps the workers' parts of them
		n += base * int64(u.n-1)
		if u.scheduled {
			n = (n + int64(u.n) - 1) / int64(u.n)
		}
	}
	if rows && share != 1 { // of all gradients, so many had this row
		by = together(u.frequency(k, u.most.Load()), u.n)
		if u.scheduled { // it counts the row's updates, as one optimizer makes them
			n = base + int64(math.Ceil(float64(k)/by))
		}
		if !u.part.linear {
			share = float32(1 / by)
		}
		if !u.part.sums() && (!u.part.linear || u.rule.Slots() > 0) { // what it keeps is to be as long as one optimizer's
			of := u.ofMean(k)
			kernel.Scale(u.isa, out, g, of)
			if g = out; u.part.linear {
				share /= of
			}
		}
	}
	if begins { // FTRL begins where the model does with its first step, whatever that one's number
		n = 1
	}
	if u.pacer != nil {
		u.paced(k, base, by, share, l, from, p, g, out, slots)
		return
	}
	state := u.state(slots)
	if !u.products() {
		u.rule.Apply(n, l, from, p, g, out, state)
		if share != 1 {
			kernel.Scale(u.isa, out, out, share)
		}
		return
	}
	last, product := u.kept(slots)
	if u.part.ftrl != nil {
		u.part.place(u.isa, l, from, p, g, out, state[0], state[u.part.squares], last, product, k == 1,
			placing(by, 1/summed(u.n, by), float64(u.share), float64(u.share)))
		return
	}
	u.part.remember(u.isa, l, from, p, g, last, product, k == 1)
	u.rule.Apply(n, l, from, p, g, out, state)
	if u.part.sums() { // of n times as many squares
		share = float32(math.Sqrt(float64(share)))
	}
	u.part.scale(u.isa, out, state, product, share, by)
}

// ofMean is how much of a gradient with the kth step of a row there is in one of the mean over all workers' rows, of whom only some have that row: they
// are added up, and divided by the number of all. What is kept of gradients is not to be of one that is too long, as all would be that the first
// worker to push has: in the first update a row is not taken for one that all have until they do.
func (k *keeper) ofMean(steps int64) float32 {
	return float32(together(k.frequency(steps, k.least()), k.n) / float64(k.n))
}

// rowTable reports whether the rows of a table, whose layout is l, are those of a row-sparse tensor.
func rowTable(l *trivium.Layout) bool { return ofRows(l.Spec(0).Name) }

// ofRows is rowTable by the table's name.
func ofRows(table string) bool { return strings.HasPrefix(table, rowPrefix) }

// rowPrefix begins the names of row-sparse tensors, in their tables.
const rowPrefix = "row of "

var _ ps.Gatherer = (*updater)(nil)
