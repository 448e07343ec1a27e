package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
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

	mu   sync.RWMutex // lanes step under its read lock, each its own segments
	runs []segment
	most atomic.Int64 // steps of any cell in this run

	reading sync.Mutex
	told    []byte // what is read: the state when its first byte was asked for
}

// A segment is a run of cells of one row, with its state.
type segment struct {
	layout *trivium.Layout // of the row: its first tensor names the table
	row    uint32
	from   int // the first cell's column
	n      int
	base   int64 // updates before this run
	steps  int64
	begun  int64       // the first of them that had weight
	slots  [][]float32 // the server's own memory
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
	k := &keeper{rule: rule, part: newPart(job, rule), apart: apart, n: workers, share: 1, isa: isa, scheduled: job.Optimizer.Schedule != "", ftrl: job.Optimizer.Name == "ftrl"}
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
	index := slots[0]
	if step == roundName {
		u.mu.Lock()
		defer u.mu.Unlock()
		s := segment{layout: l, row: math.Float32bits(g[0]), from: from, n: len(p)}
		s.slots = append(s.slots, slots[1:1+u.rule.Slots()]...)
		if u.products() {
			s.of = slots[len(slots)-1]
		}
		for i := range index {
			index[i] = math.Float32frombits(uint32(len(u.runs)))
		}
		u.runs = append(u.runs, s)
		clear(out)
		return
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	s := &u.runs[math.Float32bits(index[0])]
	switch {
	case step > int64(u.loads):
		u.step(step-int64(u.loads), s, l, from, p, g, out, slots)
		return
	case step == roundValue:
		copy(out, g)
		return
	case step == roundSteps:
		u.each(index, from, func(s *segment, i int) { s.base = int64(math.Float32bits(g[i])) })
	default:
		k := int(step) - roundSlots
		copy(slots[1+k], g)
		if u.products() && k == u.part.squares { // a checkpoint has those of all workers' mean, as one optimizer has them
			u.part.taken(slots[1+k], slots[len(slots)-1], u.n)
		}
	}
	clear(out)
}

// step makes the kth step of these cells, the first of which is of segment s.
func (u *updater) step(k int64, s *segment, l *trivium.Layout, from int, p, g, out []float32, slots [][]float32) {
	rows := rowTable(l)
	u.each(slots[0], from, func(s *segment, _ int) {
		if s.steps = k; s.begun == 0 {
			s.begun = k
		}
	})
	for most := u.most.Load(); most < k && !u.most.CompareAndSwap(most, k); most = u.most.Load() {
	}
	n, share, by := s.base+k, u.share, float64(u.n)
	if u.apart && !rows { // a schedule counts updates, an average that the rule keeps the workers' parts of them
		n += s.base * int64(u.n-1)
		if u.scheduled {
			n = (n + int64(u.n) - 1) / int64(u.n)
		}
	}
	if rows && share != 1 { // of all gradients, so many had this row
		by = together(float64(k)/float64(u.most.Load()), u.n)
		if u.scheduled { // it counts the row's updates, as one optimizer makes them
			n = s.base + int64(math.Ceil(float64(k)/by))
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
	if u.ftrl && s.begun == k { // it begins where the model does with its first step, whatever that one's number
		n = 1
	}
	if u.pacer != nil {
		u.paced(k, s.base, by, share, l, from, p, g, out, slots)
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

// each calls f with the segments of the cells from `from` on, and where they begin among these.
func (k *keeper) each(index []float32, from int, f func(s *segment, i int)) {
	for i := 0; i < len(index); {
		s := &k.runs[math.Float32bits(index[i])]
		f(s, i)
		i += s.n - (from + i - s.from)
	}
}

// rowTable reports whether the rows of l are those of a row-sparse tensor.
func rowTable(l *trivium.Layout) bool { return strings.HasPrefix(l.Spec(0).Name, rowPrefix) }

// rowPrefix begins the names of row-sparse tensors, in their tables.
const rowPrefix = "row of "

// A told is what the state of a segment begins with, on its way to rank 0.
type told struct {
	table string
	row   uint32
	from  int
	steps int64
	slots [][]float32
}

// appendState writes all segments.
func (k *keeper) appendState(p []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	most := k.most.Load()
	for at := range k.runs {
		s := &k.runs[at]
		name := s.layout.Spec(0).Name
		p = binary.LittleEndian.AppendUint16(p, uint16(len(name)))
		p = append(p, name...)
		p = binary.LittleEndian.AppendUint32(p, s.row)
		p = binary.LittleEndian.AppendUint64(p, uint64(s.from))
		p = binary.LittleEndian.AppendUint32(p, uint32(s.n))
		steps := s.steps
		if k.apart && rowTable(s.layout) { // what one optimizer would have made
			steps = updatesOf(steps, most, k.n)
		}
		p = binary.LittleEndian.AppendUint64(p, uint64(s.base+steps))
		p = append(p, byte(len(s.slots)))
		for i, v := range s.slots {
			if i == k.part.squares && s.of != nil {
				by := float64(k.n)
				if rowTable(s.layout) {
					by = together(float64(s.steps)/float64(max(1, most)), k.n)
				}
				v = slices.Clone(v)
				k.part.neutral(v, s.of, k.n, by)
			}
			for _, x := range v {
				p = binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
			}
		}
	}
	return p
}

var errShort = errors.New("server: the optimizer's state ends in the middle")

// eachState calls f with what appendState wrote. What f gets is valid until it returns.
func eachState(p []byte, f func(t told) error) error {
	var cells []float32
	for len(p) > 0 {
		if len(p) < 2 {
			return errShort
		}
		n := int(binary.LittleEndian.Uint16(p))
		if len(p) < 2+n+25 {
			return errShort
		}
		t := told{table: string(p[2 : 2+n])}
		p = p[2+n:]
		t.row, t.from = binary.LittleEndian.Uint32(p), int(binary.LittleEndian.Uint64(p[4:]))
		width, slots := int(binary.LittleEndian.Uint32(p[12:])), int(p[24])
		t.steps = int64(binary.LittleEndian.Uint64(p[16:]))
		p = p[25:]
		if t.from < 0 || len(p) < 4*width*slots {
			return errShort
		}
		cells = slices.Grow(cells[:0], width*slots)[:width*slots]
		for i := range cells {
			cells[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
		}
		p = p[4*len(cells):]
		for i := range slots {
			t.slots = append(t.slots, cells[i*width:(i+1)*width])
		}
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// stateKey is the object's name.
const stateKey = "state"

// Get implements blob.Store.
func (k *keeper) Get(_ context.Context, key string, from, length int64) (io.ReadCloser, error) {
	if key != stateKey {
		return nil, fmt.Errorf("server: %s: %w", key, fs.ErrNotExist)
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	if from <= 0 {
		k.told = k.appendState(nil)
	}
	p := k.told
	p = p[min(max(from, 0), int64(len(p))):]
	if length >= 0 {
		p = p[:min(length, int64(len(p)))]
	}
	return io.NopCloser(bytes.NewReader(p)), nil
}

// readOnly is all of a blob.Store but Get, of a state that a member tells.
type readOnly struct{}

var errReadOnly = errors.New("server: a state that is told is not to be written")

// Put implements blob.Store.
func (readOnly) Put(context.Context, string, io.Reader) error { return errReadOnly }

// PutIfAbsent implements blob.Store.
func (readOnly) PutIfAbsent(context.Context, string, io.Reader) error { return errReadOnly }

// List implements blob.Store.
func (readOnly) List(context.Context, string) ([]blob.Object, error) { return nil, nil }

// Delete implements blob.Store.
func (readOnly) Delete(context.Context, string) error { return errReadOnly }

var (
	_ blob.Store = (*keeper)(nil)
	_ ps.Store   = (*keeper)(nil)
)
