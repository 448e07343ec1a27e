package ps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A spy writes down what a client sends to servers: "batch+" is a batch that waits for what follows.
type spy struct {
	transport.Network
	mu   sync.Mutex
	sent []string
}

type (
	spyPort struct {
		transport.Port
		s *spy
	}
	spyStream struct {
		transport.Stream
		s *spy
	}
)

func (s *spy) Open(ctx context.Context, self Name, o transport.Options) (transport.Port, error) {
	p, err := s.Network.Open(ctx, self, o)
	if err != nil || self != clientName(0) {
		return p, err
	}
	return &spyPort{p, s}, nil
}

func (p *spyPort) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	x, err := p.Port.Stream(name, o)
	return &spyStream{x, p.s}, err
}

func (x *spyStream) Send(ctx context.Context, to Name, f transport.Frame) error {
	what := map[uint8]string{kindBatch: "batch", kindPull: "pull"}[f.Kind]
	if f.More {
		what += "+"
	}
	if what != "" {
		x.s.mu.Lock()
		x.s.sent = append(x.s.sent, fmt.Sprint(what, " ", to.ID))
		x.s.mu.Unlock()
	}
	return x.Stream.Send(ctx, to, f)
}

// take returns what was sent since the last call, by server.
func (s *spy) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.sent, func(a, b string) int { return strings.Compare(a[len(a)-1:], b[len(b)-1:]) })
	all := strings.Join(s.sent, ", ")
	s.sent = nil
	return all
}

// What Clock asks for leaves with the round, for several tables in one question to each server; without it, the round leaves alone, and Get asks.
func TestClockAsksWithTheRound(t *testing.T) {
	s := &spy{Network: transport.NewMemory()}
	spec := Spec{Rows: 2, Cols: 8, Mode: BSP}
	a, b := spec, spec
	a.Name, b.Name = "a", "b"
	j := newRealJob(t, s, simOptions{clients: 1, servers: 2, shards: 1, min: 1, tables: []Spec{a, b}, client: Options{Retry: time.Minute}})
	defer j.close()
	j.each(func(w *Worker, _ int) error {
		ta, tb := tableOf[float32](w, "a"), tableOf[float32](w, "b")
		both := []Wanted{ta.Rows(0, 1), tb.Rows(0, 1)}
		read := func() error {
			rows := make([]float32, 16)
			if _, err := ta.GetRows(bg, []int64{0, 1}, rows); err != nil {
				return err
			}
			_, err := tb.GetRows(bg, []int64{0, 1}, rows)
			return err
		}
		for round, c := range []struct {
			next []Wanted
			want string
		}{
			{nil, "batch 0, pull 0, pull 0, batch 1, pull 1, pull 1"},
			{both, "batch+ 0, pull 0, batch+ 1, pull 1"},
			{nil, "batch 0, pull 0, pull 0, batch 1, pull 1, pull 1"},
		} {
			s.take()
			if err := ta.Inc(0, 0, 1); err != nil {
				return err
			}
			if _, err := w.Clock(bg, c.next...); err != nil {
				return err
			}
			if err := read(); err != nil {
				return err
			}
			if got := s.take(); got != c.want {
				t.Errorf("round %d: sent %s; want %s", round, got, c.want)
			}
		}
		return w.Finish(bg)
	})
}

// The last of a round hears from the answer to its question how far the lane is, in place of a message of its own; without a question it is
// told at once, and soon where the question does not come.
func TestAnswerTells(t *testing.T) {
	p := Placement{
		Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0), clientName(1)}, ShardsEach: 1, MinShardCells: 1,
	}.withDefaults()
	d := Definition{Spec: Spec{Name: "t", Rows: 1, Cols: 4, Cell: Float32, Mode: BSP}}
	d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
	for _, c := range []struct {
		name       string
		asks, pull bool
		want       string
	}{
		{"asks", true, true, "clocks 1, values 0"},
		{"does not", false, false, "clocks 0, clocks 1"},
		{"says so, and does not", true, false, "clocks 1, clocks 0"},
	} {
		s, err := NewServerState(p, 0, ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var sent []string
		step := func(in protocol.Event) {
			for _, x := range s.Step(0, in) {
				if x, ok := x.(protocol.Send); ok && x.To != dirName() {
					what := strings.TrimPrefix(fmt.Sprintf("%T", x.Body), "*ps.")
					sent = append(sent, what+" "+x.To.ID)
				}
			}
		}
		step(protocol.Message{From: dirName(), Body: &install{config: &Config{
			Version: 1, Place: s.p.hash(), Tables: []Definition{d},
			Clients: []Member{{Name: clientName(0), Session: 1, State: Active}, {Name: clientName(1), Session: 1, State: Active}},
		}}})
		step(protocol.Message{From: clientName(1), Body: &batch{client: 1, session: 1, last: true}})
		sent = nil
		step(protocol.Message{From: clientName(0), Body: &batch{session: 1, last: true, asks: c.asks}})
		if c.pull {
			step(protocol.Message{From: clientName(0), Body: &pull{session: 1, id: 1, need: 1, secs: []section{{form: formRange, n: 4}}}})
		} else {
			step(protocol.Timer{ID: timerOwed})
		}
		if got := strings.Join(sent, ", "); got != c.want {
			t.Errorf("%s: sent %s; want %s", c.name, got, c.want)
		}
	}
}
