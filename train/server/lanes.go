package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// How many lanes a server has, where nobody says it, follows from how long a round is on its way: lanes fill the direction that would rest
// while the other works, and each costs every worker a frame more each way. Where all are on one machine, or on links as fast as memory,
// one is best: what a round takes there is processor time. So the members of a job on several machines look, before they make the tables: the
// first server has all workers send at once, as they do in a round, and tells everyone what follows.

// lanesStream is where the members look.
const lanesStream = "ps lanes"

// The frames of the look.
const (
	frameReady = iota + 1 // to the first server: this member is there; its head has the bytes of the model, where it knows them
	frameProbe            // from it to a worker: send as many bytes as Chunk says
	frameBytes            // from the worker
	frameLanes            // from the server to all: the head has a look
)

const (
	probeBytes  = 256 << 10              // that a worker sends at once, at most
	probePiece  = 64 << 10               // of a frame
	probeRounds = 3                      // of few bytes, and then of many, behind one that fills what buffers the links have
	probeLong   = 50 * time.Millisecond  // a round that takes so long says enough
	probeLimit  = 2 * time.Second        // and one that takes longer is not waited for
	probeAgain  = time.Second            // after so long, who has heard nothing asks again: a broken link may have swallowed a frame
	laneCost    = 200 * time.Microsecond // what one more takes of a round, about, of three workers and a server on two cores
	laneRate    = 800e6                  // bytes a second; faster links are as good as memory
	mostLanes   = 16                     // that are chosen: of more, each saves less than it costs
)

// A look is what was seen of the links.
type look struct {
	lanes  int
	oneWay time.Duration // that a round's bytes take to a server; 0: it was not measured
	rate   float64       // bytes a second into the first server
}

// lanesFor is how many lanes are best where a round takes that long one way: with n of them it takes oneWay·(1 + 1/n) there and back, and n times
// what one costs.
func lanesFor(oneWay time.Duration, rate float64) int {
	if rate > laneRate {
		return 1
	}
	return min(max(1, int(math.Sqrt(float64(oneWay)/float64(laneCost)))), mostLanes)
}

// looks says whether the members of a job look at their links: the same at all. Lanes help who waits for whole rounds; in exact mode they wait for
// each other; and what a codec sends depends on them, so that a job with one would have other bits on other links.
func (o Options) looks(env *train.Env, exact bool) bool {
	return o.Lanes == 0 && o.Mode == ps.BSP && !exact && o.Compress == "" && len(env.Peers) > 1 && !env.MayShareMemory
}

// look has the members look at their links, and returns what they all know then. bytes are those of the model; 0: this process does not know.
func (c *cluster) look(ctx context.Context, servers []transport.Name, bytes int) (look, error) {
	s, err := c.env.Port.Stream(lanesStream, transport.StreamOptions{})
	if err != nil {
		return look{}, err
	}
	c.closers = append(c.closers, s.Close)
	if servers[0] != c.env.Port.Name() {
		return askLook(ctx, s, servers[0], bytes, c.env.Log)
	}
	p := &prober{s: s, log: c.env.Log, bytes: bytes, servers: len(servers), missing: map[transport.Name]bool{}}
	for _, n := range c.env.Peers {
		if n != servers[0] {
			p.workers = append(p.workers, n)
			p.missing[n] = true
		}
	}
	for _, n := range servers[1:] {
		p.missing[n] = true
	}
	l, err := p.lead(ctx)
	if err != nil {
		return l, err
	}
	c.serving.Go(func() { p.repeat(l) })
	return l, nil
}

// askLook says that this member is there, sends what it is asked to, and returns what the first server has seen.
func askLook(ctx context.Context, s transport.Stream, first transport.Name, bytes int, log *slog.Logger) (look, error) {
	payload := make([]byte, probePiece)
	for {
		short, cancel := context.WithTimeout(ctx, probeAgain)
		l, err := askOnce(short, s, first, bytes, payload)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return l, err
		}
		if log != nil {
			log.Debug("server: the first server has not said how many lanes there are", "server", first)
		}
	}
}

func askOnce(ctx context.Context, s transport.Stream, first transport.Name, bytes int, payload []byte) (look, error) {
	if err := s.Send(ctx, first, transport.Frame{Kind: frameReady, Head: wire.AppendUvarint(nil, uint64(bytes))}); err != nil {
		return look{}, err
	}
	for {
		ev, err := s.Recv(ctx)
		if err != nil {
			return look{}, err
		}
		if ev.What != transport.Received || ev.From != first {
			ev.Release()
			continue
		}
		switch ev.Kind {
		case frameLanes:
			l, err := readLook(ev.Head)
			ev.Release()
			return l, err
		case frameProbe:
			left := min(int(ev.Chunk), probeBytes)
			ev.Release()
			for left > 0 {
				n := min(left, len(payload))
				left -= n
				if err := s.Send(ctx, first, transport.Frame{Kind: frameBytes, Payload: payload[:n]}); err != nil {
					return look{}, err
				}
			}
		default:
			ev.Release()
		}
	}
}

func (l look) append(p []byte) []byte {
	p = wire.AppendUvarint(p, uint64(l.lanes))
	p = wire.AppendUvarint(p, uint64(l.oneWay))
	return wire.AppendFloat64(p, l.rate)
}

func readLook(p []byte) (l look, err error) {
	r := wire.NewReader("lanes", p)
	l.lanes = int(r.Uvarint("lanes", MaxLanes))
	l.oneWay = time.Duration(r.Uvarint("one way", math.MaxInt64))
	l.rate = r.Float64("rate")
	if r.Err() == nil && l.lanes < 1 {
		r.Fail("lanes", errors.New("there are none"))
	}
	return l, r.Done()
}

// A prober is the first server's part.
type prober struct {
	s       transport.Stream
	log     *slog.Logger
	workers []transport.Name        // that send to it over a link
	missing map[transport.Name]bool // members that have not said that they are there
	there   []transport.Name        // the others
	bytes   int                     // of the model
	servers int
}

// lead waits until all are there, looks, and tells them.
func (p *prober) lead(ctx context.Context) (look, error) {
	for len(p.missing) > 0 { // a member that is lost ends ctx
		ev, err := p.s.Recv(ctx)
		if err != nil {
			return look{}, err
		}
		if err := p.hear(&ev); err != nil {
			return look{}, err
		}
	}
	l, err := p.measure(ctx)
	if err != nil {
		return l, err
	}
	for _, n := range p.there {
		if err := p.tell(ctx, n, l); err != nil {
			return l, err
		}
	}
	return l, nil
}

// hear takes a member's word that it is there.
func (p *prober) hear(ev *transport.Event) error {
	defer ev.Release()
	if ev.What != transport.Received || ev.Kind != frameReady || !p.missing[ev.From] {
		return nil
	}
	r := wire.NewReader("lanes", ev.Head)
	bytes := int(r.Uvarint("bytes", math.MaxInt))
	if err := r.Done(); err != nil {
		return fmt.Errorf("%v: %w", ev.From, err)
	}
	p.bytes = max(p.bytes, bytes)
	delete(p.missing, ev.From)
	p.there = append(p.there, ev.From)
	return nil
}

func (p *prober) tell(ctx context.Context, n transport.Name, l look) error {
	return p.s.Send(ctx, n, transport.Frame{Kind: frameLanes, Head: l.append(nil)})
}

// repeat tells those who ask again, until the stream is closed.
func (p *prober) repeat(l look) {
	for {
		ev, err := p.s.Recv(context.Background())
		if err != nil {
			return
		}
		from, again := ev.From, ev.What == transport.Received && ev.Kind == frameReady
		ev.Release()
		if !again {
			continue
		}
		short, cancel := context.WithTimeout(context.Background(), probeAgain)
		if err := p.tell(short, from, l); err != nil && p.log != nil {
			p.log.Debug("server: a member does not hear how many lanes there are", "member", from, "error", err)
		}
		cancel()
	}
}

// measure has all workers send what a round brings, or a part of it.
func (p *prober) measure(ctx context.Context) (look, error) {
	share := p.bytes / p.servers // of the model, that this server has
	size := min(share, probeBytes)
	if size < probePiece/16 || len(p.workers) == 0 {
		return look{lanes: 1}, nil
	}
	start, err := p.least(ctx, 1)
	if err != nil {
		return look{}, err
	}
	whole, err := p.round(ctx, size)
	if err == nil && (whole < probeLong || whole >= probeLimit) { // the first finds buffers empty, or a frame was lost
		whole, err = p.least(ctx, size)
	}
	if err != nil {
		return look{}, err
	}
	l := look{rate: float64(size*len(p.workers)) / max(whole-start, time.Microsecond).Seconds()}
	l.oneWay = time.Duration(float64(share*len(p.workers)) / l.rate * float64(time.Second))
	l.lanes = lanesFor(l.oneWay, l.rate)
	return l, nil
}

// least is the shortest of some rounds: what else a machine does at the start, and a frame that is lost, only make them longer.
func (p *prober) least(ctx context.Context, size int) (least time.Duration, err error) {
	for k := range probeRounds {
		took, err := p.round(ctx, size)
		if err != nil {
			return 0, err
		}
		if k == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// round has every worker send so many bytes, and returns how long it was until all were here.
func (p *prober) round(ctx context.Context, size int) (time.Duration, error) {
	short, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	begin := time.Now()
	left := map[transport.Name]int{}
	for _, n := range p.workers {
		left[n] = size
		if err := p.s.Send(ctx, n, transport.Frame{Kind: frameProbe, Key: transport.Key{Chunk: uint32(size)}}); err != nil {
			return 0, err
		}
	}
	for len(left) > 0 {
		ev, err := p.s.Recv(short)
		switch {
		case err == nil:
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return probeLimit, nil
		default:
			return 0, err
		}
		if n, ok := left[ev.From]; ok && ev.What == transport.Received && ev.Kind == frameBytes {
			left[ev.From] = n - len(ev.Payload)
		}
		ev.Release()
		maps.DeleteFunc(left, func(_ transport.Name, n int) bool { return n <= 0 })
	}
	return time.Since(begin), nil
}

// say notes what was seen, where it matters.
func (l look) say(run *train.Run) {
	if l.lanes < 2 {
		return
	}
	run.Notice(observe.Info, "lanes", fmt.Sprintf("each server is of %d lanes: a round of all workers takes %v one way, at %.0f MB/s",
		l.lanes, l.oneWay.Round(100*time.Microsecond), l.rate/1e6))
}
