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
	"strconv"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/transport"
)

// A state is what all workers keep between rounds, added up: of an optimizer that is theirs its vectors, of which each worker adds one nth,
// and the updates of each row, and what codecs have dropped. So it depends on no number of workers: each of those that go on begins
// with the mean of the optimizers' vectors, and with an equal share of what was dropped; as many go on each where its codec was.
type state struct {
	sums   []float32
	codecs [][]byte // what that of each worker keeps, in their order; nil: there are none
}

// add adds o, of workers behind those of s.
func (s *state) add(o state) {
	for i, x := range o.sums {
		s.sums[i] += x
	}
	s.codecs = append(s.codecs, o.codecs...)
}

// keepsOwn reports whether workers keep what a checkpoint needs.
func (w *worker) keepsOwn() bool {
	return w.own == nil && w.env.Workers() > 0 && (w.o.OptimizerAt == AtWorker || w.codec != nil)
}

// savesCodec reports whether a checkpoint has what each worker's codec keeps. Of updates what was dropped is in its parameters.
func (w *worker) savesCodec() bool { return w.codec != nil && w.o.OptimizerAt == AtServer }

// busy returns how many workers have rows in a whole update, and whether this one has none.
func (w *worker) busy() (n int, idle bool) {
	rows, _ := w.run.Extent()
	rank, workers := int64(w.env.Rank), int64(w.env.Workers())
	return int(min(rows, workers)), rows*rank/workers == rows*(rank+1)/workers
}

// ownState is this worker's part of it, as it is now.
func (w *worker) ownState() (s state) {
	w.stateMu.Lock()
	defer w.stateMu.Unlock()
	if w.o.OptimizerAt == AtWorker {
		n, idle := w.busy()
		for k, v := range w.state.Slots() {
			v = slices.Clone(v)
			if w.rules != nil && k == w.rules.squares {
				w.rules.meanSquares(v, w.tables)
			}
			for i := range v {
				v[i] /= float32(n)
			}
			s.sums = append(s.sums, v...)
		}
		for _, rows := range w.state.RowSteps() {
			for _, k := range rows {
				s.sums = append(s.sums, float32(k))
			}
		}
		if idle { // its optimizer is as it was when the run began
			clear(s.sums)
		}
	}
	if w.codec != nil {
		at := len(s.sums)
		s.sums = append(s.sums, make([]float32, w.run.Layout().Len())...)
		w.client.Dropped(func(table string, row int64, cells []float32) { w.tables.put(s.sums[at:], table, row, cells) })
		if w.savesCodec() {
			s.codecs = [][]byte{w.client.AppendCodec(nil)}
		}
	}
	return s
}

// stateLen is the number of a state's sums.
func (w *worker) stateLen() (n int) {
	if w.o.OptimizerAt == AtWorker {
		n = len(w.state.Slots()) * w.run.Layout().Len()
		for _, rows := range w.state.RowSteps() {
			n += len(rows)
		}
	}
	if w.codec != nil {
		n += w.run.Layout().Len()
	}
	return n
}

// put writes a row of a table where it lies in v, of the tensors' layout.
func (t *tables) put(v []float32, table string, row int64, cells []float32) {
	if table == denseTable {
		at := 0
		for _, r := range t.runs {
			at += copy(v[r[0]:r[1]], cells[at:])
		}
		return
	}
	for _, x := range t.sparse {
		if x.name == table {
			copy(v[x.from+int(row)*x.cols:x.from+(int(row)+1)*x.cols], cells)
		}
	}
}

// restoreDropped gives this worker what its codec kept when the checkpoint was made, or, where that was of another number of workers, its
// share of what codecs had dropped.
func (w *worker) restoreDropped() error {
	if w.codec == nil || w.own != nil || w.o.OptimizerAt == AtWorker { // there what was dropped is of updates, and in the parameters
		return nil
	}
	saved, kept := w.run.Residual(nil), w.run.Codecs(nil)
	if saved == nil {
		return nil
	}
	if len(kept) == w.env.Workers() && w.client.SetCodec(kept[w.env.Rank]) == nil {
		return nil
	}
	rate, err := w.run.SavedRate() // which what is saved is measured in
	if err != nil {
		return err
	}
	w.client.SetRate(rate)
	share := slices.Clone(saved)
	for i := range share {
		share[i] /= float32(w.env.Workers())
	}
	if w.tables.cols > 0 {
		row := make([]float32, 0, w.tables.cols)
		for _, r := range w.tables.runs {
			row = append(row, share[r[0]:r[1]]...)
		}
		if err := w.client.Drop(denseTable, 0, row); err != nil {
			return err
		}
	}
	for _, x := range w.tables.sparse {
		for r := range x.rows {
			row := share[x.from+r*x.cols : x.from+(r+1)*x.cols]
			if !slices.ContainsFunc(row, func(v float32) bool { return v != 0 }) {
				continue
			}
			if err := w.client.Drop(x.name, int64(r), row); err != nil {
				return err
			}
		}
	}
	return nil
}

// saved makes what a checkpoint has of all workers' sums, into to, after so many updates; flat are its parameters.
func (w *worker) saved(sums []float32, to *filling, flat []float32, updates int64) (names []string, err error) {
	names = optim.NamesOf(w.rule)
	l := w.run.Layout().Len()
	n, _ := w.busy()
	if w.o.OptimizerAt == AtWorker {
		for k := range to.slots {
			copy(to.slots[k], sums[:l])
			sums = sums[l:]
		}
		for t, rows := range to.rowSteps {
			for r := range rows {
				rows[r] = rowUpdates(float64(sums[r])/float64(n), w.rowsWere[t][r], updates-w.begun, n)
			}
			sums = sums[len(rows):]
		}
		if w.codec != nil { // what it dropped is of updates: they are made
			for i, x := range sums[:l] {
				flat[i] += x
			}
		}
		if part := newPart(w.job, w.rule); part.ftrl != nil && n > 1 {
			part.settle(w.run.Layout(), flat, to.slots[0], to.slots[part.squares])
		}
		return names, nil
	}
	if w.codec == nil {
		return names, nil
	}
	to.slots = append(slices.Clip(to.slots), slices.Clone(sums[:l]))
	return append(names, residualName), nil
}

// rowUpdates is how many updates one optimizer has made of a row that n workers have stepped so often, in the mean, each from what was there, in so many
// rounds: it steps once where several workers do.
func rowUpdates(steps float64, was uint32, rounds int64, n int) uint32 {
	own := max(0, steps-float64(was))
	return was + uint32(math.Round(own*float64(n)/together(own/float64(max(1, rounds)), n)))
}

// residualName is what a checkpoint calls what codecs have dropped of gradients, at all workers together, as in package train.
const residualName = "residual"

// A teller is what a worker other than rank 0 tells of its state: as it is ("now"), and as it was at the rounds of the last snapshots.
type teller struct {
	readOnly
	w *worker

	mu    sync.Mutex
	marks map[ps.Clock]state // the last ones
	more  chan struct{}      // closed when there is one more
	told  map[string][]byte  // what is being read, by key: now, while a snapshot's may be
	done  chan struct{}      // closed once rank 0 wants no more
	over  bool
}

const (
	nowKey  = "now"
	doneKey = "done"
	// keptMarks is how many snapshots' states a worker keeps: one that came too late is followed by another.
	keptMarks = 2
)

// markKey is the key of what a worker was at a snapshot.
func markKey(at ps.Clock) string { return strconv.FormatInt(int64(at), 10) }

func newTeller(w *worker) *teller {
	return &teller{w: w, marks: map[ps.Clock]state{}, told: map[string][]byte{}, more: make(chan struct{}), done: make(chan struct{})}
}

// mark keeps a state.
func (t *teller) mark(at ps.Clock, s state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks[at] = s
	for len(t.marks) > keptMarks {
		oldest := at
		for k := range t.marks {
			oldest = min(oldest, k)
		}
		delete(t.marks, oldest)
		delete(t.told, markKey(oldest))
	}
	close(t.more)
	t.more = make(chan struct{})
}

// Get implements blob.Store.
func (t *teller) Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
	if from <= 0 {
		s, err := t.state(ctx, key)
		if err != nil {
			return nil, err
		}
		p := make([]byte, 0, 4*len(s.sums))
		for _, x := range s.sums {
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
		}
		for _, c := range s.codecs {
			p = append(p, c...)
		}
		t.mu.Lock()
		t.told[key] = p
		t.mu.Unlock()
	}
	t.mu.Lock()
	p := t.told[key]
	t.mu.Unlock()
	p = p[min(max(from, 0), int64(len(p))):]
	if length >= 0 {
		p = p[:min(length, int64(len(p)))]
	}
	return io.NopCloser(bytes.NewReader(p)), nil
}

func (t *teller) state(ctx context.Context, key string) (s state, err error) {
	switch key {
	case nowKey:
		return t.w.ownState(), nil
	case doneKey:
		t.mu.Lock()
		if !t.over {
			t.over = true
			close(t.done)
		}
		t.mu.Unlock()
		return s, nil
	}
	at, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return s, fmt.Errorf("server: %s: %w", key, fs.ErrNotExist)
	}
	for {
		t.mu.Lock()
		s, ok := t.marks[ps.Clock(at)]
		more := t.more
		t.mu.Unlock()
		if ok {
			return s, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

// wait waits until rank 0 wants no more.
func (t *teller) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// workerStream is where a worker tells its state.
func workerStream(rank int) string { return fmt.Sprintf("ps worker %d", rank) }

// tellStates has this worker's state told to rank 0; rank 0 connects to all others.
func (w *worker) tellStates() error {
	if !w.keepsOwn() || w.env.Workers() == 1 {
		return nil
	}
	open := func(rank int) (transport.Stream, error) {
		s, err := w.env.Port.Stream(workerStream(rank), transport.StreamOptions{MaxFrame: remote.Piece + 1<<16})
		if err == nil {
			w.closers = append(w.closers, s.Close)
		}
		return s, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	end := func() error { cancel(); wait.Wait(); return nil }
	if w.env.Rank != 0 {
		s, err := open(w.env.Rank)
		if err != nil {
			cancel()
			return err
		}
		w.teller = newTeller(w)
		wait.Go(func() { _ = remote.Serve(ctx, w.teller, s, remote.Options{Log: w.env.Log}) }) // ends with its context
		w.closers = append(w.closers, end)
		return nil
	}
	for rank := 1; rank < w.env.Workers(); rank++ {
		s, err := open(rank)
		if err != nil {
			cancel()
			return errors.Join(err, end())
		}
		x := remote.NewClient(s, w.env.Peers[rank])
		wait.Go(func() { _ = x.Run(ctx) })
		w.others = append(w.others, x)
	}
	w.closers = append(w.closers, end)
	return nil
}

// addStates adds the others' states of that key to s.
func (w *worker) addStates(ctx context.Context, key string, s *state) error {
	for i, x := range w.others {
		p, err := again(ctx, func() ([]byte, error) {
			r, err := x.Get(ctx, key, 0, -1)
			if err != nil {
				return nil, err
			}
			p, err := io.ReadAll(r)
			return p, errors.Join(err, r.Close())
		})
		if err != nil {
			return fmt.Errorf("server: the state of worker %d: %w", i+1, err)
		}
		n := 4 * len(s.sums)
		if len(p) < n || len(p) > n && !w.savesCodec() {
			return fmt.Errorf("server: the state of worker %d has %d bytes, want %d", i+1, len(p), n)
		}
		for k := range s.sums {
			s.sums[k] += math.Float32frombits(binary.LittleEndian.Uint32(p[4*k:]))
		}
		if w.savesCodec() {
			s.codecs = append(s.codecs, p[n:])
		}
	}
	return nil
}

// releaseWait is how long a worker that may have ended with an error is told that all is saved.
const releaseWait = 10 * time.Second

// release tells the others that no state is wanted any more, each by itself: one that is lost, or ends before its answer is here, keeps
// nobody else waiting for the word.
func (w *worker) release() {
	ctx, cancel := context.WithTimeout(w.ctx, releaseWait)
	defer cancel()
	var told sync.WaitGroup
	for i, x := range w.others {
		told.Go(func() {
			if err := sayDone(ctx, doneKey, x.Get); err != nil && w.env.Log != nil {
				w.env.Log.Debug("server: a worker is not told that all is saved", "worker", i+1, "error", err)
			}
		})
	}
	told.Wait()
	w.others = nil
}

// sayDone tells a process, which get asks, that nothing more is wanted of what it keeps for rank 0, by the object of that name.
func sayDone(ctx context.Context, key string, get func(ctx context.Context, key string, from, length int64) (io.ReadCloser, error)) error {
	_, err := again(ctx, func() (struct{}, error) {
		r, err := get(ctx, key, 0, -1)
		if err == nil {
			err = r.Close()
		}
		return struct{}{}, err
	})
	return err
}

// optimizerState makes what a checkpoint has.
func optimizerState(names []string, to *filling) *checkpoint.OptimizerState {
	return &checkpoint.OptimizerState{Names: names, Slots: to.slots, RowSteps: to.rowSteps}
}
