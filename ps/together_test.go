package ps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
