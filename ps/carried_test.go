package ps

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/protocol"
)

// A carried is a client and its only lane, whose messages a test carries. The rounds of another client it makes itself.
type carried struct {
	c       *ClientState
	s       *ServerState
	w       *WorkerState
	now     time.Duration
	calls   uint64
	answers map[uint64]protocol.Answer
}

func newCarried(t *testing.T, spec Spec, o Options) *carried {
	t.Helper()
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0), clientName(1)}, ShardsEach: 1}.withDefaults()
	o.Session = 1
	c, err := NewClientState(p, clientName(0), []Spec{spec}, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServerState(p, 0, ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := Definition{Spec: spec}
	d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
	config := &Config{
		Version: 1, Session: 5, Place: p.hash(), Tables: []Definition{d},
		Clients: []Member{{Name: clientName(0), Session: 1, State: Active}, {Name: clientName(1), Session: 1, State: Active}},
	}
	x := &carried{c: c, s: s, answers: map[uint64]protocol.Answer{}}
	x.client(protocol.Message{From: dirName(), Body: &install{config: config}})
	x.lane(dirName(), &install{config: config})
	id, _ := x.call(workerCall{})
	x.w = x.answers[id].Result.(*WorkerState)
	return x
}

// client gives the client an event, and returns what it sends to the lane.
func (x *carried) client(in protocol.Event) (up []protocol.Body) {
	for _, c := range x.c.Step(x.now, in) {
		switch c := c.(type) {
		case protocol.Send:
			if c.To == serverName(0) {
				up = append(up, c.Body)
			}
		case protocol.Answer:
			x.answers[c.ID] = c
		}
	}
	return up
}

func (x *carried) call(arg any) (id uint64, up []protocol.Body) {
	x.calls++
	return x.calls, x.client(protocol.Call{ID: x.calls, Arg: arg})
}

func (x *carried) get(row int64) (id uint64, up []protocol.Body) {
	return x.call(&getCall{w: x.w, t: x.c.tables[0], rows: []int64{row}})
}

// lane gives the lane a message, and returns what it sends to the client.
func (x *carried) lane(from Name, b protocol.Body) (down []protocol.Body) {
	for _, c := range x.s.Step(x.now, protocol.Message{From: from, Body: b}) {
		if c, ok := c.(protocol.Send); ok && c.To == clientName(0) {
			down = append(down, c.Body)
		}
	}
	return down
}

// carry carries messages to and fro until there are none.
func (x *carried) carry(up []protocol.Body) {
	for len(up) > 0 {
		var down []protocol.Body
		for _, b := range up {
			down = append(down, x.lane(clientName(0), b)...)
		}
		up = x.deliver(down)
	}
}

func (x *carried) deliver(down []protocol.Body) (up []protocol.Body) {
	for _, b := range down {
		up = append(up, x.client(protocol.Message{From: serverName(0), Body: b})...)
	}
	return up
}

// other ends a round of the other client, which adds 1 to so many cells of row 0.
func (x *carried) other(stamp Clock, cells int) {
	ones := slices.Repeat([]float32{1}, cells)
	x.carry(x.deliver(x.lane(clientName(1), &batch{
		client: 1, session: 1, stamp: stamp, last: true, secs: []section{{form: formRange, n: cells, cells: raw.Bytes(ones)}},
	})))
}

// carriedDriver drives the client for its worker: between a question and its answer, meanwhile happens.
type carriedDriver struct {
	x         *carried
	meanwhile func(up []protocol.Body)
}

func (d carriedDriver) Lock()   {}
func (d carriedDriver) Unlock() {}

func (d carriedDriver) Call(_ context.Context, arg any) (any, error) {
	id, up := d.x.call(arg)
	d.meanwhile(up)
	a := d.x.answers[id]
	return a.Result, a.Err
}

// evictAll throws out all rows, as others that are read would.
func (x *carried) evictAll() {
	limit := x.c.ring.limit
	x.c.ring.limit = 0
	x.c.evict()
	x.c.ring.limit = limit
}

const twoMessages = 300_000 // cells of a row

// TestAnswersAreNotMixed: of an answer that breaks off with its link nothing is kept beside what the next one has: that is of another time.
func TestAnswersAreNotMixed(t *testing.T) {
	for _, unposted := range []bool{false, true} {
		x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: twoMessages, Staleness: 3}, Options{})
		x.c.tables[0].unposted = unposted
		id, up := x.get(0)
		down := x.lane(clientName(0), up[0])
		if len(down) != 2 {
			t.Fatalf("an answer of %d messages, want 2", len(down))
		}
		x.deliver(down[:1]) // the second is lost
		x.other(0, twoMessages)
		x.carry(x.client(protocol.LinkBack{Peer: serverName(0)}))
		if a, ok := x.answers[id]; !ok || a.Err != nil {
			t.Fatalf("unposted %v: answered %v, %v", unposted, ok, a.Err)
		}
		r := x.c.tables[0].find(0)
		if v := viewOf[float32](r.cells, r.n); v[0] != 1 || v[twoMessages-1] != 1 {
			t.Errorf("unposted %v: the first cell is %v, the last %v, want 1", unposted, v[0], v[twoMessages-1])
		}
	}
}

// TestCellsBesideTheCache: single cells are not read newer than a row that came into the cache while they travelled, and that is read next.
func TestCellsBesideTheCache(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4, Staleness: 3}, Options{})
	_, up := x.call(clockCall{w: x.w})
	x.carry(up)
	_, up = x.call(prefetchCall{[]*getCall{{w: x.w, t: x.c.tables[0], rows: []int64{0}, silent: true}}})
	down := x.lane(clientName(0), up[0]) // as it is at clock 0
	tab := tableOf[float32](&Worker{s: x.w, d: carriedDriver{x, func(up []protocol.Body) {
		x.other(0, 4) // the clock is 1
		x.deliver(append(down, x.lane(clientName(0), up[0])...))
	}}}, "t")
	cell, row := make([]float32, 1), make([]float32, 4)
	v, err := tab.GetCells(bg, 0, []int64{2}, cell)
	if err != nil {
		t.Fatal(err)
	}
	next, err := tab.Get(bg, 0, row)
	if err != nil {
		t.Fatal(err)
	}
	if next < v || row[2] < cell[0] {
		t.Errorf("a cell is %v with value clock %d, and then %v with %d", cell[0], v, row[2], next)
	}
}

// TestAskedOnce: when a link is back, what was asked for is asked for again, once: the answer may be large.
func TestAskedOnce(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
	x.get(0)
	probes, pulls := 0, 0
	for _, b := range x.client(protocol.LinkBack{Peer: serverName(0)}) {
		switch b.(type) {
		case *probe:
			probes++
		case *pull:
			pulls++
		}
	}
	if probes != 1 || pulls != 1 {
		t.Errorf("%d probes and %d questions, want 1 and 1", probes, pulls)
	}
}

// TestPiecesAreProgress: a read whose answer is still coming is not given up.
func TestPiecesAreProgress(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: twoMessages}, Options{RoundTimeout: 10 * time.Second})
	id, up := x.get(0)
	down := x.lane(clientName(0), up[0])
	x.now = 6 * time.Second
	x.deliver(down[:1])
	x.now = 11 * time.Second
	x.client(protocol.Timer{ID: timerRetry})
	x.now = 12 * time.Second
	x.deliver(down[1:])
	if a, ok := x.answers[id]; !ok || a.Err != nil {
		t.Errorf("answered %v, %v", ok, a.Err)
	}
}

// TestEvictedBeforeItCame: a row that was thrown out before its answer had come, since nobody waited for it any more, is not sent for ever,
// and takes no room.
func TestEvictedBeforeItCame(t *testing.T) {
	for _, spec := range []Spec{{Rows: 1, Cols: twoMessages}, {Rows: 10, Cols: 4, Mode: ESSP, Staleness: 1}} {
		spec.Name = "t"
		x := newCarried(t, spec, Options{})
		id, up := x.get(0)
		x.client(protocol.Call{Arg: cancelCall{id, context.Canceled}})
		x.evictAll()
		x.carry(up)
		if n := x.c.ring.bytes; n != 0 {
			t.Errorf("%s: %d bytes of no rows", modeName(spec), n)
		}
		for stamp := range Clock(2) {
			_, up := x.call(clockCall{w: x.w})
			x.carry(up)
			x.other(stamp, 4)
		}
		if x.s.tables[0].shards[0].(*shard[float32]).segs[0].subscribed(0) {
			t.Errorf("%s: a row that is not in the cache is sent still", modeName(spec))
		}
	}
}

// TestPromptOfDrops: a round whose unsubscriptions fill what may be under way is acknowledged at once, as one of deltas is.
func TestPromptOfDrops(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 100, Cols: 4, Mode: ESSP}, Options{Inflight: 2000})
	g := &getCall{w: x.w, t: x.c.tables[0], silent: true}
	for row := range int64(100) {
		g.rows = append(g.rows, row)
	}
	_, up := x.call(prefetchCall{[]*getCall{g}})
	x.carry(up)
	x.evictAll()
	for _, want := range []bool{true, false} { // the next round has none
		_, up := x.call(clockCall{w: x.w})
		if b := up[0].(*batch); b.prompt != want {
			t.Errorf("a round of %d bytes: prompt is %v", b.bytes, b.prompt)
		}
		x.carry(up)
	}
}

// TestManyDrops: the next batch unsubscribes from all segments that were thrown out, also of rows that are split, in few sections; and of
// more than are provided for, from all at once.
func TestManyDrops(t *testing.T) {
	for _, spec := range []Spec{{Rows: 3000, Cols: 4}, {Cols: hashBlock + 100, Sparse: true}} {
		spec.Name, spec.Mode = "t", ESSP
		x := newCarried(t, spec, Options{})
		tab, l := x.c.tables[0], x.c.lanes[0]
		store, rows := x.s.tables[0].shards[0].(*shard[float32]), int64(3000)
		of := func(row int64) (from []int64) {
			tab.cut.eachSpan(row, func(s span) { from = append(from, s.from) })
			return from
		}
		evict := func() {
			for row := range rows {
				for _, from := range of(row) {
					l.drop = append(l.drop, section{form: formRange, row: row, from: from, n: 1})
				}
			}
		}
		left := func() (n int) {
			for i := range store.segs {
				if store.segs[i].subscribed(0) {
					n++
				}
			}
			return n
		}
		subscribe := func() {
			for row := range rows {
				for _, from := range of(row) {
					store.subscribe(&section{form: formRange, row: row, from: from}, 0, true)
				}
			}
		}
		subscribe()
		if n := left(); n < 3000 {
			t.Fatalf("%d segments are subscribed", n)
		}
		evict()
		_, up := x.call(clockCall{w: x.w})
		if !l.dropping(tab, rows-1, of(rows - 1)[len(of(rows-1))-1]) || l.dropping(tab, rows, 0) {
			t.Errorf("%d columns: what is on its way is not found, or what is not is", spec.Cols)
		}
		x.carry(up)
		if n := left(); n > 0 || len(l.drop) > 0 {
			t.Errorf("%d columns: %d segments are subscribed still, %d are to be dropped", spec.Cols, n, len(l.drop))
		}
		subscribe()
		for len(l.drop) <= maxDrops {
			evict()
		}
		x.carry(x.client(protocol.Timer{ID: timerRetry}))
		if n := left(); n > 0 || len(l.drop) > 0 || l.gen != 2 {
			t.Errorf("%d columns: of too many %d are subscribed still, %d to be dropped", spec.Cols, n, len(l.drop))
		}
	}
}

// TestPushOfNoCell: a push that makes no sense does no harm, also where its row is not in the cache.
func TestPushOfNoCell(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 3, Cols: 4, Mode: ESSP}, Options{})
	m := &values{secs: []section{{form: formRange, row: 1, from: 1000, n: 1, cells: make([]byte, 4)}}}
	m.gen, m.pushes = 1, 1
	x.client(protocol.Message{From: serverName(0), Body: m})
	if n := len(x.c.lanes[0].drop); n > 0 {
		t.Errorf("%d segments of no cells are dropped", n)
	}
}

// TestRowsOfAnotherForm: what comes as rows of such a table do not, sparse ones as runs of cells or others by column, changes nothing.
func TestRowsOfAnotherForm(t *testing.T) {
	for _, spec := range []Spec{{Cols: 100}, {Cols: 100, Sparse: true}, {Cols: hashBlock + 100, Sparse: true}} {
		spec.Name, spec.Mode = "t", ESSP
		byColumn := spec.Sparse && spec.Cols <= hashBlock
		ones := func(row int64, f form) section {
			s := section{form: f, row: row, rows: []int64{row}, ends: []int64{1}, cols: []int64{3}, n: 1, version: 1}
			switch f {
			case formRange:
				s.from, s.n = 50, 2
			case formRows:
				s.n = int(spec.Cols)
			}
			s.cells = raw.Bytes(slices.Repeat([]float32{1}, s.n))
			return s
		}
		for f := formRange; f < formSame; f++ {
			if (f == formCells) == byColumn {
				continue
			}
			x := newCarried(t, spec, Options{})
			_, up := x.get(0)
			x.carry(up)
			push := &values{secs: []section{ones(0, formCells), ones(0, f)}}
			if byColumn { // the row has a column
				push.secs[0].cells = make([]byte, 4)
			}
			push.gen, push.pushes = 1, 1
			x.client(protocol.Message{From: serverName(0), Body: push})
			_, up = x.get(1)
			answer := &values{id: up[0].(*pull).id, pieces: 1, secs: []section{ones(1, f)}}
			x.carry(append(up, x.client(protocol.Message{From: serverName(0), Body: answer})...))
			tab, rows := tableOf[float32](&Worker{s: x.w, d: carriedDriver{x, x.carry}}, "t"), make([]float32, 2*spec.Cols)
			if _, err := tab.GetRows(bg, []int64{0, 1}, rows); err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(rows, func(v float32) bool { return v != 0 }); i >= 0 {
				t.Errorf("sparse %v, %d columns, form %d: cell %d is %v", spec.Sparse, spec.Cols, f, i, rows[i])
			}
		}
	}
}

// TestColumnsOfNoRow: sparse rows that come with columns that no row has, or not in order, change nothing.
func TestColumnsOfNoRow(t *testing.T) {
	for _, cols := range [][]int64{{-1}, {100}, {3, 3}, {4, 3}} {
		x := newCarried(t, Spec{Name: "t", Cols: 100, Sparse: true, Mode: ESSP}, Options{})
		_, up := x.get(0)
		x.carry(up)
		n := len(cols)
		of := func(row int64) []section {
			ones := raw.Bytes(slices.Repeat([]float32{1}, n))
			return []section{{form: formCells, rows: []int64{row}, ends: []int64{int64(n)}, cols: cols, n: n, cells: ones, version: 1}}
		}
		push := &values{secs: of(0)}
		push.gen, push.pushes = 1, 1
		x.client(protocol.Message{From: serverName(0), Body: push})
		_, up = x.get(1)
		answer := &values{id: up[0].(*pull).id, pieces: 1, secs: of(1)}
		x.carry(append(up, x.client(protocol.Message{From: serverName(0), Body: answer})...))
		tab, rows := tableOf[float32](&Worker{s: x.w, d: carriedDriver{x, x.carry}}, "t"), make([]float32, 200)
		if _, err := tab.GetRows(bg, []int64{0, 1}, rows); err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(rows, func(v float32) bool { return v != 0 }); i >= 0 {
			t.Errorf("columns %v: cell %d is %v", cols, i, rows[i])
		}
	}
}

// TestSparseAnswersAreNotMixed: a row of which one piece is of another answer is not whole, whatever pieces follow.
func TestSparseAnswersAreNotMixed(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Cols: 100, Sparse: true, Staleness: 3}, Options{})
	x.get(0)
	p := x.c.pulls[0]
	for i, version := range []uint64{1, 2, 1} {
		p.held = append(p.held, &values{id: p.id, piece: uint32(i), secs: []section{{
			form: formCells, rows: []int64{0}, ends: []int64{1}, cols: []int64{int64(i)}, n: 1, cells: make([]byte, 4), version: version,
		}}})
	}
	x.c.landSparse(p, x.c.lanes[0])
	if v := x.c.tables[0].find(0).segs[0].v; v >= 0 {
		t.Errorf("a row of two answers has clock %d", v)
	}
}

// TestLostListsFit: what is sent again with its keys, since the lane has lost its lists, fits frames still, a round as well as a question.
func TestLostListsFit(t *testing.T) {
	var x *carried
	largest := 0 // of what the client sends, in bytes
	carry := func(up []protocol.Body) {
		for len(up) > 0 {
			var down []protocol.Body
			for _, b := range up {
				_, head, payload := coded(b)
				largest = max(largest, len(head)+len(payload))
				down = append(down, x.lane(clientName(0), b)...)
			}
			up = x.deliver(down)
		}
	}
	lose := func() { x.s.clients[0].lists = keyLists{} }
	check := func(what string) {
		t.Helper()
		if largest > 1<<20 || len(x.s.clients[0].lists.lists) == 0 {
			t.Errorf("%s: the largest frame has %d bytes, want at most %d; the lane has %d lists again", what, largest, 1<<20, len(x.s.clients[0].lists.lists))
		}
	}
	// The cells of a round fill a piece, so that their keys have no room beside them.
	const rows, cols = 16_000, 16
	x = newCarried(t, Spec{Name: "t", Rows: rows, Cols: cols, Staleness: 3}, Options{})
	tab, ones := tableOf[float32](&Worker{s: x.w, d: carriedDriver{x, carry}}, "t"), slices.Repeat([]float32{1}, cols)
	for round := range 2 {
		if round == 1 {
			lose()
		}
		for r := range int64(rows) {
			if err := tab.DenseInc(r, 0, ones); err != nil {
				t.Fatal(err)
			}
		}
		_, up := x.call(clockCall{w: x.w})
		carry(up)
	}
	check("a round")
	if x.c.Resent == 0 {
		t.Error("no piece was sent again")
	}
	all, dst := make([]int64, rows), make([]float32, rows*cols)
	for i := range all {
		all[i] = int64(i)
	}
	if _, err := tab.GetRows(bg, all, dst); err != nil {
		t.Fatal(err)
	}
	for i, v := range dst {
		if v != 2 {
			t.Fatalf("cell %d of row %d is %v, want 2", i%cols, i/cols, v)
		}
	}
	// A question has keys alone.
	const many = 140_000
	largest = 0
	x = newCarried(t, Spec{Name: "t", Rows: many, Cols: 1}, Options{})
	ask := func() {
		g := &getCall{w: x.w, t: x.c.tables[0], silent: true}
		for r := range int64(many) {
			g.rows = append(g.rows, r)
		}
		_, up := x.call(prefetchCall{[]*getCall{g}})
		carry(up)
	}
	ask()
	_, up := x.call(clockCall{w: x.w})
	carry(up)
	x.other(0, 1)
	lose()
	ask()
	check("a question")
	if r := x.c.tables[0].find(0); viewOf[float32](r.cells, r.n)[0] != 1 {
		t.Errorf("row 0 is %v, want 1", viewOf[float32](r.cells, r.n)[0])
	}
}
