package ps

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

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

// An object is what one shard was at the cut, as it lies in the store. It says which cells it has, so that any number of servers can
// take theirs from it.
type object struct {
	Key    string `json:"key"`
	Table  uint32 `json:"table"`
	Form   string `json:"form"` // "cells": Lo to Hi of all rows laid end to end; "rows": those of shard Lo of Hi
	Lo     int64  `json:"lo"`
	Hi     int64  `json:"hi"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const maxKey = 512

func (o *object) append(p []byte) []byte {
	p = wire.AppendString(p, o.Key)
	p = wire.AppendUvarint(p, uint64(o.Table))
	p = wire.AppendString(p, o.Form)
	p = wire.AppendUvarint(p, uint64(o.Lo))
	p = wire.AppendUvarint(p, uint64(o.Hi))
	p = wire.AppendUvarint(p, uint64(o.Size))
	return wire.AppendString(p, o.SHA256)
}

func readObject(r *wire.Reader) *object {
	return &object{
		Key: r.String("key", maxKey), Table: uint32(r.Uvarint("table", maxTables)), Form: r.String("form", 8),
		Lo: int64(r.Uvarint("lo", math.MaxInt64)), Hi: int64(r.Uvarint("hi", math.MaxInt64)), Size: int64(r.Uvarint("size", math.MaxInt64)),
		SHA256: r.String("sha256", 64),
	}
}

// An image is a shard as it is now, to be written while the shard goes on.
type image interface {
	object(o *object)
	encode() []byte
	free() // the memory is the shard's again
}

const objectMagic = "trivium ps 1\n"

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
	p := append([]byte(nil), objectMagic...)
	p = append(p, byte(m.t.spec.Cell))
	p = wire.AppendUvarint(p, uint64(len(m.data.slots)))
	p = wire.AppendUint64(p, uint64(m.lo))
	p = wire.AppendUint64(p, uint64(m.hi))
	p = wire.AppendUvarint(p, uint64(len(m.data.steps)))
	for _, x := range m.data.steps {
		p = wire.AppendUint32(p, x)
	}
	p = wire.AppendBytes(slices.Grow(p, 64+len(m.data.cells)*(m.t.spec.Cell.Size()+4*len(m.data.slots))), asBytes(m.data.cells))
	for _, v := range m.data.slots {
		p = wire.AppendBytes(p, asBytes(v))
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
			p = wire.AppendBytes(p, asBytes(r.cols))
		}
		p = wire.AppendBytes(p, asBytes(r.cells))
		for _, v := range r.slots {
			p = wire.AppendBytes(p, asBytes(v))
		}
	}
	return p
}

// restore takes what is this shard's from an object.
func (s *shard[T]) restore(p []byte, o *object) error {
	r := wire.NewReader("ps object "+o.Key, p)
	for _, c := range []byte(objectMagic) {
		if r.Uvarint("magic", 127) != uint64(c) {
			r.Fail("magic", errors.New("this is no object of a snapshot"))
		}
	}
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
			cols = asCells[int64](rawBytes(r, "columns", 8*n))
		}
		cells := asCells[T](rawBytes(r, "cells", n*s.t.spec.Cell.Size())) // restoreRow copies what is this shard's
		var vs [][]float32
		for range slots {
			vs = append(vs, asCells[float32](rawBytes(r, "slot", 4*n)))
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
	steps := make([]uint32, 0, 16)
	for n := r.Uvarint("segments", uint64(len(r.Rest()))); n > 0 && r.Err() == nil; n-- {
		steps = append(steps, r.Uint32("steps"))
	}
	a, b := max(lo, s.lo), min(hi, s.hi)
	cells := rawBytes(r, "cells", int(hi-lo)*s.t.spec.Cell.Size())
	if r.Err() == nil && a < b {
		copy(s.live.cells[a-s.lo:b-s.lo], asCells[T](cells)[a-lo:b-lo])
	}
	for k := range slots {
		v := rawBytes(r, "slot", 4*int(hi-lo))
		if r.Err() == nil && a < b {
			copy(s.live.slots[k][a-s.lo:b-s.lo], asCells[float32](v)[a-lo:b-lo])
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
	j := &saveJob{store: s.o.Store, prefix: cutPrefix(s.cut.Cut), result: saved{cut: s.cut.ID, lane: s.self}}
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

func cutPrefix(c Cut) string { return fmt.Sprintf("ps-%012d.%d", c.At, c.ID) }

func (j *saveJob) run() {
	if j.store == nil {
		j.result.text = "ps: snapshot: this server has no store: set ServerOptions.Store"
	}
	for i, m := range j.images {
		if j.result.text == "" {
			o := &object{Table: j.tables[i]}
			m.object(o)
			o.Key = fmt.Sprintf("%s/t%05d.%s-%d-%d", j.prefix, o.Table, o.Form, o.Lo, o.Hi)
			if err := put(j.store, o, m.encode()); err != nil {
				j.result.text = fmt.Sprintf("ps: snapshot: %s: %v", o.Key, err)
			}
			j.result.objects = append(j.result.objects, o)
		}
	}
	j.free()
}

// free gives the images' memory back.
func (j *saveJob) free() {
	for _, m := range j.images {
		m.free()
	}
	j.images = nil
}

func put(s Store, o *object, p []byte) error {
	sum := sha256.Sum256(p)
	o.Size, o.SHA256 = int64(len(p)), hex.EncodeToString(sum[:])
	return s.Put(context.Background(), o.Key, bytes.NewReader(p))
}

// fetch reads an object and compares its checksum.
func fetch(s Store, o *object) ([]byte, error) {
	r, err := s.Get(context.Background(), o.Key, 0, o.Size+1)
	if err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", o.Key, err)
	}
	p, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", o.Key, err)
	}
	if sum := sha256.Sum256(p); int64(len(p)) != o.Size || hex.EncodeToString(sum[:]) != o.SHA256 {
		return nil, fmt.Errorf("ps: restore %s: it is damaged: want %d bytes with SHA-256 %s, found %d with %x", o.Key, o.Size, o.SHA256, len(p), sum)
	}
	return p, nil
}

// A loadJob reads the objects that a table's shards here begin with.
type loadJob struct {
	store   Store
	table   *laneTable
	objects []*object
	err     error
}

func (s *ServerState) loadCommand(t *laneTable, d *Definition) protocol.Command {
	j := &loadJob{store: s.o.Store, table: t}
	for _, o := range d.From {
		overlaps := o.Form != "cells"
		for _, k := range t.here {
			if t.cut.bounds != nil && o.Lo < t.cut.bounds[k+1] && o.Hi > t.cut.bounds[k] {
				overlaps = true
			}
		}
		if overlaps {
			j.objects = append(j.objects, o)
		}
	}
	if s.jobs == nil {
		s.jobs = map[uint64]*loadJob{}
	}
	s.jobs[loadID(t.id)] = j
	return protocol.Compute{ID: loadID(t.id), For: time.Millisecond, Work: j.run}
}

// run restores shards that nobody else uses yet.
func (j *loadJob) run() {
	for _, o := range j.objects {
		p, err := fetch(j.store, o)
		for _, k := range j.table.here {
			if err == nil {
				err = j.table.shards[k].restore(p, o)
			}
		}
		if err != nil {
			j.err = err
			return
		}
	}
}

// computed hears that a save or a load has ended.
func (s *ServerState) computed(id uint64) {
	if id&1 == 0 {
		j := s.saves.running
		s.saves.running = nil
		if j == s.cut.job {
			s.cut.saved = true
			s.send(s.p.Directory, &j.result)
		}
		s.save()
		return
	}
	j := s.jobs[id]
	if j == nil {
		return
	}
	delete(s.jobs, id)
	s.loads--
	if j.err != nil && s.fatal == "" {
		s.fatal = j.err.Error()
	}
	if s.loads == 0 && s.owed {
		s.owed = false
		s.accept(s.config.Version, false)
		s.advance()
		s.unpark()
	}
}

// rawBytes reads n bytes with their length before them.
func rawBytes(r *wire.Reader, field string, n int) []byte {
	p := r.Bytes(field, math.MaxInt)
	if r.Err() == nil && len(p) != n {
		r.Fail(field, fmt.Errorf("want %d bytes, found %d", n, len(p)))
		return nil
	}
	return p
}
