package ps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// A Store is where snapshots rest. A blob.Store is one.
type Store interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error)
}

// A boundStore is a Store whose calls end with ctx: the machines whose commands make them have none.
type boundStore struct {
	ctx context.Context
	s   Store
}

func (b boundStore) Put(_ context.Context, key string, r io.Reader) error {
	return b.s.Put(b.ctx, key, r)
}

func (b boundStore) Get(_ context.Context, key string, from, length int64) (io.ReadCloser, error) {
	return b.s.Get(b.ctx, key, from, length)
}

// An image is a shard as it is now, to be written while the shard goes on.
type image interface {
	object(o *object)
	encode() []byte
	free() // the memory is the shard's again
}

// image takes an image of the cut: what the fork has, else what is live.
func (s *shard[T]) image() image {
	if s.live == nil {
		m := &rowsImage[T]{t: s.t, index: s.index, rows: slices.Clone(s.rows)}
		for i, f := range s.forks {
			m.rows[i] = f
		}
		s.forks = nil
		s.freeze++ // whoever changes a row from now on copies it first
		return m
	}
	m := &cellsImage[T]{t: s.t, lo: s.lo, hi: s.hi}
	if s.fork != nil {
		m.data, s.fork = s.fork, nil
		m.data.hold.n.Add(1)
		return m
	}
	m.data = &data[T]{cells: s.live.cells, steps: slices.Clone(s.live.steps), hold: s.live.hold}
	for _, v := range s.live.slots {
		m.data.slots = append(m.data.slots, slices.Clone(v))
	}
	m.data.hold.n.Add(1)
	return m
}

// merge gives up a cut that will not be: what is live goes on.
func (s *shard[T]) merge() { s.fork, s.forks = nil, nil }

type cellsImage[T Number] struct {
	t      *table
	lo, hi int64
	data   *data[T]
}

func (m *cellsImage[T]) free() { m.data.hold.n.Add(-1) }

func (m *cellsImage[T]) object(o *object) { o.Form, o.Lo, o.Hi = "cells", m.lo, m.hi }

func (m *cellsImage[T]) encode() []byte {
	size := 64 + 4*len(m.data.steps) + len(m.data.cells)*(m.t.spec.Cell.Size()+4*len(m.data.slots)) + 10*len(m.data.slots)
	p := append(make([]byte, 0, size), objectMagic...)
	p = append(p, byte(m.t.spec.Cell))
	p = wire.AppendUvarint(p, uint64(len(m.data.slots)))
	p = wire.AppendUint64(p, uint64(m.lo))
	p = wire.AppendUint64(p, uint64(m.hi))
	p = wire.AppendUvarint(p, uint64(len(m.data.steps)))
	for _, x := range m.data.steps {
		p = wire.AppendUint32(p, x)
	}
	p = wire.AppendBytes(p, raw.Bytes(m.data.cells))
	for _, v := range m.data.slots {
		p = wire.AppendBytes(p, raw.Bytes(v))
	}
	return p
}

type rowsImage[T Number] struct {
	t     *table
	index int
	rows  []*row[T]
}

func (m *rowsImage[T]) free() {}

func (m *rowsImage[T]) object(o *object) {
	o.Form, o.Lo, o.Hi = "rows", int64(m.index), int64(m.t.cut.shards)
}

func (m *rowsImage[T]) encode() []byte {
	p := append([]byte(nil), objectMagic...)
	p = append(p, byte(m.t.spec.Cell))
	slots := 0
	if len(m.rows) > 0 {
		slots = len(m.rows[0].slots)
	}
	p = wire.AppendUvarint(p, uint64(slots))
	for _, r := range m.rows {
		p = wire.AppendUint64(p, uint64(r.row))
		p = wire.AppendUint64(p, uint64(r.from))
		p = wire.AppendUint32(p, r.steps)
		p = wire.AppendUvarint(p, uint64(len(r.cells)))
		if m.t.spec.Sparse {
			p = wire.AppendBytes(p, raw.Bytes(r.cols))
		}
		p = wire.AppendBytes(p, raw.Bytes(r.cells))
		for _, v := range r.slots {
			p = wire.AppendBytes(p, raw.Bytes(v))
		}
	}
	return p
}

// restore takes what is this shard's from an object.
func (s *shard[T]) restore(p []byte, o *object) error {
	r := wire.NewReader("ps object "+o.Key, p)
	readMagic(r, objectMagic)
	if c := Cell(r.Uvarint("cell", uint64(Int64))); c != s.t.spec.Cell {
		r.Fail("cell", fmt.Errorf("want %s, found %s", s.t.spec.Cell, c))
	}
	slots := int(r.Uvarint("slots", 8))
	want := 0
	if s.t.opt != nil {
		want = s.t.opt.Slots()
	}
	if o.Form == "cells" {
		if slots != want {
			r.Fail("slots", fmt.Errorf("the optimizer has %d, found %d", want, slots))
		}
		return s.restoreCells(r, slots)
	}
	for r.Err() == nil && len(r.Rest()) > 0 {
		id, from, steps := int64(r.Uint64("row")), int64(r.Uint64("column")), r.Uint32("steps")
		n := int(r.Uvarint("cells", wire.MaxFrame))
		var cols []int64
		if s.t.spec.Sparse {
			cols = raw.Of[int64](rawBytes(r, "columns", 8*n))
		}
		cells := raw.Of[T](rawBytes(r, "cells", n*s.t.spec.Cell.Size())) // restoreRow copies what is this shard's
		var vs [][]float32
		for range slots {
			vs = append(vs, raw.Of[float32](rawBytes(r, "slot", 4*n)))
		}
		switch sp := &s.t.spec; {
		case r.Err() != nil:
		case s.live != nil || sp.Rows > 0 && (id < 0 || id >= sp.Rows) || from < 0 || !sp.Sparse && from > sp.Cols-int64(n) || !ascending(cols, sp.Cols):
			r.Fail("row", fmt.Errorf("row %d from column %d has %d cells", id, from, n))
		case n > 0 && slots != want:
			r.Fail("slots", fmt.Errorf("the optimizer has %d, found %d", want, slots))
		default:
			s.restoreRow(id, from, steps, cols, cells, vs)
		}
	}
	return r.Err()
}

// ascending reports whether cols are columns of a row of n cells, in order.
func ascending(cols []int64, n int64) bool {
	last := int64(-1)
	for _, c := range cols {
		if c <= last || c >= n {
			return false
		}
		last = c
	}
	return true
}

// restoreRow takes what is this shard's from a run of a row's cells, which other numbers of servers may have cut elsewhere. cols are those
// of a sparse row; a dense one has all from from on.
func (s *shard[T]) restoreRow(id, from int64, steps uint32, cols []int64, cells []T, slots [][]float32) {
	colOf := func(i int) int64 { return from + int64(i) }
	if s.t.spec.Sparse {
		colOf = func(i int) int64 { return cols[i] }
	}
	for i, j := 0, 0; i < len(cells); i = j {
		shard, _, to := s.t.cut.segment(id, colOf(i))
		for j < len(cells) && colOf(j) < to { // those of one segment
			j++
		}
		if shard != s.index {
			continue
		}
		x := s.rows[s.findOrMake(id, colOf(i))]
		x.steps = max(x.steps, steps)
		at := int(colOf(i) - x.from)
		if s.t.spec.Sparse {
			s.ensure(x, cols[i:j])
			s.places(x, cols[i:j])
		}
		for k := i; k < j; k++ {
			to := at + k - i
			if s.t.spec.Sparse {
				to = int(s.at[k-i])
			}
			x.cells[to] = cells[k]
			for v := range slots {
				x.slots[v][to] = slots[v][k]
			}
		}
	}
}

func (s *shard[T]) restoreCells(r *wire.Reader, slots int) error {
	lo, hi := int64(r.Uint64("lo")), int64(r.Uint64("hi"))
	if r.Err() == nil && (s.live == nil || lo < 0 || lo > hi || hi-lo > int64(len(r.Rest()))) {
		r.Fail("hi", fmt.Errorf("cells %d to %d", lo, hi))
	}
	steps := readSteps(r)
	a, b := max(lo, s.lo), min(hi, s.hi)
	cells := rawBytes(r, "cells", int(hi-lo)*s.t.spec.Cell.Size())
	if r.Err() == nil && a < b {
		copy(s.live.cells[a-s.lo:b-s.lo], raw.Of[T](cells)[a-lo:b-lo])
	}
	for k := range slots {
		v := rawBytes(r, "slot", 4*int(hi-lo))
		if r.Err() == nil && a < b {
			copy(s.live.slots[k][a-s.lo:b-s.lo], raw.Of[float32](v)[a-lo:b-lo])
		}
	}
	if r.Err() == nil && a < b && s.live.steps != nil {
		cols := s.t.spec.Cols
		for row := a / cols; row <= (b-1)/cols; row++ {
			if i := row - lo/cols; int(i) < len(steps) {
				s.live.steps[row-s.first] = steps[i]
			}
		}
	}
	return r.Done()
}

// A laneCut is the snapshot under way at a lane.
type laneCut struct {
	Cut
	taken bool // the images are out
	saved bool // and written
	job   *saveJob
}

// saves writes one snapshot after the other. A cut that was put off may still be being written when the next one is taken; were the two
// written side by side, a Store that keeps the newest alone could take the older one for it.
type saves struct {
	running, next *saveJob
}

// A saveJob writes images while the lane goes on.
type saveJob struct {
	store  Store
	prefix string
	images []image
	tables []uint32
	result saved
}

// The numbers of Compute commands: saves are even, loads odd.
func saveID(cut uint64) uint64   { return cut << 1 }
func loadID(table uint32) uint64 { return uint64(table)<<1 | 1 }

// setCut makes c the cut, and reports whether it is too late for it: a round beyond it is applied.
func (s *ServerState) setCut(c Cut) (late bool) {
	if !s.cut.taken && s.cut.At != 0 { // given up, or put off: what was held apart is live again
		for _, t := range s.tables {
			for _, k := range t.here {
				t.shards[k].merge()
			}
		}
	}
	s.cut = laneCut{Cut: c}
	if c.At == 0 {
		return false
	}
	beyond := s.hi > c.At || s.m > c.At
	for _, x := range s.clients {
		beyond = beyond || len(x.early) > 0 && x.next >= c.At
	}
	if beyond {
		s.cut.taken = true // nothing is held apart for it
		return true
	}
	s.checkCut()
	return false
}

// checkCut takes the images once every round of the cut is applied.
func (s *ServerState) checkCut() {
	if s.cut.At == 0 || s.cut.taken || s.m < s.cut.At {
		return
	}
	s.cut.taken = true
	j := &saveJob{store: s.o.Store, prefix: cutPrefix(s.config.Session, s.cut.Cut), result: saved{cut: s.cut.ID, lane: s.self}}
	for _, t := range s.tables {
		for _, k := range t.here {
			j.images = append(j.images, t.shards[k].image())
			j.tables = append(j.tables, t.id)
		}
	}
	s.cut.job = j
	if s.saves.next != nil { // nobody waits for it any more
		s.saves.next.free()
	}
	s.saves.next = j
	s.save()
}

// save begins to write the images that are next, once those before them are written.
func (s *ServerState) save() {
	if s.saves.running != nil || s.saves.next == nil {
		return
	}
	j := s.saves.next
	s.saves = saves{running: j}
	s.out = append(s.out, protocol.Compute{ID: saveID(j.result.cut), For: time.Millisecond, Work: j.run})
}

// cutPrefix begins the keys of a snapshot: with the directory's session, since jobs that go on from one snapshot, or begin anew, may share a
// store, and each numbers its cuts from 1.
func cutPrefix(session uint64, c Cut) string {
	return fmt.Sprintf("ps-%012d.%016x.%d", c.At, session, c.ID)
}

func (j *saveJob) run() {
	if err := j.write(); err != nil {
		j.result.text = "ps: snapshot: " + err.Error()
	}
	j.free()
}

// write writes the images, and then the index of them.
func (j *saveJob) write() error {
	if j.store == nil {
		return errors.New("this server has no store: set ServerOptions.Store")
	}
	if len(j.images) == 0 {
		return nil
	}
	objects := make([]*object, len(j.images))
	for i, m := range j.images {
		o := &object{Table: j.tables[i]}
		m.object(o)
		o.Key = fmt.Sprintf("%s/t%05d.%s-%d-%d", j.prefix, o.Table, o.Form, o.Lo, o.Hi)
		if err := put(j.store, &o.file, m.encode()); err != nil {
			return err
		}
		objects[i] = o
	}
	j.result.index.Key = fmt.Sprintf("%s/index-%05d", j.prefix, j.result.lane)
	return put(j.store, &j.result.index, appendIndex(nil, objects))
}

// free gives the images' memory back.
func (j *saveJob) free() {
	for _, m := range j.images {
		m.free()
	}
	j.images = nil
}
