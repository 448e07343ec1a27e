package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob/remote"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
)

// cutKey is the object that is a new snapshot's manifest, at the first server: whoever reads it has it taken.
const cutKey = "cut"

// A cutStore is what a server tells: its optimizer's state as it is now, and what its lanes wrote of a snapshot, in memory, until rank 0 has read it.
type cutStore struct {
	readOnly
	state func() ([]byte, error) // the optimizer's, as it is now
	mu    sync.Mutex
	now   []byte            // what is read of it: as it was when its first byte was asked for
	d     *ps.Directory     // of the first server; else nil
	cut   uint64            // the number of the newest snapshot that any lane wrote
	objs  map[string][]byte // of that one
	tell  []byte            // the manifest that is being read
}

// snapshot makes d the directory that takes snapshots.
func (s *cutStore) snapshot(d *ps.Directory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d = d
}

// Put implements ps.Store: an object of a snapshot; those of an earlier one go. One of an earlier one is not kept: a lane may still write a
// snapshot that was put off, while another has written the next.
func (s *cutStore) Put(_ context.Context, key string, r io.Reader) error {
	cut, err := cutOf(key)
	if err != nil {
		return err
	}
	p, err := readAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cut < s.cut {
		return nil
	}
	if cut > s.cut || s.objs == nil {
		s.cut, s.objs = cut, map[string][]byte{}
	}
	s.objs[key] = p
	return nil
}

// readAll reads r, which may be as large as all tables are: without room to grow, where its length is known.
func readAll(r io.Reader) ([]byte, error) {
	if x, ok := r.(interface{ Len() int }); ok {
		p := make([]byte, x.Len())
		_, err := io.ReadFull(r, p)
		return p, err
	}
	return io.ReadAll(r)
}

// forget lets go of what rank 0 has read, and reports whether that is what a key means.
func (s *cutStore) forget(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch key {
	case doneKey:
		s.objs, s.tell = nil, nil
	case stateDoneKey:
		s.now = nil
	default:
		return false
	}
	return true
}

// cutOf is the number of the snapshot that has an object of that key, such as ps-000000000017.52fdfc072182654f.3/manifest.json.
func cutOf(key string) (uint64, error) {
	prefix, _, _ := strings.Cut(key, "/")
	cut, err := strconv.ParseUint(prefix[strings.LastIndexByte(prefix, '.')+1:], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("server: %q is the key of no snapshot's object", key)
	}
	return cut, nil
}

// Get implements ps.Store and blob.Store.
func (s *cutStore) Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
	if s.forget(key) {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	p, err := s.object(ctx, key, from)
	if err != nil {
		return nil, err
	}
	p = p[min(max(from, 0), int64(len(p))):]
	if length >= 0 {
		p = p[:min(length, int64(len(p)))]
	}
	return io.NopCloser(bytes.NewReader(p)), nil
}

func (s *cutStore) object(ctx context.Context, key string, from int64) ([]byte, error) {
	if key == stateKey {
		return s.told(from)
	}
	s.mu.Lock()
	d, p := s.d, s.objs[key]
	if key == cutKey && from > 0 {
		p = s.tell
	}
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	if key != cutKey || d == nil {
		return nil, fmt.Errorf("server: %s: %w", key, fs.ErrNotExist)
	}
	r, err := d.Snapshot(ctx, s) // it comes once every worker is there
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = s.objs[r.Key]
	return s.tell, nil
}

func (s *cutStore) told(from int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from <= 0 {
		p, err := s.state()
		if err != nil {
			return nil, err
		}
		s.now = p
	}
	return s.now, nil
}

// A cutting is rank 0's part in checkpoints that are taken while training goes on: it asks for a snapshot, remembers what it was itself
// at each round that may be the snapshot's, and makes a checkpoint of the two, which is read beside training and saved between two updates.
type cutting struct {
	w     *worker
	marks map[ps.Clock]mark
	late  []late          // rounds that were reached, and are not marked yet
	ctx   context.Context // of the request under way
	stop  func()          // gives it up
	found chan snapshot   // nil: there is no request
	read  chan reading    // of the snapshot that was found; nil: none was
	asked sync.WaitGroup  //
}

// A late is a round that was reached, in a step whose end is not known yet, or at that place.
type late struct {
	clock ps.Clock
	step  bool
	at    checkpoint.Progress
}

// A mark is what rank 0 was at a round.
type mark struct {
	at    checkpoint.Progress
	state state // what it kept itself
}

type snapshot struct {
	manifest *ps.Manifest
	states   state // of the other workers
	err      error
}

// A reading is what a snapshot comes to.
type reading struct {
	cut train.Cut
	err error
}

// begin asks for a snapshot, unless one is under way.
func (c *cutting) begin(context.Context) error {
	if c.found != nil {
		return nil
	}
	w := c.w
	ctx, cancel := context.WithCancel(w.ctx)
	c.ctx, c.stop, c.found, c.marks = ctx, cancel, make(chan snapshot, 1), map[ps.Clock]mark{}
	found := c.found
	c.asked.Go(func() {
		m, err := again(ctx, func() (*ps.Manifest, error) { return ps.ReadManifest(ctx, w.cluster, cutKey) })
		var s state
		if err == nil && w.keepsOwn() {
			s.sums = make([]float32, w.stateLen())
			err = w.addStates(ctx, markKey(m.Clock), &s)
		}
		found <- snapshot{m, s, err}
	})
	return nil
}

// reached is called within Clock, at a round that may be the snapshot's. It is marked when its step ends, or else before the next begins:
// then it is known what was dropped of it, and the worker's own state has not changed.
func (c *cutting) reached() []byte {
	c.late = append(c.late, late{c.w.w.Now(), c.w.stepping, c.w.run.At()})
	return nil
}

// note marks the rounds that were reached.
func (c *cutting) note() {
	for _, x := range c.late {
		m := mark{at: x.at}
		if x.step {
			m.at = c.w.run.At()
		}
		if c.w.keepsOwn() {
			m.state = c.w.ownState()
		}
		if c.w.teller != nil {
			c.w.teller.mark(x.clock, m.state)
		} else if c.marks != nil {
			c.marks[x.clock] = m
		}
	}
	c.late = c.late[:0]
}

// stepped ends a step: what it reached is marked, a snapshot that has come is read from now on, and one that was read is saved.
func (c *cutting) stepped() error {
	c.note()
	select {
	case s := <-c.found: // a nil channel has nothing
		err := s.err
		if err == nil {
			err = c.begun(s)
		}
		if err != nil {
			c.end()
			return fmt.Errorf("server: a checkpoint: %w", err)
		}
	case r := <-c.read:
		c.end()
		if r.err != nil {
			return c.w.failure(r.err)
		}
		return c.w.run.SaveCut(c.w.ctx, r.cut)
	default:
	}
	return nil
}

// begun reads a snapshot beside training.
func (c *cutting) begun(s snapshot) error {
	w := c.w
	m, ok := c.marks[s.manifest.Clock]
	if !ok {
		return fmt.Errorf("the snapshot is of round %d, where this worker was not", s.manifest.Clock)
	}
	m.state.add(s.states)
	c.marks = nil // the snapshot is taken
	ctx, read := c.ctx, make(chan reading, 1)
	params := trivium.Params{Layout: w.run.Layout(), Flat: slices.Clone(w.run.Params.Flat)}
	to := newFilling(w.state)
	c.read = read
	c.asked.Go(func() {
		x, err := w.readCut(ctx, s.manifest, m, params, to)
		read <- reading{x, err}
	})
	return nil
}

// end gives up what is under way.
func (c *cutting) end() {
	if c.found != nil {
		c.stop()
		c.asked.Wait()
		c.found, c.read, c.marks = nil, nil, nil
	}
}

// readCut makes a checkpoint of a snapshot, in params and to.
func (w *worker) readCut(ctx context.Context, m *ps.Manifest, at mark, params trivium.Params, to *filling) (x train.Cut, err error) {
	_, err = again(ctx, func() (struct{}, error) {
		if w.own != nil {
			return struct{}{}, w.own.restore(ctx, w.cluster, m, params)
		}
		return struct{}{}, w.restore(ctx, m, params.Flat, to, at.at.Step-w.begun)
	})
	if err == nil {
		err = w.forget(ctx, doneKey)
	}
	if err != nil {
		return x, err
	}
	names := optim.NamesOf(w.rule)
	if w.keepsOwn() {
		if names, err = w.saved(at.state.sums, to, params.Flat, at.at.Step); err != nil {
			return x, err
		}
	}
	return train.Cut{Params: params, Progress: at.at, Optimizer: optimizerState(names, to), Codecs: at.state.codecs}, nil
}

// again repeats what reads from another process while a link breaks under it; who is lost ends ctx.
func again[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		x, err := read()
		if _, lost := errors.AsType[*remote.LostError](err); !lost {
			return x, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return x, err
		}
	}
}
