package ps

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestCase16Exactly: 10 % of frames are dropped and 10 % doubled, and every cell counts 1,000.
func TestCase16Exactly(t *testing.T) {
	const workers, rounds = 4, 250
	for _, mode := range []Spec{{Mode: SSP, Staleness: 3}, {Mode: ESSP, Staleness: 3}, {Mode: BSP}, {Mode: ASP}} {
		spec := mode
		spec.Name, spec.Rows, spec.Cols, spec.Cell = "t", 4, 4, Int64
		link := sim.Link{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond, Loss: 0.1, Duplicate: 0.1, Reorder: 0.05, Datagram: true}
		j := newSimJob(sim.New(16, sim.Options{Link: link}), simOptions{clients: workers, servers: 2, min: 2, tables: []Spec{spec}})
		for k := range workers {
			j.start(k, 0, func(w *Worker, _ func(time.Duration)) error {
				tab, row := tableOf[int64](w, "t"), make([]int64, 4)
				for i := range rounds {
					for r := range int64(4) {
						for c := range int64(4) {
							if err := tab.Inc(r, c, 1); err != nil {
								return err
							}
						}
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
					if i%10 == 0 {
						if _, err := tab.Get(bg, int64(k), row); err != nil {
							return err
						}
					}
				}
				if err := w.Barrier(bg); err != nil {
					return err
				}
				for r := range int64(4) {
					if _, err := tab.Get(bg, r, row); err != nil {
						return err
					}
					for c, x := range row {
						if mode.Mode == BSP && x != workers*rounds || x > workers*rounds || x < rounds {
							return fmt.Errorf("row %d, cell %d: %d, want %d", r, c, x, workers*rounds)
						}
					}
				}
				return w.Finish(bg)
			})
		}
		j.run(t, 10*time.Hour)
		for l := range 2 {
			for _, lt := range j.lane(l).tables {
				for _, k := range lt.here {
					for i, x := range lt.shards[k].(*shard[int64]).live.cells {
						if x != workers*rounds {
							t.Errorf("%s: lane %d, shard %d, cell %d: %d, want %d", modeName(spec), l, k, i, x, workers*rounds)
						}
					}
				}
			}
		}
	}
}

// TestCase17ExactKill kills a worker at 50 points of a round: all cells agree, at its acknowledged rounds or one more.
func TestCase17ExactKill(t *testing.T) {
	for seed := range uint64(50) {
		if testing.Short() && seed%7 != 0 {
			continue // the others in the full run
		}
		spec := Spec{Name: "t", Rows: 1, Cols: 64, Mode: BSP, Cell: Int64}
		j := newSimJob(sim.New(seed, sim.Options{}), simOptions{clients: 3, servers: 3, min: 4, exact: true, tables: []Spec{spec}})
		held := Clock(0)
		for k := range 3 {
			j.startThen(k, 0, func(w *Worker, sleep func(time.Duration)) error {
				tab, one := tableOf[int64](w, "t"), make([]int64, 64)
				for i := range one {
					one[i] = 1 << (20 * k)
				}
				for i := range 30 {
					if k == 0 && i == 25 {
						sleep(time.Second) // the killed one must not be needed any more
					}
					if _, err := tab.Get(bg, 0, make([]int64, 64)); err != nil {
						return err
					}
					if err := tab.DenseInc(0, 0, one); err != nil {
						return err
					}
					if _, err := w.Clock(bg); err != nil {
						return err
					}
					if k == 2 {
						held = j.clients[2].state.held
					}
				}
				return w.Finish(bg)
			}, func(err error) {
				if err != nil && k != 2 {
					j.failures = append(j.failures, err)
				}
			})
		}
		at := time.Millisecond + time.Duration(draw.Below(seed, 99, 0, 2000))*time.Microsecond
		if err := j.w.Run(sim.Plan{{Kind: sim.Crash, At: at, For: time.Hour, Nodes: []sim.Node{j.clients[2].node}}}, at+time.Millisecond); err != nil {
			t.Fatal(err)
		}
		rounds := held
		j.w.Call(j.dir, 0, lostCall{clientName(2)}, nil)
		if err := j.w.Run(nil, at+time.Hour/2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.failures...); err != nil || j.running > 0 {
			t.Fatalf("seed %d: %d still run, %v", seed, j.running, err)
		}
		var all []int64
		for l := range 3 {
			for _, lt := range j.lane(l).tables {
				for _, k := range lt.here {
					all = append(all, lt.shards[k].(*shard[int64]).live.cells...)
				}
			}
		}
		for i, x := range all {
			a, b, c := x&(1<<20-1), x>>20&(1<<20-1), x>>40
			if x != all[0] || a != 30 || b != 30 || c < int64(rounds) || c > int64(rounds)+1 {
				t.Fatalf("seed %d: cell %d counts %d, %d and %d rounds; %d of the killed one were acknowledged", seed, i, a, b, c, rounds)
			}
		}
	}
}

// TestLaneAhead: in exact mode a lane that already knows where a lost client ended does not lead one that does not yet into a round of it
// that is void.
func TestLaneAhead(t *testing.T) {
	p := Placement{
		Directory: dirName(), Servers: []Name{serverName(0), serverName(1)}, Clients: []Name{clientName(0), clientName(1)},
		ShardsEach: 1, MinShardCells: 1, Exact: true,
	}.withDefaults()
	s, err := NewServerState(p, 0, ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := Definition{Spec: Spec{Name: "t", Rows: 1, Cols: 4, Cell: Int64, Mode: BSP}}
	d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
	config := func(version uint64, lost State) *Config {
		return &Config{
			Version: version, Place: s.p.hash(), Tables: []Definition{d},
			Clients: []Member{{Name: clientName(0), Session: 1, State: Active}, {Name: clientName(1), Session: 1, State: lost}},
		}
	}
	step := func(from Name, b protocol.Body) { s.Step(0, protocol.Message{From: from, Body: b}) }
	tab := newTable(&d, &p)
	step(dirName(), &install{config: config(1, Active)})
	for k := range 2 { // both lanes have the round of client 0; that of client 1, here alone, is void
		buf := newDeltas[int64](newClientTable(tab), 0)
		for c := range int64(4) {
			buf.inc(0, c, 1)
		}
		m := &batch{client: uint16(k), session: 1, last: true}
		buf.sections(func(c section, _ *hold) {
			if tab.owners[c.shard] == 0 {
				m.secs = append(m.secs, c)
			}
		})
		x, err := decodeBatch(m.appendHead(nil), appendPayloads(nil, m.secs))
		if err != nil {
			t.Fatal(err)
		}
		step(clientName(k), x)
	}
	step(dirName(), &install{config: config(2, Ending)})
	step(serverName(1), &have{lane: 1, version: 3, complete: 1})
	if s.m != 0 {
		t.Fatalf("at round %d before it knows who is counted", s.m)
	}
	step(dirName(), &install{config: config(3, Ended)})
	if s.m != 1 {
		t.Fatalf("at round %d when both lanes have round 1", s.m)
	}
	for _, l := range s.tables {
		for _, k := range l.here {
			for i, x := range l.shards[k].(*shard[int64]).live.cells {
				if x != 1 {
					t.Errorf("cell %d is %d: the void round is in it", i, x)
				}
			}
		}
	}
}

// TestJoinBehindALane: in exact mode a client does not join at a round that a lane has already told the others to be complete without it: they
// would count that lane for rounds of the client that it has not.
func TestJoinBehindALane(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0), serverName(1)}, Clients: []Name{clientName(0)}, Exact: true}.withDefaults()
	var lanes [2]*ServerState
	for l := range lanes {
		s, err := NewServerState(p, l, ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lanes[l] = s
	}
	refused := false
	var step func(lane int, from Name, b protocol.Body)
	step = func(lane int, from Name, b protocol.Body) {
		for _, c := range slices.Clone(lanes[lane].Step(0, protocol.Message{From: from, Body: b})) {
			c, _ := c.(protocol.Send)
			switch m := c.Body.(type) {
			case *have:
				step(int(m.to), serverName(lane), m)
			case *accept:
				refused = refused || m.refused
			}
		}
	}
	version := uint64(0)
	configure := func(start Clock) (accepted bool) {
		version++
		c := &Config{Version: version, Place: p.hash(), Clients: []Member{{Name: clientName(0), Session: 1, State: Active}}}
		if start > 0 {
			c.Clients = append(c.Clients, Member{Name: clientName(1), Session: 1, State: Active, Start: start})
		}
		refused = false
		for l := range lanes {
			step(l, dirName(), &install{config: c})
		}
		return !refused
	}
	round := func(lane, client int, stamp Clock) {
		step(lane, clientName(client), &batch{client: uint16(client), session: 1, stamp: stamp, last: true})
	}
	configure(0)
	round(0, 0, 0)
	for stamp := range Clock(3) { // of these lane 0 lacks two yet
		round(1, 0, stamp)
	}
	start := Clock(2)
	for ; !configure(start); start++ {
		if configure(start) {
			t.Fatalf("round %d, which was refused, is let pass where another decision comes before a later one", start)
		}
	}
	for stamp := Clock(1); stamp <= start; stamp++ {
		round(0, 0, stamp)
	}
	if start > 2 {
		round(1, 0, start)
	}
	round(0, 1, start)
	if lanes[0].m != start || lanes[1].m != start {
		t.Errorf("who joins at round %d: the lanes are at %d and %d, and one lacks that round of its", start, lanes[0].m, lanes[1].m)
	}
	round(1, 1, start)
	if lanes[0].m != start+1 || lanes[1].m != start+1 {
		t.Errorf("who joins at round %d: the lanes are at %d and %d when both have it", start, lanes[0].m, lanes[1].m)
	}
}

// TestTornRounds: rounds of a lost client that one server has applied, and another has not got, stay, and are told, also one of which there is a
// part.
func TestTornRounds(t *testing.T) {
	p := Placement{
		Directory: dirName(), Servers: []Name{serverName(0), serverName(1)}, Clients: []Name{clientName(0), clientName(1)}, ShardsEach: 1, MinShardCells: 1,
	}.withDefaults()
	var traced []any
	s, err := NewServerState(p, 0, ServerOptions{Trace: ServerTrace{Torn: func(t Torn) { traced = append(traced, t) }}})
	if err != nil {
		t.Fatal(err)
	}
	d := Definition{Spec: Spec{Name: "t", Rows: 1, Cols: 4, Cell: Int64, Staleness: 3}}
	var facts []any
	step := func(from Name, b protocol.Body) {
		for _, c := range s.Step(0, protocol.Message{From: from, Body: b}) {
			if r, ok := c.(protocol.Report); ok {
				facts = append(facts, r.Fact)
			}
		}
	}
	config := func(version uint64, lost State, end Clock) *install {
		d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
		return &install{config: &Config{
			Version: version, Place: s.p.hash(), Tables: []Definition{d},
			Clients: []Member{{Name: clientName(0), Session: 1, State: Active}, {Name: clientName(1), Session: 1, State: lost, End: end}},
		}}
	}
	step(dirName(), config(1, Active, 0))
	tab := s.tables[0].table
	for stamp := range Clock(3) { // of the last there is one piece, with all of this shard
		buf := newDeltas[int64](newClientTable(tab), 0)
		for c := range int64(4) {
			buf.inc(0, c, 1)
		}
		m := &batch{client: 1, session: 1, stamp: stamp, last: stamp < 2}
		buf.sections(func(c section, _ *hold) {
			if tab.owners[c.shard] == 0 {
				c.mark = !m.last
				m.secs = append(m.secs, c)
			}
		})
		x, err := decodeBatch(m.appendHead(nil), appendPayloads(nil, m.secs))
		if err != nil {
			t.Fatal(err)
		}
		step(clientName(1), x)
	}
	step(dirName(), config(2, Ending, 0))
	step(dirName(), config(3, Ended, 1)) // the other server has the first alone
	want := []any{Torn{clientName(1), 0, 2, 3}, Torn{clientName(1), 0, 1, 2}}
	if !slices.Equal(facts, want) || !slices.Equal(traced, want) {
		t.Errorf("told %v, traced %v; want %v", facts, traced, want)
	}
	for i, x := range s.tables[0].shards[0].(*shard[int64]).live.cells {
		if x != 3 {
			t.Errorf("cell %d is %d, want 3", i, x)
		}
	}
}
