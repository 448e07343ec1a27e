package ps

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/transport"
)

// A shared buffer takes what several goroutines write.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestMalformedFrames: frames that nobody can read are counted and told in the log, and change nothing: the rounds that come behind them count.
func TestMalformedFrames(t *testing.T) {
	for name, n := range networks(t) {
		t.Run(name, func(t *testing.T) {
			log := new(sharedBuffer)
			var refused atomic.Int64
			j := newRealJob(t, n, simOptions{
				clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 4, Mode: BSP}},
				server: ServerOptions{
					Log: slog.New(slog.NewTextHandler(log, nil)),
					Trace: ServerTrace{Refused: func(from Name, why string) {
						if refused.Add(1); from != clientName(0) || !strings.Contains(why, "a frame of kind ") {
							t.Errorf("of %s is refused: %s", from, why)
						}
					}},
				},
			})
			defer j.close()
			huge := (&batch{secs: []section{{form: formRows, rows: make([]int64, 8), n: 1 << 20}}}).appendHead([]byte{0}) // whose keys do not follow
			frames := []transport.Frame{
				{Kind: kindBatch},
				{Kind: kindBatch, Head: []byte{9, 1}},
				{Kind: kindPull, Head: []byte{0, 1, 2}},
				{Kind: kindBatch, Head: huge},
				{Kind: kindProbe, Head: []byte{1}},
				{Kind: kindLaneInstall, Head: []byte{0}, Payload: []byte{255, 255, 255}},
			}
			j.each(func(w *Worker, _ int) error {
				tab, row := tableOf[float32](w, "t"), make([]float32, 4)
				for k := range 3 {
					for _, f := range frames {
						if err := j.clients[0].h.s.Send(t.Context(), serverName(0), f); err != nil {
							return err
						}
					}
					if err := tab.Inc(0, 1, 1); err != nil {
						return err
					}
					if err := w.Barrier(bg); err != nil {
						return err
					}
					if _, err := tab.Get(bg, 0, row); err != nil || row[1] != float32(k+1) {
						return fmt.Errorf("round %d: %v, %w", k, row, err)
					}
				}
				return w.Finish(bg)
			})
			if n := refused.Load(); n != int64(3*len(frames)) || !strings.Contains(log.String(), "ps: refused a frame") {
				t.Errorf("%d frames are refused, want %d, and the log to say so:\n%s", n, 3*len(frames), log)
			}
		})
	}
}

// TestMalformedFramesForEver: a peer that sends what nobody can read has a line a second in the log, which says how many frames it stands for.
// All are counted, and each peer has lines of its own.
func TestMalformedFramesForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds, frames = 3, 50
		log := new(sharedBuffer)
		var refused atomic.Int64
		j := newRealJob(t, transport.NewMemory(), simOptions{
			clients: 2, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: 4}},
			server: ServerOptions{
				Log: slog.New(slog.NewTextHandler(log, nil)), Trace: ServerTrace{Refused: func(Name, string) { refused.Add(1) }},
			},
		})
		defer j.close()
		for range seconds {
			for range frames {
				for _, c := range j.clients {
					if err := c.h.s.Send(t.Context(), serverName(0), transport.Frame{Kind: kindProbe, Head: []byte{1}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(refusalEvery) // of virtual time: all have come before it passes
		}
		if n := refused.Load(); n != seconds*frames*2 {
			t.Errorf("%d frames are counted, want %d", n, seconds*frames*2)
		}
		text := log.String()
		for what, want := range map[string]int{
			"ps: refused a frame": 2 * seconds, "from=" + clientName(1).String(): seconds,
			"more=0": 2, fmt.Sprintf("more=%d", frames-1): 2 * (seconds - 1),
		} {
			if n := strings.Count(text, what); n != want {
				t.Errorf("the log has %q %d times, want %d:\n%s", what, n, want, text)
			}
		}
	})
}

// TestSenselessMessages: what is of no table, shard, row or session of a lane's is refused and told, and changes nothing.
func TestSenselessMessages(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0), serverName(1)}, Clients: []Name{clientName(0)}, ShardsEach: 1, MinShardCells: 1}.withDefaults()
	var told []string
	s, err := NewServerState(p, 0, ServerOptions{Trace: ServerTrace{Refused: func(_ Name, why string) { told = append(told, why) }}})
	if err != nil {
		t.Fatal(err)
	}
	d := Definition{Spec: Spec{Name: "t", Rows: 2, Cols: 4}}
	d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
	s.Step(0, protocol.Message{From: dirName(), Body: &install{config: &Config{
		Version: 1, Place: s.p.hash(), Tables: []Definition{d}, Clients: []Member{{Name: clientName(0), Session: 7, State: Active}},
	}}})
	cell := make([]byte, 4)
	for _, x := range []struct {
		session uint64
		sec     section
		want    string
	}{
		{7, section{table: 3, n: 1, cells: cell}, "table 3 is not known"},
		{7, section{shard: 1, row: 1, n: 1, cells: cell}, "shard 1 does not lie here"},
		{7, section{shard: 900, n: 1, cells: cell}, "shard 900 does not lie here"},
		{7, section{row: 1, n: 1, cells: cell}, "are not of shard 0"},
		{7, section{row: 9, n: 1, cells: cell}, "row 9"},
		{7, section{from: 3, n: 2, cells: make([]byte, 8)}, "row 0, columns 3 to 5"},
		{7, section{form: formRows, rows: []int64{0}, from: 1, n: 4, cells: make([]byte, 16)}, "whole rows from column 1 on"},
		{8, section{n: 1, cells: cell}, "not of this session"},
	} {
		for _, m := range []protocol.Body{
			&batch{session: x.session, last: true, secs: []section{x.sec}},
			&pull{session: x.session, id: 1, secs: []section{x.sec}},
		} {
			told = nil
			refusals := 0
			for _, c := range s.Step(0, protocol.Message{From: clientName(0), Body: m}) {
				if c, ok := c.(protocol.Send); ok {
					if r, ok := c.Body.(*refused); ok && strings.Contains(r.text, x.want) {
						refusals++
					} else if b, ok := c.Body.(*behind); ok && x.session != 7 && b.session == x.session && b.own == 0 {
						refusals++
					} else {
						t.Errorf("%v is answered by %v", m, c.Body)
					}
				}
			}
			if len(told) != 1 || !strings.Contains(told[0], x.want) || refusals != 1 {
				t.Errorf("%v is refused as %q, and %d times to its sender; want %q", m, told, refusals, x.want)
			}
		}
	}
	if c := s.clients[0]; c.next != 0 || len(c.pieces) > 0 || len(s.parked) > 0 {
		t.Errorf("after them the client is at %d with %d pieces, and %d reads wait", c.next, len(c.pieces), len(s.parked))
	}
	for i, x := range s.tables[0].shards[0].(*shard[float32]).live.cells {
		if x != 0 {
			t.Errorf("cell %d is %v", i, x)
		}
	}
}

// TestSubscriptionOfNoColumn: who asks to be sent a row from a column on that no row has is refused, and makes no row.
func TestSubscriptionOfNoColumn(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		x := newCarried(t, Spec{Name: "t", Cols: 4, Sparse: sparse, Mode: ESSP}, Options{})
		down := x.lane(clientName(0), &pull{session: 1, id: 1, subscribe: true, gen: 1, secs: []section{{form: formRows, rows: []int64{1}, from: 1 << 30}}})
		if len(down) != 1 || !strings.Contains(down[0].(*refused).text, "whole rows from column 1073741824 on") {
			t.Errorf("sparse %v: answered by %v", sparse, down)
		}
		if n := len(x.s.tables[0].shards[0].(*shard[float32]).rows); n > 0 {
			t.Errorf("sparse %v: %d rows are made", sparse, n)
		}
	}
}

// TestAcceptOfNobody: a server that does not say how far the clients came, or accepts what was not decided, is no reason to end a client's
// session.
func TestAcceptOfNobody(t *testing.T) {
	d, err := NewDirectoryState(Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}, DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Step(0, protocol.Call{ID: 1, Arg: lostCall{clientName(0)}})
	for _, x := range []struct {
		m    accept
		want State
	}{{accept{version: 2}, Ending}, {accept{version: 9, ends: []Clock{3}}, Ending}, {accept{version: 2, ends: []Clock{3}}, Ended}} {
		d.Step(0, protocol.Message{From: serverName(0), Body: &x.m})
		if m := d.config.Clients[0]; m.State != x.want || m.State == Ended && m.End != 3 {
			t.Errorf("after version %d of %d with ends %v it is %s at clock %d, want %s", x.m.version, d.config.Version, x.m.ends, m.State, m.End, x.want)
		}
	}
}

// TestDirectoryGone: training goes on without the directory, and ends.
func TestDirectoryGone(t *testing.T) {
	const rounds = 50
	j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 2, servers: 2, min: 2, tables: []Spec{{Name: "t", Rows: 2, Cols: 2, Cell: Int64, Staleness: 1}}})
	defer j.end()
	for k := range 2 {
		j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			tab, row := tableOf[int64](w, "t"), make([]int64, 2)
			for range rounds {
				for r := range int64(2) {
					if _, err := tab.Get(bg, r, row); err != nil {
						return err
					}
					if err := tab.Inc(r, int64(k), 1); err != nil {
						return err
					}
				}
				sleep(time.Millisecond)
				if _, err := w.Clock(bg); err != nil {
					return err
				}
			}
			return w.Finish(bg)
		})
	}
	if err := j.w.Run(sim.Plan{{Kind: sim.Crash, At: 10 * time.Millisecond, For: time.Hour, Nodes: []sim.Node{j.dir}}}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.failures...); err != nil || j.running > 0 {
		t.Fatalf("%d workers still run: %v", j.running, err)
	}
	for l := range 2 {
		for _, lt := range j.lane(l).tables {
			for _, k := range lt.here {
				for i, x := range lt.shards[k].(*shard[int64]).live.cells {
					if x != rounds {
						t.Errorf("lane %d, shard %d, cell %d: %d, want %d", l, k, i, x, rounds)
					}
				}
			}
		}
	}
}
