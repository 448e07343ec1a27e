package ps

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// TestSessionTaken: a process that begins anew in the session of the one before it is refused: a server would take its first rounds for those
// that it has, acknowledge them, and add nothing.
func TestSessionTaken(t *testing.T) {
	j := newSimJob(sim.New(4, sim.Options{}), simOptions{clients: 2, servers: 2, min: 2, tables: []Spec{{Name: "t", Rows: 4, Cols: 4, Mode: ASP}}})
	defer j.end()
	rounds := func(w *Worker, sleep func(time.Duration)) error {
		for {
			sleep(time.Millisecond)
			if _, err := w.Clock(bg); err != nil {
				return err
			}
		}
	}
	var again, other error
	j.startThen(0, 0, rounds, func(error) {})
	j.startThen(1, 0, rounds, func(err error) { other = err })
	j.startThen(0, time.Second, rounds, func(err error) { again = err })
	plan := sim.Plan{{Kind: sim.Crash, At: 50 * time.Millisecond, For: 10 * time.Millisecond, Nodes: []sim.Node{j.clients[0].node}}}
	if err := j.w.Run(plan, 3*time.Second); err != nil {
		t.Fatal(err)
	}
	if again == nil || !strings.Contains(again.Error(), "j/worker/0 takes part already in this session") {
		t.Errorf("the second process: %v", again)
	}
	if other != nil {
		t.Errorf("the other client: %v", other)
	}
}

// TestSessionOfTwo: a client to which a lane tells of rounds, or of pieces of one, that it never sent ends: its own would be taken for them.
func TestSessionOfTwo(t *testing.T) {
	for _, x := range []struct {
		own   Clock
		piece uint32
		ends  bool
	}{{1, 0, false}, {2, 0, false}, {1, 3, false}, {2, 1, true}, {3, 0, true}} {
		c := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4, Mode: ASP}, Options{})
		c.call(clockCall{w: c.w})
		id, _ := c.call(clockCall{w: c.w})
		c.client(protocol.Message{From: serverName(0), Body: &clocks{status{own: x.own, piece: x.piece}}})
		switch err := c.c.err; {
		case x.ends != (err != nil):
			t.Errorf("after two rounds, of which %d and %d pieces are held: %v", x.own, x.piece, err)
		case x.ends && (!strings.Contains(err.Error(), "a session of its own") || !strings.Contains(err.Error(), "j/server/0")):
			t.Error(err)
		}
		if c.answers[id].Err != nil {
			t.Errorf("the round before: %v", c.answers[id].Err)
		}
	}
}

// TestSessionGoesOn: a client is not ended by the answer to a question of its that came late or twice, but one that asks for the first time is.
func TestSessionGoesOn(t *testing.T) {
	no := &refused{req: takesPart, text: "another"}
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
	x.client(protocol.Message{From: dirName(), Body: no})
	if x.c.err != nil {
		t.Error(x.c.err)
	}
	c, err := NewClientState(x.c.p, clientName(0), nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Step(0, protocol.Start{})
	c.Step(0, protocol.Message{From: dirName(), Body: no})
	if c.err == nil {
		t.Error("it asks on")
	}
}

// TestSessionOfDirectories: a client that one directory has let in does not end because another does not: a question of its may reach both. What
// its own directory says ends it, and a table it asks another for is refused.
func TestSessionOfDirectories(t *testing.T) {
	for _, c := range []struct {
		name      string
		directory func(own uint64) uint64
		ends      bool
	}{
		{"its own", func(own uint64) uint64 { return own }, true},
		{"another", func(own uint64) uint64 { return own + 1 }, false},
		{"none", func(uint64) uint64 { return 0 }, true},
	} {
		x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
		x.client(protocol.Message{From: dirName(), Body: &refused{directory: c.directory(x.c.config.Session), text: "no"}})
		if ended := x.c.err != nil; ended != c.ends {
			t.Errorf("refused by %s: %v", c.name, x.c.err)
		}
	}
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
	id, _ := x.call(createCall{spec: Spec{Name: "late", Rows: 1, Cols: 4}})
	x.client(protocol.Message{From: dirName(), Body: &refused{req: id, directory: x.c.config.Session + 1, text: "no"}})
	if err := x.answers[id].Err; err == nil || x.c.err != nil {
		t.Errorf("a table of another directory: %v; the client: %v", err, x.c.err)
	}
}

// TestSessionGivenUp: an Open that was given up is not let in any more: the one that follows it in its session is.
func TestSessionGivenUp(t *testing.T) {
	x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
	c, err := NewClientState(x.c.p, clientName(0), nil, Options{Session: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.Step(0, protocol.Start{})
	c.Step(0, protocol.Call{ID: 1, Arg: openCall{}})
	c.Step(0, protocol.Call{Arg: cancelCall{1, context.Canceled}})
	if out := c.Step(0, protocol.Message{From: dirName(), Body: &install{config: x.c.config}}); len(out) > 0 || c.joined {
		t.Errorf("let in: %v, and says %v", c.joined, out)
	}
}

// TestRefusedByOthers: only servers and the directory can refuse a client what it does.
func TestRefusedByOthers(t *testing.T) {
	for from, ends := range map[Name]bool{clientName(1): false, {Job: "j", Role: "stranger", ID: "0"}: false, serverName(0): true, dirName(): true} {
		x := newCarried(t, Spec{Name: "t", Rows: 1, Cols: 4}, Options{})
		x.client(protocol.Message{From: from, Body: &refused{text: "no"}})
		if ended := x.c.err != nil; ended != ends {
			t.Errorf("refused by %s: %v", from, x.c.err)
		}
	}
}
