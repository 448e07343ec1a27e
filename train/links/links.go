// Package links measures the links between the workers of a job: round trips, rates, and what a message and a byte cost. It is a strategy
// that trains nothing, so that what it sees is what a strategy will see: the same processes, transport, security and machines.
package links

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// Options of the measurement. The zero value works.
type Options struct {
	For   time.Duration `json:"for,omitempty"`   // of each measurement; 0: 100 ms
	Sizes []int         `json:"sizes,omitempty"` // of the payloads whose rate is measured, in bytes; none: 64 KiB, 1 MiB and 4 MiB
}

// A Result is what was measured: at rank 0.
type Result struct {
	Links    []Link           `json:"links"`    // every ordered pair of ranks, one at a time
	Exchange []float64        `json:"exchange"` // bytes/s that each rank sent while all sent to all
	Costs    collective.Costs `json:"costs"`    // of a collective operation, as it is planned with
}

// A Link is one direction between two ranks.
type Link struct {
	From  int              `json:"from"`
	To    int              `json:"to"`
	RTT   [3]time.Duration `json:"round_trip_ns"` // of 64 bytes there and back: the median, the 99th percentile, the longest
	Sizes []int            `json:"payload_bytes"`
	Rates []float64        `json:"bytes_per_second"` // of payload, by size
}

const (
	maxPayload = 4 << 20
	pingBytes  = 64
)

// The kinds of frame. Rank 0 gives the turns; who has the turn measures, and the others answer.
const (
	kindTurn     uint8 = iota + 1 // rank 0: measure your link to the rank in Chunk
	kindExchange                  // rank 0: send to all
	kindPing
	kindPong
	kindData
	kindMark // the last of a row of data: answer it
	kindAck
	kindDone // to rank 0: the turn's result
	kindEnd  // rank 0: that was all
)

// A Strategy measures, as one of the workers.
type Strategy struct {
	env    train.Env
	o      Options
	result Result
}

// New returns the strategy.
func New(env train.Env, o Options) *Strategy {
	if o.For == 0 {
		o.For = 100 * time.Millisecond
	}
	if len(o.Sizes) == 0 {
		o.Sizes = []int{64 << 10, 1 << 20, 4 << 20}
	}
	return &Strategy{env: env, o: o}
}

// Result is what was measured, once Train has returned, at rank 0.
func (s *Strategy) Result() Result { return s.result }

// Report is Result as JSON.
func (s *Strategy) Report() ([]byte, error) { return json.Marshal(s.result) }

var _ trivium.Strategy = (*Strategy)(nil)

// Train measures. job is not looked at.
func (s *Strategy) Train(ctx context.Context, _ *trivium.Job) (trivium.Result, error) {
	if err := s.measure(ctx); err != nil {
		return trivium.Result{Reason: trivium.Failed}, fmt.Errorf("links: %w", err)
	}
	return trivium.Result{Reason: trivium.Finished}, nil
}

func (s *Strategy) measure(ctx context.Context) error {
	for _, n := range s.o.Sizes {
		if n < 1 || n > maxPayload {
			return &train.JobError{Err: fmt.Errorf("a payload of %d bytes: want 1 to %d", n, maxPayload)}
		}
	}
	costs, err := s.calibrate(ctx)
	if err != nil {
		return err
	}
	stream, err := s.env.Port.Stream("links", transport.StreamOptions{MaxFrame: maxPayload + 1<<10, Window: 4 * maxPayload})
	if err != nil {
		return err
	}
	defer stream.Close()
	p := &party{env: &s.env, o: s.o, s: stream, payload: make([]byte, slices.Max(s.o.Sizes))}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.answers = make(chan transport.Event, len(s.env.Peers)) // one from each at most
	p.turns = make(chan turn, 1)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel(nil)
	wait.Go(func() { cancel(p.listen(inner)) })
	if s.env.Rank != 0 {
		return p.follow(inner)
	}
	r := Result{Costs: costs, Exchange: make([]float64, len(s.env.Peers))}
	if err := p.lead(inner, &r); err != nil {
		return err
	}
	s.result = r
	return nil
}

// calibrate has the collectives measure what they plan with.
func (s *Strategy) calibrate(ctx context.Context) (collective.Costs, error) {
	stream, err := s.env.Port.Stream("calibration", transport.StreamOptions{})
	if err != nil {
		return collective.Costs{}, err
	}
	defer stream.Close()
	g, err := collective.New(stream, collective.View{Epoch: s.env.Epoch, Peers: s.env.Peers, Self: s.env.Rank}, collective.Options{})
	if err != nil {
		return collective.Costs{}, err
	}
	defer g.Close()
	return g.Calibrate(ctx)
}

// A party is one rank.
type party struct {
	env     *train.Env
	o       Options
	s       transport.Stream
	payload []byte
	answers chan transport.Event // pongs, acks and results, released by who takes them
	turns   chan turn
}

// A turn is what rank 0 asks for. to < 0: send to all.
type turn struct{ to int }

var errEnd = errors.New("measured")

// listen answers the others, and hands on what is for this rank.
func (p *party) listen(ctx context.Context) error {
	for {
		ev, err := p.s.Recv(ctx)
		if err != nil {
			return err
		}
		if ev.What == transport.LinkLost && slices.Contains(p.env.Peers, ev.From) {
			return &train.LostError{Peer: ev.From, Why: fmt.Sprint(ev.Err)}
		}
		var answer uint8
		switch ev.Kind {
		case kindPing:
			answer = kindPong
		case kindMark:
			answer = kindAck
		case kindTurn:
			p.turns <- turn{int(ev.Chunk)}
		case kindExchange:
			p.turns <- turn{-1}
		case kindEnd:
			ev.Release()
			return errEnd
		case kindPong, kindAck, kindDone:
			select {
			case p.answers <- ev:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		from := ev.From
		ev.Release()
		if answer != 0 && ev.What == transport.Received {
			if err := p.s.Send(ctx, from, transport.Frame{Kind: answer, Priority: transport.Urgent}); err != nil {
				return err
			}
		}
	}
}

// follow takes turns until rank 0 ends it.
func (p *party) follow(ctx context.Context) error {
	for {
		select {
		case t := <-p.turns:
			head, err := p.take(ctx, t)
			if err != nil {
				return err
			}
			if err := p.s.Send(ctx, p.env.Peers[0], transport.Frame{Kind: kindDone, Head: head}); err != nil {
				return err
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errEnd) {
				return cause
			}
			return nil
		}
	}
}

// lead gives everyone their turns, itself too.
func (p *party) lead(ctx context.Context, r *Result) error {
	n := len(p.env.Peers)
	for from := range n {
		for to := range n {
			if from == to {
				continue
			}
			head, err := p.turnOf(ctx, from, turn{to})
			if err != nil {
				return err
			}
			l, err := decodeLink(head, p.o.Sizes)
			if err != nil {
				return err
			}
			l.From, l.To = from, to
			r.Links = append(r.Links, l)
		}
	}
	if n > 1 {
		if err := p.exchange(ctx, r); err != nil {
			return err
		}
	}
	for _, peer := range p.env.Peers[1:] {
		if err := p.s.Send(ctx, peer, transport.Frame{Kind: kindEnd}); err != nil {
			return err
		}
	}
	return nil
}

// turnOf has a rank take a turn, and returns its result.
func (p *party) turnOf(ctx context.Context, rank int, t turn) ([]byte, error) {
	if rank == 0 {
		return p.take(ctx, t)
	}
	err := p.s.Send(ctx, p.env.Peers[rank], transport.Frame{Kind: kindTurn, Key: transport.Key{Chunk: uint32(t.to)}})
	if err != nil {
		return nil, err
	}
	ev, err := p.answer(ctx, kindDone)
	if err != nil {
		return nil, err
	}
	defer ev.Release()
	return slices.Clone(ev.Head), nil
}

// exchange has all send to all.
func (p *party) exchange(ctx context.Context, r *Result) error {
	for _, peer := range p.env.Peers[1:] {
		if err := p.s.Send(ctx, peer, transport.Frame{Kind: kindExchange}); err != nil {
			return err
		}
	}
	own, err := p.take(ctx, turn{-1})
	if err != nil {
		return err
	}
	r.Exchange[0] = wire.NewReader("rate", own).Float64("rate")
	for range p.env.Peers[1:] {
		ev, err := p.answer(ctx, kindDone)
		if err != nil {
			return err
		}
		r.Exchange[slices.Index(p.env.Peers, ev.From)] = wire.NewReader("rate", ev.Head).Float64("rate")
		ev.Release()
	}
	return nil
}

// answer waits for the next answer, which must be of that kind.
func (p *party) answer(ctx context.Context, kind uint8) (transport.Event, error) {
	select {
	case ev := <-p.answers:
		if ev.Kind != kind {
			ev.Release()
			return ev, fmt.Errorf("an answer of kind %d from %v, want %d", ev.Kind, ev.From, kind)
		}
		return ev, nil
	case <-ctx.Done():
		return transport.Event{}, context.Cause(ctx)
	}
}

// take takes a turn and returns its result as bytes.
func (p *party) take(ctx context.Context, t turn) ([]byte, error) {
	if t.to < 0 {
		return p.sendToAll(ctx)
	}
	if t.to >= len(p.env.Peers) {
		return nil, fmt.Errorf("there is no rank %d", t.to)
	}
	to := p.env.Peers[t.to]
	var l Link
	var times []time.Duration
	ping := make([]byte, pingBytes)
	for start := time.Now(); len(times) < 20 || time.Since(start) < p.o.For && len(times) < 100_000; {
		began := time.Now()
		if err := p.s.Send(ctx, to, transport.Frame{Kind: kindPing, Priority: transport.Urgent, Payload: ping}); err != nil {
			return nil, err
		}
		ev, err := p.answer(ctx, kindPong)
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		ev.Release()
	}
	times = times[len(times)/10:] // the first open the connection
	slices.Sort(times)
	l.RTT = [3]time.Duration{times[len(times)/2], times[len(times)*99/100], times[len(times)-1]}
	for _, size := range p.o.Sizes {
		if _, err := p.row(ctx, to, size, p.o.For/5); err != nil { // warm
			return nil, err
		}
		rate, err := p.row(ctx, to, size, p.o.For)
		if err != nil {
			return nil, err
		}
		l.Rates = append(l.Rates, rate)
	}
	return l.append(nil), nil
}

// row sends payloads of that size for so long and returns the rate, until the last is confirmed.
func (p *party) row(ctx context.Context, to transport.Name, size int, long time.Duration) (float64, error) {
	start := time.Now()
	var sent float64
	for sent == 0 || time.Since(start) < long {
		if err := p.s.Send(ctx, to, transport.Frame{Kind: kindData, Payload: p.payload[:size]}); err != nil {
			return 0, err
		}
		sent += float64(size)
	}
	if err := p.s.Send(ctx, to, transport.Frame{Kind: kindMark}); err != nil {
		return 0, err
	}
	ev, err := p.answer(ctx, kindAck)
	if err != nil {
		return 0, err
	}
	ev.Release()
	return sent / time.Since(start).Seconds(), nil
}

// sendToAll sends to all others at once, in turn.
func (p *party) sendToAll(ctx context.Context) ([]byte, error) {
	start := time.Now()
	size := min(1<<20, len(p.payload))
	var sent float64
	for sent == 0 || time.Since(start) < 3*p.o.For {
		for i, to := range p.env.Peers {
			if i == p.env.Rank {
				continue
			}
			if err := p.s.Send(ctx, to, transport.Frame{Kind: kindData, Payload: p.payload[:size]}); err != nil {
				return nil, err
			}
			sent += float64(size)
		}
	}
	for i, to := range p.env.Peers {
		if i != p.env.Rank {
			if err := p.s.Send(ctx, to, transport.Frame{Kind: kindMark}); err != nil {
				return nil, err
			}
		}
	}
	var done []transport.Event // rank 0 may hear of results in between
	for range len(p.env.Peers) - 1 {
		ev, err := p.ackOr(ctx, &done)
		if err != nil {
			return nil, err
		}
		ev.Release()
	}
	rate := sent / time.Since(start).Seconds()
	for _, ev := range done {
		p.answers <- ev // there is room for one of each
	}
	return wire.AppendFloat64(nil, rate), nil
}

// ackOr waits for an acknowledgement, and keeps results that come before it.
func (p *party) ackOr(ctx context.Context, done *[]transport.Event) (transport.Event, error) {
	for {
		select {
		case ev := <-p.answers:
			if ev.Kind == kindDone {
				*done = append(*done, ev)
				continue
			}
			return ev, nil
		case <-ctx.Done():
			return transport.Event{}, context.Cause(ctx)
		}
	}
}

func (l *Link) append(p []byte) []byte {
	for _, d := range l.RTT {
		p = wire.AppendUvarint(p, uint64(d))
	}
	return wire.AppendFloat64s(p, l.Rates)
}

func decodeLink(p []byte, sizes []int) (Link, error) {
	r := wire.NewReader("link", p)
	l := Link{Sizes: sizes}
	for i := range l.RTT {
		l.RTT[i] = time.Duration(r.Uvarint("round trip", 1<<62))
	}
	l.Rates = r.Float64s("rates", len(sizes))
	if err := r.Done(); err != nil {
		return l, err
	}
	if len(l.Rates) != len(sizes) {
		return l, fmt.Errorf("%d rates of %d sizes", len(l.Rates), len(sizes))
	}
	return l, nil
}
