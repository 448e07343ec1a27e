package ps

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// samples are messages of every kind.
func samples() []protocol.Body {
	rows := section{table: 1, shard: 2, form: formRows, rows: []int64{-1, 5}, n: 4, cells: make([]byte, 16), version: 9, list: 3}
	cells := section{form: formCells, rows: []int64{1, 2}, ends: []int64{1, 3}, cols: []int64{4, 0, 7}, n: 3, cells: make([]byte, 12)}
	run := section{form: formRange, row: 1 << 40, from: 3, n: 2, cells: make([]byte, 8), part: 17, mark: true}
	listed := section{form: formRows, list: 4, listed: true, n: 1, cells: make([]byte, 4)}
	st := status{lane: 1, epoch: 2, m: 3, own: 4, piece: 5, gap: 1, holder: 6, gen: 7, pushes: 8, pushed: 9}
	spec := Spec{Name: "t", Rows: 3, Cols: 4, Mode: BSP, Optimizer: "sgd rate=0.1", Tensors: []trivium.Spec{{Name: "w", Shape: []int{2, 2}, Decay: 1}}}
	at := file{Key: "a/b", Size: 3, SHA256: "ab"}
	c := &Config{
		Version: 1, Epoch: 2, Place: 3, Session: 4, Clients: []Member{{Name: clientName(1), Session: 3, Start: 4, State: Ended, End: 5}},
		Tables: []Definition{{Spec: spec, Owners: []uint16{1}, By: clientName(1), Saved: true}}, From: at, Cut: Cut{1, 2},
	}
	return []protocol.Body{
		&batch{lane: 1, client: 2, session: 3, epoch: 4, stamp: 5, piece: 6, last: true, finish: true, weights: []weight{{1, 2}}, secs: []section{rows, cells, run}, drop: []section{run}},
		&batch{secs: []section{listed}},
		&batch{codec: "f16", last: true, prompt: true, asks: true, secs: []section{{form: formRange, n: 2, cells: []byte{1, 2, 3, 4}, coded: true}}},
		&pull{lane: 1, client: 2, session: 3, epoch: 4, id: 5, need: 6, own: 7, subscribe: true, gen: 8, secs: []section{rows}},
		&probe{lane: 1, client: 2, session: 3, epoch: 4, gen: 5, stamp: 6, piece: 7, held: 8, m: 9},
		&have{lane: 1, to: 2, epoch: 3, version: 5, complete: 4, reply: true},
		&values{status: st, id: 1, pieces: 2, piece: 1, sub: true, secs: []section{rows, run}},
		&clocks{st},
		&refused{req: 1, directory: 5, text: "no"},
		&behind{lane: 1, session: 2, own: 3, m: 4},
		&install{config: c}, &install{lane: true, to: 3, accepted: 7, config: c},
		&hello{name: clientName(1), session: 2, specs: []Spec{spec}},
		&create{client: 1, session: 2, req: 3, spec: spec},
		&accept{version: 1, lane: 2, client: 3, isClient: true, session: 4, refused: true, forgot: true, text: "x", m: 5, hi: 6, ends: []Clock{7}},
		&progress{cut: 1, client: 2, session: 3, states: [][]byte{{1}, nil}, text: "x"},
		&saved{cut: 1, lane: 2, text: "x", index: at},
	}
}

// coded is a message's kind and bytes.
func coded(b protocol.Body) (kind uint8, head, payload []byte) {
	var x parcels
	p := x.encode(b)
	return p.kind, bytes.Clone(p.head), bytes.Clone(p.payload)
}

func TestCodec(t *testing.T) {
	for _, m := range samples() {
		kind, head, payload := coded(m)
		b, err := decode(kind, head, payload, nil)
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		k2, h2, p2 := coded(b)
		if k2 != kind || !bytes.Equal(h2, head) || !bytes.Equal(p2, payload) {
			t.Errorf("%T comes back as another", m)
		}
		for n := range head { // cut short, it is refused or read without harm
			_, _ = decode(kind, head[:n], payload, nil)
		}
		for n := range payload {
			if _, err := decode(kind, head, payload[:n], nil); err == nil {
				t.Errorf("%T with %d of %d bytes is taken", m, n, len(payload))
			}
		}
	}
}

// FuzzDecode gives any bytes to the decoders, and what they let through to a lane, a client and a directory: none may fall over.
func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		kind, head, payload := coded(m)
		f.Add(kind, head, payload)
	}
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}
	specs := []Spec{{Name: "a", Rows: 3, Cols: 4}, {Name: "b", Cols: 100, Sparse: true, Mode: ESSP}, {Name: "c", Rows: 1, Cols: 5000, Mode: BSP, Optimizer: "adam"}}
	f.Fuzz(func(t *testing.T, kind uint8, head, payload []byte) {
		b, err := decode(kind, head, payload, nil)
		if err != nil {
			return
		}
		if in, ok := b.(*install); ok { // from the directory, who is trusted: a table may be of any size
			_ = in
			return
		}
		s, err := NewServerState(p, 0, ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewDirectoryState(p, DirectoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewClientState(p, clientName(0), specs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		d.Step(0, protocol.Message{From: clientName(0), Body: &hello{name: clientName(0), session: 1, specs: specs}})
		s.Step(0, protocol.Message{From: dirName(), Body: &install{config: d.config}})
		d.counted = d.config.Version
		c.Step(0, protocol.Message{From: dirName(), Body: &install{config: d.config}})
		c.Step(0, protocol.Call{ID: 1, Arg: workerCall{}})
		for i, t := range c.tables {
			c.Step(0, protocol.Call{ID: uint64(i + 2), Arg: &getCall{w: c.workers[0], t: t, rows: []int64{0}}})
		}
		switch roleOf(kind) {
		case forServer:
			s.Step(0, protocol.Message{From: clientName(0), Body: b})
		case forClient:
			c.Step(0, protocol.Message{From: serverName(0), Body: b})
		case forDirectory:
			d.Step(0, protocol.Message{From: clientName(0), Body: b})
			d.Step(0, protocol.Message{From: serverName(0), Body: b})
		}
	})
}

// FuzzRestore gives any bytes to the readers of a snapshot's objects: that of a shard, and that of whoever makes a checkpoint of it.
func FuzzRestore(f *testing.F) {
	p := Placement{Servers: make([]Name, 1)}.withDefaults()
	tables := []*table{}
	for _, s := range []Spec{{Name: "a", Rows: 5, Cols: 4}, {Name: "b", Cols: 100, Sparse: true}, {Name: "c", Cols: 3}} {
		tables = append(tables, newTable(&Definition{Spec: s, Owners: make([]uint16, 8)}, &p))
	}
	for i, t := range tables {
		s := newShard[float32](t, 0, nil)
		if i > 0 {
			s.findOrMake(0, 0)
		}
		b := s.image().encode()
		f.Add(uint8(i), i == 0, b)
		b = slices.Clone(b)
		copy(b[len(objectMagic)+2:], "\x00\x00\x00\x00\x00\x00\x00\x80") // a first cell, or row, so far below 0 that the distance wraps
		f.Add(uint8(i), i == 0, b)
	}
	f.Fuzz(func(t *testing.T, which uint8, cells bool, b []byte) {
		s := newShard[float32](tables[int(which)%len(tables)], 0, nil)
		o := &object{Form: "rows"}
		if cells {
			o.Form = "cells"
		}
		_ = s.restore(b, o)
		spec := &s.t.spec
		_ = readSaved(spec, o, b, func(x Saved[float32]) error {
			whole := x.From == 0 && len(x.Cells) == x.Rows*int(spec.Cols)
			if x.Rows < 1 || x.Rows > 1 && !whole || x.Steps != nil && len(x.Steps) != x.Rows || x.Cols != nil && len(x.Cols) != len(x.Cells) {
				t.Fatalf("%d rows from %d on, column %d on: %d cells, %d columns, %d numbers of steps", x.Rows, x.Row, x.From, len(x.Cells), len(x.Cols), len(x.Steps))
			}
			for _, v := range x.Slots {
				if len(v) != len(x.Cells) {
					t.Fatalf("%d cells, and state of %d", len(x.Cells), len(v))
				}
			}
			return nil
		})
	})
}

// FuzzIndex gives any bytes to the reader of a lane's index: what it lets through is coded to the same objects again, and makes sense.
func FuzzIndex(f *testing.F) {
	ob := &object{file: file{Key: "a/b", Size: 3, SHA256: "ab"}, Table: 1, Form: "cells", Lo: 1, Hi: 2}
	f.Add([]byte{})
	f.Add(appendIndex(nil, nil))
	f.Add(appendIndex(nil, []*object{ob, {file: ob.file, Form: "rows", Lo: 3, Hi: 4}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var found, again []*object
		if readIndex("k", b, 2, func(o *object) { found = append(found, o) }) != nil {
			return
		}
		if err := readIndex("k", appendIndex(nil, found), 2, func(o *object) { again = append(again, o) }); err != nil || len(found) != len(again) {
			t.Fatalf("%d objects come back as %d: %v", len(found), len(again), err)
		}
		for i, o := range found {
			if *o != *again[i] || o.check(2) != nil {
				t.Fatalf("%+v comes back as %+v", o, again[i])
			}
		}
	})
}

// TestFirstNotFinite finds what is no number wherever it is, and nothing else: neither large squares nor integers.
func TestFirstNotFinite(t *testing.T) {
	for n := range 200 {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			v := make([]float32, n)
			for i := range v {
				v[i] = 3e38
			}
			if i := firstNotFinite(kernel.Best(), v); i != -1 {
				t.Fatalf("%d numbers: %d is none", n, i)
			}
			if n > 0 {
				k := n * 2 / 3
				v[k] = bad
				if i := firstNotFinite(kernel.Best(), v); i != k {
					t.Fatalf("%d numbers: %v at %d is found at %d", n, bad, k, i)
				}
			}
		}
		if i := firstNotFinite(kernel.Best(), make([]int64, n)); i != -1 {
			t.Fatalf("%d integers: %d is none", n, i)
		}
	}
}
