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

// The rounds in which rank 0 fills the tables. What it adds then is no gradient, but the bits of what the segment is told.
const (
	roundName  = iota + 1 // the row's number, so that a server can say whose state it tells
	roundValue            // the parameters
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

// maxSlots is how many state vectors a rule may have at a server: ps keeps eight of an updater, which has one of its own.
const maxSlots = 7

// A keeper is the optimizer of a server: the job's rule, behind rounds that fill the tables, and with a record of what state lies where,
// which it tells as the object "state" of a blob.Store.
type keeper struct {
	readOnly
	rule  trivium.Optimizer
	part  part
	pacer *pacer  // nil: there is none
	apart bool    // each worker's round is a step of its own
	n     int     // workers that have rows
	share float32 // of such a step's update
	isa   kernel.ISA

	scheduled bool
	ftrl      bool

	mu     sync.RWMutex // lanes step under its read lock, each its own segments
	blocks []block
	open   map[*trivium.Layout]int // the block that the next rows of a lane's table are named in
	most   atomic.Int64            // steps of any cell in this run

	reading sync.Mutex
	told    []byte // what is read: the state when its first byte was asked for
}

// blockRows is how many rows a block has: a cell knows its block, and its row's place there, by a number of 32 bits.
const blockRows = 1 << 12

// A block is rows of one lane's table, in the order of their naming.
type block struct {
	rows []counts
	segs []segment
}

// counts are how often a row, or a part of a long one, was updated.
type counts struct {
	base  uint32 // before this run
	steps uint32
	begun uint32 // the first of them that had weight
}

// A segment is a run of cells of one row, with its state, or of rows that follow one another, whole.
type segment struct {
	layout *trivium.Layout // of the row: its first tensor names the table
	first  int             // its first row's place in the block
	rows   int
	row    uint32
	from   int         // the first cell's column
	n      int         // cells of each row
	slots  [][]float32 // the server's own memory, of all rows
	of     []float32   // products, behind slots; nil: none are kept
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
		rule: rule, part: newPart(job, rule), apart: apart, n: workers, share: 1, isa: isa, open: map[*trivium.Layout]int{},
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
	return map[string]trivium.Optimizer{fresh: &updater{k, loads(false, 0)}, resumed: &updater{k, loads(true, k.rule.Slots())}}
}

// An updater is a keeper for tables that are filled in so many rounds.
type updater struct {
	*keeper
	loads int
}

// Slots implements trivium.Optimizer: the rule's, before them one that says which segment a cell is of, and behind them the last gradient
// and the products, if they are kept.
func (u *updater) Slots() int {
	n := 1 + u.rule.Slots()
	if u.products() {
		n += 2
	}
	return n
}

// CountsAll implements ps.Counter: an update whose rows all weigh nothing is one of the model, though not of the rows of a row-sparse tensor.
func (u *updater) CountsAll(l *trivium.Layout) bool { return !rowTable(l) }

// Elementwise implements trivium.Optimizer.
func (u *updater) Elementwise() bool { return u.rule.Elementwise() }

// Apply implements trivium.Optimizer.
func (u *updater) Apply(step int64, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	if step == roundName {
		u.name(l, from, g, slots)
		clear(out)
		return
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	switch {
	case step > int64(u.loads):
		u.step(uint32(step-int64(u.loads)), l, from, p, g, out, slots)
		return
	case step == roundValue:
		copy(out, g)
		return
	case step == roundSteps:
		u.each(slots[0], from, func(c *counts, i int) { c.base = math.Float32bits(g[i]) })
	default:
		k := int(step) - roundSlots
		copy(slots[1+k], g)
		if u.products() && k == u.part.squares { // a checkpoint has those of all workers' mean, as one optimizer has them
			u.part.taken(slots[1+k], slots[len(slots)-1], u.n)
		}
	}
	clear(out)
}

// name notes what segment these cells are, and that in each of them.
func (u *updater) name(l *trivium.Layout, from int, g []float32, slots [][]float32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, ok := u.open[l]
	if !ok || len(u.blocks[at].rows) == blockRows {
		at = len(u.blocks)
		u.blocks = append(u.blocks, block{})
		u.open[l] = at
	}
	b := &u.blocks[at]
	for i := range slots[0] {
		slots[0][i] = math.Float32frombits(uint32(at*blockRows + len(b.rows)))
	}
	s := segment{layout: l, first: len(b.rows), rows: 1, row: math.Float32bits(g[0]), from: from, n: len(g), slots: slices.Clone(slots[1 : 1+u.rule.Slots()])}
	if u.products() {
		s.of = slots[len(slots)-1]
	}
	b.rows = append(b.rows, counts{})
	if k := len(b.segs) - 1; k < 0 || !b.segs[k].join(&s) {
		b.segs = append(b.segs, s)
	}
}

// join makes a row that follows s, also in memory, part of it.
func (s *segment) join(o *segment) bool {
	if o.row != s.row+uint32(s.rows) || s.from != 0 || o.from != 0 || s.n != o.n || s.n != s.layout.Len() {
		return false
	}
	mine, others := append(s.slots[:len(s.slots):len(s.slots)], s.of), append(o.slots[:len(o.slots):len(o.slots)], o.of)
	for i, v := range mine {
		if w := others[i]; v != nil && (len(v)+len(w) > cap(v) || &v[:cap(v)][len(v)] != &w[0]) {
			return false
		}
	}
	for i, v := range s.slots {
		s.slots[i] = v[:len(v)+s.n]
	}
	if s.of != nil {
		s.of = s.of[:len(s.of)+s.n]
	}
	s.rows++
	return true
}

// counts returns those of the row that a cell is of.
func (k *keeper) counts(index float32) *counts {
	at := math.Float32bits(index)
	return &k.blocks[at/blockRows].rows[at%blockRows]
}

// segment returns the one that a cell is of.
func (k *keeper) segment(index float32) *segment {
	at := math.Float32bits(index)
	b := &k.blocks[at/blockRows]
	i, found := slices.BinarySearchFunc(b.segs, int(at%blockRows), func(s segment, row int) int { return s.first - row })
	if !found {
		i--
	}
	return &b.segs[i]
}

// GathersFrom implements ps.Gatherer: rows are named and filled where they lie, and a rule that a program brings steps each by itself.
func (u *updater) GathersFrom() int64 {
	if _, ours := u.rule.(*optim.Rule); !ours {
		return math.MaxInt64
	}
	return int64(u.loads) + 1
}

// Counting implements ps.Gatherer: parts of updates depend on how many of them a row had.
func (u *updater) Counting() bool {
	r, ok := u.rule.(*optim.Rule)
	return u.apart || !ok || r.Counting()
}

// ApplyRows implements ps.Gatherer.
func (u *updater) ApplyRows(steps []uint32, l *trivium.Layout, p, g, out []float32, slots [][]float32) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	cols, counting := len(p)/len(steps), u.Counting()
	alike := func(k, o uint32, c, d *counts) bool {
		if counting && (k != o || c.base != d.base) {
			return false
		}
		return !u.ftrl || c.begins(k) == d.begins(o)
	}
	most := uint32(0)
	for i := range steps {
		k := steps[i] - uint32(u.loads)
		u.counts(slots[0][i*cols]).step(k)
		most = max(most, k)
	}
	u.atMost(most)
	views := make([][]float32, len(slots))
	for i := 0; i < len(steps); {
		k, c, j := steps[i]-uint32(u.loads), u.counts(slots[0][i*cols]), i+1
		for j < len(steps) && alike(k, steps[j]-uint32(u.loads), c, u.counts(slots[0][j*cols])) {
			j++
		}
		for v := range slots {
			views[v] = slots[v][i*cols : j*cols]
		}
		u.stepAs(c, k, l, 0, p[i*cols:j*cols], g[i*cols:j*cols], out[i*cols:j*cols], views)
		i = j
	}
}

// step counts a step, the kth.
func (c *counts) step(k uint32) {
	if c.steps = k; c.begun == 0 {
		c.begun = k
	}
}

// begins reports whether the kth step is the first.
func (c *counts) begins(k uint32) bool { return c.begun == k }

// atMost takes in that cells have so many steps.
func (k *keeper) atMost(steps uint32) {
	n := int64(steps)
	for most := k.most.Load(); most < n && !k.most.CompareAndSwap(most, n); most = k.most.Load() {
	}
}

// step makes the kth step of these cells.
func (u *updater) step(k uint32, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	u.each(slots[0], from, func(c *counts, _ int) { c.step(k) })
	u.atMost(k)
	u.stepAs(u.counts(slots[0][0]), k, l, from, p, g, out, slots)
}

// stepAs makes the step of cells that were all updated as often as c says, this one with them.
func (u *updater) stepAs(c *counts, steps uint32, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	rows, k, base := rowTable(l), int64(steps), int64(c.base)
	n, share, by := base+k, u.share, float64(u.n)
	if u.apart && !rows { // a schedule counts updates, an average that the rule keeps the workers' parts of them
		n += base * int64(u.n-1)
		if u.scheduled {
			n = (n + int64(u.n) - 1) / int64(u.n)
		}
	}
	if rows && share != 1 { // of all gradients, so many had this row
		by = together(float64(k)/float64(u.most.Load()), u.n)
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
	if u.ftrl && c.begins(steps) { // it begins where the model does with its first step, whatever that one's number
		n = 1
	}
	if u.pacer != nil {
		u.paced(k, base, by, share, l, from, p, g, out, slots)
		return
	}
	state := slots[1 : 1+u.rule.Slots()]
	if !u.products() {
		u.rule.Apply(n, l, from, p, g, out, state)
		if share != 1 {
			kernel.Scale(u.isa, out, out, share)
		}
		return
	}
	last, product := slots[len(slots)-2], slots[len(slots)-1]
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
	return float32(together(float64(steps)/float64(max(k.most.Load(), int64(k.n))), k.n) / float64(k.n))
}

// each calls f with the counts of the rows, or parts of one, that the cells from `from` on are of, and where they begin among these.
func (k *keeper) each(index []float32, from int, f func(c *counts, i int)) {
	for i := 0; i < len(index); {
		s := k.segment(index[i])
		f(k.counts(index[i]), i)
		i += s.n - (from + i - s.from)
	}
}

// rowTable reports whether the rows of l are those of a row-sparse tensor.
func rowTable(l *trivium.Layout) bool { return strings.HasPrefix(l.Spec(0).Name, rowPrefix) }

// rowPrefix begins the names of row-sparse tensors, in their tables.
const rowPrefix = "row of "

var _ ps.Gatherer = (*updater)(nil)
