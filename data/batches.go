package data

import (
	"context"
	"fmt"
	"iter"

	"github.com/trivium-ml/trivium"
)

// BatchOptions says how Batches walks a data set. The zero value walks it once in index order, all rows in one batch.
type BatchOptions struct {
	Batch   int                // rows of an update; 0 and trivium.FullBatch: all rows
	Last    trivium.LastPolicy // what becomes of a short last update; empty: it is kept
	Shuffle bool               // else index order. An update of all rows is never shuffled: its sums do not depend on the order
	Seed    uint64             // of the shuffle
	Epoch   int                // of the shuffle
	From    int64              // rows of this epoch's order to pass over: where to resume

	// This reader is number Part of Parts (0 means 1). Of an update of B rows it gets the rows [⌊Part·B/Parts⌋, ⌊(Part+1)·B/Parts⌋),
	// which may be none: every part sees the same number of updates. Span is for a reader that is several parts, from Part on: so many;
	// 0 means 1, and -1 none.
	Part, Parts, Span int

	// Prefetch is the number of batches that a goroutine prepares ahead, for loops that leave a core idle. By default none: where a
	// training step keeps all cores busy, such a goroutine takes the time from them, and waits for its turn (BenchmarkBatches has the
	// figures; Run is the better way). A file that is being streamed is read ahead by a window in any case.
	Prefetch int

	// Run shares the copying of large batches out to threads: it calls f for each i of [0, n), returns when all are done, and is called by
	// the goroutine that walks the batches; a tensor.Pool's Run. nil: that goroutine copies by itself. With Prefetch it is not used.
	Run func(n int, f func(i, worker int))

	// Apart leaves long Dense rows that are resident where they lie, and names them (trivium.Input.Rows), where else they would be copied next to
	// one another: for a trivium.RowReader.
	Apart bool

	IDs bool // fill Batch.IDs: the row's place in the file or generator that it came from
}

func (o *BatchOptions) validate(rows int64) error {
	switch {
	case o.Batch < trivium.FullBatch:
		return setting("batch", "want at least 1 row, or full; found %d", o.Batch)
	case o.Last != "" && o.Last != trivium.LastKeep && o.Last != trivium.LastDrop:
		return setting("last", "want keep or drop, found %q", o.Last)
	case o.Epoch < 0:
		return setting("epoch", "want 0 or more, found %d", o.Epoch)
	case o.From < 0 || o.From > rows:
		return setting("from", "want 0 to the %d rows there are, found %d", rows, o.From)
	case o.Parts < 0 || o.Part < 0 || o.Part >= max(1, o.Parts):
		return setting("part", "want a part of %d, found %d", max(1, o.Parts), o.Part)
	case o.Span < -1 || o.Part+o.Span > max(1, o.Parts):
		return setting("span", "want at most the %d parts there are, found %d from part %d on", max(1, o.Parts), o.Span, o.Part)
	case o.Prefetch < 0:
		return setting("prefetch", "want 0 or more batches, found %d", o.Prefetch)
	}
	return nil
}

// Batches walks one epoch of ds. The batch is the iterator's own, or a view of the data set: it is valid until the next one is asked
// for. An error is the last thing yielded. The order is a pure function of (seed, epoch, rows), whatever the memory holds; the rows of
// all parts together are those of one part. In steady state a batch allocates nothing.
func Batches(ctx context.Context, ds Dataset, o BatchOptions) iter.Seq2[*trivium.Batch, error] {
	return func(yield func(*trivium.Batch, error) bool) {
		var w Walk
		if err := w.Begin(ctx, ds, o); err != nil {
			yield(nil, err)
			return
		}
		defer w.End()
		if o.Prefetch > 0 && !w.c.views {
			prefetch(ctx, &w.c, o.Prefetch, yield)
			return
		}
		for {
			b, err := w.Next(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if b == nil || !yield(b, nil) {
				return
			}
		}
	}
}

// A Walk is Batches for who walks one data set epoch after epoch: its memory serves all of them, so that an epoch of one batch
// allocates nothing either. It belongs to one goroutine. The zero value is ready; Prefetch is not used.
//
//	for epoch := range epochs {
//		Begin
//		Next, until there is no batch
//		End
//	}
type Walk struct {
	c cursor
	b trivium.Batch
}

// Begin starts an epoch of ds, which is the same in all epochs.
func (w *Walk) Begin(ctx context.Context, ds Dataset, o BatchOptions) error {
	views := w.c.views
	err := w.c.begin(ctx, ds, o)
	if w.c.views != views {
		w.b = trivium.Batch{} // nobody writes to what was a view
	}
	return err
}

// Next returns the next batch, valid until the next call; nil: the epoch is over.
func (w *Walk) Next(ctx context.Context) (*trivium.Batch, error) {
	ok, err := w.c.next(ctx, &w.b)
	if !ok || err != nil {
		return nil, err
	}
	return &w.b, nil
}

// End ends the epoch, at any batch.
func (w *Walk) End() { w.c.close() }

// prefetch runs c in a goroutine that stays up to n batches ahead, and waits for it before it returns.
func prefetch(ctx context.Context, c *cursor, n int, yield func(*trivium.Batch, error) bool) {
	type item struct {
		b   *trivium.Batch
		err error
	}
	free := make(chan *trivium.Batch, n+1)
	ready := make(chan item, n+1) // never blocks its sender: there are n+1 batches
	for range n + 1 {
		free <- new(trivium.Batch)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(ready)
		for b := range free {
			ok, err := c.next(ctx, b)
			if err != nil {
				ready <- item{nil, err}
				return
			}
			if !ok {
				return
			}
			ready <- item{b, nil}
		}
	}()
	defer func() {
		close(free)
		<-done
	}()
	for it := range ready {
		if !yield(it.b, it.err) || it.err != nil {
			return
		}
		free <- it.b
	}
}

// A cursor walks the updates of one epoch. next writes one part of one update.
type cursor struct {
	o       BatchOptions
	rows    int64
	batch   int64
	pos     int64 // of the epoch's order: where the next update starts
	views   bool  // every batch is a view of memory: index order over resident rows
	of      *memory
	viewed  viewed
	firstID int64
	order   epochOrder
	windows windowReader
	memory  memoryWindows // what windows is, where the rows are resident
	win     *window       // the current one; nil before the first
	team    *copyTeam
	winPos  int64 // position of the order that win.shuffle hands out next
}

// A viewed is what a batch holds since it was last written.
type viewed struct {
	of    *memory
	batch *trivium.Batch
	rows  rowRange
	ids   bool
}

// walkOf is a cursor at the start of a walk over so many rows, without what it reads them by.
func walkOf(o BatchOptions, rows int64) cursor {
	c := cursor{o: o, rows: rows, batch: int64(o.Batch), pos: o.From}
	if c.batch <= 0 {
		c.batch, c.o.Last = max(rows, 1), trivium.LastKeep
	}
	if c.batch >= rows && c.pos == 0 { // what is left of an epoch is what its order has left
		c.o.Shuffle = false
	}
	return c
}

// begin is the start of an epoch. What an earlier one left is used again.
func (c *cursor) begin(ctx context.Context, ds Dataset, o BatchOptions) error {
	rows := ds.Rows()
	if err := o.validate(rows); err != nil {
		return err
	}
	order, windows, team, last := c.order, c.memory, c.team, c.viewed
	*c = walkOf(o, rows)
	c.firstID, c.order, c.memory, c.team = firstID(ds), order, windows, team
	if o.Prefetch == 0 {
		c.team = c.team.of(o.Run)
	}
	if err := checkBatch(ds, min(c.batch, rows)*int64(max(1, o.Span))/int64(max(1, o.Parts))); err != nil {
		return err
	}
	m, resident := ds.(*memory)
	if resident {
		c.of = m
		if m.late != nil {
			if err := m.want(ctx, c.walked()); err != nil {
				return fmt.Errorf("data: making the rows that are walked: %w", err)
			}
		}
	}
	if resident && !c.o.Shuffle {
		c.views = true
		if last.of == m {
			c.viewed = last
		}
		return nil
	}
	c.order.begin(rows, c.o.Shuffle, o.Seed, o.Epoch)
	window, within := c.order.locate(c.pos)
	c.winPos = c.pos - within
	if resident {
		c.memory.of, c.memory.order, c.memory.next, c.memory.apart = m, &c.order, window, o.Apart
		c.windows = &c.memory
	} else {
		c.windows = startWindows(ctx, ds, &c.order, window)
	}
	return nil
}

// walked are the rows that the walk finds from where it is on: of a shuffled one all, since the next epoch will find others.
func (c *cursor) walked() iter.Seq[rowRange] {
	if c.o.Shuffle {
		return oneRange(0, c.rows)
	}
	return func(yield func(rowRange) bool) {
		for pos := c.pos; ; {
			n := c.update(pos)
			if n == 0 || !yield(c.share(pos, n)) {
				return
			}
			pos += n
		}
	}
}

// update is the number of rows of the update at pos; 0: the epoch is over.
func (c *cursor) update(pos int64) int64 {
	n := min(c.batch, c.rows-pos)
	if n <= 0 || n < c.batch && c.o.Last == trivium.LastDrop {
		return 0
	}
	return n
}

// share is where this part's rows of an update of n rows at pos are.
func (c *cursor) share(pos, n int64) rowRange {
	first, parts, span := int64(c.o.Part), int64(max(1, c.o.Parts)), int64(c.o.Span)
	if span == 0 {
		span = 1
	}
	return rowRange{pos + first*n/parts, pos + (first+max(0, span))*n/parts}
}

func (c *cursor) close() {
	if c.windows != nil {
		c.windows.close()
	}
}

// next writes this part's rows of the next update to dst; false: the epoch is over.
func (c *cursor) next(ctx context.Context, dst *trivium.Batch) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("data: reading stopped at row %d of the epoch: %w", c.pos, err)
	}
	n := c.update(c.pos)
	if n == 0 {
		return false, nil
	}
	share := c.share(c.pos, n)
	from, to := share.from, share.to
	c.pos += n
	if c.views {
		ids := dst.IDs
		if now := (viewed{c.of, dst, share, c.o.IDs}); now != c.viewed { // else it is all rows again
			c.of.rows(dst, int(from), int(to), c.team)
			c.viewed = now
		}
		if c.o.IDs && c.of.all.IDs == nil {
			dst.IDs = appendRange(ids[:0], c.firstID+from, int(to-from))
		} else if !c.o.IDs {
			dst.IDs = nil
		}
		return true, nil
	}
	return true, c.gather(ctx, dst, from, to)
}

// gather copies the rows at the positions [from, to) of the order to dst.
func (c *cursor) gather(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	emptyBatch(dst)
	for from < to || c.win == nil {
		if c.win == nil || c.win.shuffle.left() == 0 {
			w, err := c.windows.read(ctx)
			if err != nil {
				return err
			}
			c.win = w
			continue
		}
		if dst.Inputs == nil {
			c.win.shape(dst)
		}
		if skip := from - c.winPos; skip > 0 {
			n := min(int(skip), c.win.shuffle.left())
			c.win.shuffle.take(n)
			c.winPos += int64(n)
			continue
		}
		n := min(int(to-from), c.win.shuffle.left())
		local := c.win.shuffle.take(n)
		c.win.appendRows(dst, local, c.team)
		if c.o.IDs {
			c.win.appendIDs(dst, local, c.firstID)
		}
		c.winPos += int64(n)
		from += int64(n)
	}
	if dst.Inputs == nil {
		c.win.shape(dst)
	}
	return nil
}

func appendRange(dst []int64, from int64, n int) []int64 {
	for i := range n {
		dst = append(dst, from+int64(i))
	}
	return dst
}
