package data

import (
	"context"
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium"
)

// A windowReader hands out the windows of an epoch in turn. A window is valid until the next read.
type windowReader interface {
	read(ctx context.Context) (*window, error)
	close()
}

// memoryWindows makes windows of resident rows: nothing is read.
type memoryWindows struct {
	of    *memory
	order *epochOrder
	next  int64
	apart bool
	win   window
}

func (m *memoryWindows) read(context.Context) (*window, error) {
	m.win.lay(m.order, m.next, func(int) *trivium.Batch { return &m.of.all })
	m.win.pixels, m.win.apart = m.of.pixels, m.apart
	for i := range m.win.slots {
		m.win.slots[i].start = int(m.win.slots[i].id)
	}
	m.next++
	return &m.win, nil
}

func (m *memoryWindows) close() {}

// lay fills w's slots for a window of the order, with the batch that holds each.
func (w *window) lay(o *epochOrder, number int64, batch func(slot int) *trivium.Batch) {
	w.slots, w.rows = w.slots[:0], w.rows[:0]
	for b := number * windowBlocks; b < min((number+1)*windowBlocks, o.numBlocks()); b++ {
		from, rows := o.block(b)
		w.slots = append(w.slots, slot{batch: batch(len(w.slots)), id: from})
		w.rows = append(w.rows, rows)
	}
	w.shuffle.reset(o, number, w.rows)
}

// streamWindows reads windows of a data set that is not in memory, one ahead of its user: two are resident.
type streamWindows struct {
	ready  chan loaded
	free   chan *streamWindow
	cancel context.CancelFunc
	held   *streamWindow // what the user looks at
	wg     sync.WaitGroup
}

type streamWindow struct {
	window
	batches [windowBlocks]trivium.Batch
}

type loaded struct {
	w   *streamWindow
	err error
}

func startWindows(ctx context.Context, ds Dataset, o *epochOrder, first int64) *streamWindows {
	ctx, cancel := context.WithCancel(ctx)
	s := &streamWindows{ready: make(chan loaded, 1), free: make(chan *streamWindow, 2), cancel: cancel}
	s.free <- new(streamWindow)
	s.free <- new(streamWindow)
	s.wg.Go(func() {
		defer close(s.ready)
		for n := first; n < o.numWindows(); n++ {
			var w *streamWindow
			select {
			case w = <-s.free:
			case <-ctx.Done():
				return
			}
			err := w.load(ctx, ds, o, n)
			select {
			case s.ready <- loaded{w, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return s
}

// load reads the blocks of one window, several at a time.
func (w *streamWindow) load(ctx context.Context, ds Dataset, o *epochOrder, number int64) error {
	w.lay(o, number, func(slot int) *trivium.Batch { return &w.batches[slot] })
	return parallel(ctx, int64(len(w.slots)), 1, func(i, _ int64) error {
		s := &w.slots[i]
		return ds.Read(ctx, s.batch, s.id, s.id+int64(w.rows[i]))
	})
}

func (s *streamWindows) read(ctx context.Context) (*window, error) {
	if s.held != nil {
		s.free <- s.held
		s.held = nil
	}
	l, ok := <-s.ready
	if !ok {
		return nil, fmt.Errorf("data: reading stopped before the end of the epoch: %w", ctx.Err())
	}
	if l.err != nil {
		return nil, l.err
	}
	s.held = l.w
	return &l.w.window, nil
}

func (s *streamWindows) close() {
	s.cancel()
	s.wg.Wait()
}
