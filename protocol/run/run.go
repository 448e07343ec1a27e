// Package run drives one protocol machine over a real network: the thin loop around package protocol's pure core.
//
// A [Loop] owns its machine. One goroutine feeds it events in order (frames of a [transport.Stream], timers, calls, what was computed
// and stored, answers of the metadata store) and does what it commands. A [Codec] turns the machine's messages into frames and back:
//
//	l, err := run.Start(ctx, machine, stream, run.Options{Codec: codec, Report: func(fact any) { log.Info(...) }})
//	answer, err := l.Call(ctx, request{...})
//	err = l.Stop(ctx) // asks the machine to end, and waits until it has
//
// Nothing that a machine commands blocks its loop: each peer has a queue and a goroutine that sends, as long as it is spoken to, a write to
// the disk waits behind the others, and each call of the metadata store has a goroutine. All of them have ended when Wait returns. The loop
// closes nothing that it was given.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A Codec turns a machine's messages into frames and back. Its methods are called from several goroutines at once.
type Codec interface {
	// Encode sets f's fields. It appends the head to f.Head, which comes empty, with room that is used again; f.Payload may be the
	// body's own memory. It leaves Done alone.
	Encode(b protocol.Body, f *transport.Frame) error
	// Decode makes a message of what came. If the message keeps ev.Head or ev.Payload, kept is true, and whoever uses the message calls
	// Release on its copy of ev in the end. A nil body is dropped: the frame was not for the machine.
	Decode(ev *transport.Event) (b protocol.Body, kept bool, err error)
}

// Meta asks the metadata store: it walks the answers to c, of which all but a watch have one. A walk that ends without any means
// protocol.ErrUnavailable.
type Meta func(ctx context.Context, c protocol.MetaCall) iter.Seq2[protocol.MetaKV, error]

// A Disk keeps what a machine stores. A blob.Store is one.
type Disk interface {
	Put(ctx context.Context, key string, r io.Reader) error
}

// Options of a Loop. The zero value works for a machine that sends, stores and asks nothing.
type Options struct {
	Codec  Codec                         // needed with a stream
	Meta   Meta                          // nil: a MetaCall is answered by protocol.ErrUnavailable
	Disk   Disk                          // nil: a Store is answered by ErrNoDisk
	Report func(fact any)                // gets each Report, on the loop's goroutine: it must not block, nor call the Loop
	Log    *slog.Logger                  // frames that are not understood, and messages that could not be sent; nil discards
	Queue  int                           // messages that may wait for one peer; one more is dropped, and LinkLost tells the machine; 0: 4,096
	Linger time.Duration                 // for which what was sent before Exit may still go out; 0: 1 s
	Grace  time.Duration                 // for which a machine may take to answer Stop with Exit when ctx ends; 0: 2 s
	Clock  func() (passed time.Duration) // since the loop began; nil: the monotonic clock. It never falls
}

var (
	// ErrEnded: the machine has ended, and answers no calls.
	ErrEnded = errors.New("run: the machine has ended")
	// ErrNoDisk answers a Store where Options has no Disk.
	ErrNoDisk = errors.New("run: there is no disk")
	// ErrQueueFull is the cause of a LinkLost: messages to that peer were dropped, as too many wait for it.
	ErrQueueFull = errors.New("run: too many messages wait for the peer")
	// ErrNoExit: the machine was asked to end and did not in time.
	ErrNoExit = errors.New("run: the machine did not end in time")
)

// A Loop runs one machine. Its methods may be called from any goroutine.
type Loop struct {
	m    protocol.Machine
	s    transport.Stream
	o    Options
	self protocol.Name

	ctx     context.Context // of all that the loop starts
	cancel  context.CancelFunc
	begun   time.Time
	in      chan input
	stop    chan struct{} // closed to ask for Stop
	stopped sync.Once
	kill    chan struct{} // closed to end without the machine's Exit
	killed  sync.Once
	ending  chan struct{} // closed when the loop takes no more events
	done    chan struct{} // closed when all has ended
	err     error         // valid after done

	// What only the loop's goroutine touches.
	local  []protocol.Event // made by commands, to be handled before anything else
	timers timers
	peers  map[protocol.Name]*peer
	disk   *diskQueue
	exit   *protocol.Exit
	wg     sync.WaitGroup // goroutines of the loop

	mu    sync.Mutex
	calls map[uint64]chan answer // under way
	last  uint64
}

// input is an event from another goroutine.
type input struct {
	ev   protocol.Event
	call uint64 // of a Call, so that one that nobody waits for any more is not begun
}

type answer struct {
	result any
	err    error
}

// Start begins to run m. When ctx ends, m gets a Stop and has Options.Grace to exit. s may be nil for a machine that sends nothing.
func Start(ctx context.Context, m protocol.Machine, s transport.Stream, o Options) (*Loop, error) {
	if s != nil && o.Codec == nil {
		return nil, errors.New("run: Options.Codec is nil, which must code the messages of the stream")
	}
	if o.Queue == 0 {
		o.Queue = 4096
	}
	if o.Linger == 0 {
		o.Linger = time.Second
	}
	if o.Grace == 0 {
		o.Grace = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{
		m: m, s: s, o: o, begun: time.Now(), in: make(chan input, 256), stop: make(chan struct{}),
		kill: make(chan struct{}), ending: make(chan struct{}), done: make(chan struct{}),
		peers: map[protocol.Name]*peer{}, calls: map[uint64]chan answer{},
	}
	if s != nil {
		l.self = s.Self()
	}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if s != nil {
		l.wg.Go(l.receive)
	}
	go l.run(ctx)
	return l, nil
}

// Call asks the machine and waits for its Answer.
func (l *Loop) Call(ctx context.Context, arg any) (any, error) {
	ch := make(chan answer, 1)
	l.mu.Lock()
	if l.calls == nil {
		l.mu.Unlock()
		return nil, ErrEnded
	}
	l.last++
	id := l.last
	l.calls[id] = ch
	l.mu.Unlock()
	l.put(ctx, input{ev: protocol.Call{ID: id, Arg: arg}, call: id}) // if the loop ends, it answers
	select {
	case a := <-ch:
		return a.result, a.err
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.calls, id)
		l.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

// Stop asks the machine to end, and waits until it has. If ctx ends first, the loop ends without it, with ErrNoExit.
func (l *Loop) Stop(ctx context.Context) error {
	l.askStop()
	select {
	case <-l.done:
	case <-ctx.Done():
		l.killed.Do(func() { close(l.kill) })
		<-l.done
	}
	return l.err
}

func (l *Loop) askStop() { l.stopped.Do(func() { close(l.stop) }) }

// Wait waits until the machine has ended and nothing of the loop runs any more, and returns the error of the machine's Exit.
func (l *Loop) Wait() error {
	<-l.done
	return l.err
}

// put gives the loop an event from another goroutine: false if the loop, or ctx, has ended.
func (l *Loop) put(ctx context.Context, in input) bool {
	select {
	case l.in <- in:
		return true
	case <-l.ending:
	case <-l.ctx.Done():
	case <-ctx.Done():
	}
	return false
}

func (l *Loop) now() time.Duration {
	if l.o.Clock != nil {
		return l.o.Clock()
	}
	return time.Since(l.begun)
}

// run is the loop.
func (l *Loop) run(ctx context.Context) {
	defer close(l.done)
	clock := time.NewTimer(time.Hour) // ring sets it
	defer clock.Stop()
	grace := time.NewTimer(time.Hour)
	grace.Stop()
	defer grace.Stop()
	sweep := time.NewTicker(idleAfter)
	defer sweep.Stop()
	ended, stop := ctx.Done(), l.stop
	l.step(protocol.Start{})
	for l.exit == nil {
		l.ring(clock)
		if l.exit != nil {
			break
		}
		select {
		case in := <-l.in:
			if in.call == 0 || l.wanted(in.call) {
				l.step(in.ev)
			}
		case <-clock.C:
		case <-sweep.C:
			l.sweep()
		case <-stop:
			stop = nil
			l.step(protocol.Stop{})
		case <-ended:
			ended = nil
			grace.Reset(l.o.Grace)
			l.askStop()
		case <-grace.C:
			l.exit = &protocol.Exit{Err: fmt.Errorf("%w: %v after its context ended: %w", ErrNoExit, l.o.Grace, context.Cause(ctx))}
		case <-l.kill:
			l.exit = &protocol.Exit{Err: ErrNoExit}
		}
	}
	l.err = l.exit.Err
	l.end()
}

// ring handles the timers that have run out, and sets the clock for the next one. Those that this sets come after what else waits.
func (l *Loop) ring(clock *time.Timer) {
	last := l.timers.last
	for l.exit == nil {
		next, any := l.timers.next()
		if !any {
			clock.Stop()
			return
		}
		if wait := next.at - l.now(); wait > 0 || next.seq > last {
			clock.Reset(wait)
			return
		}
		l.step(protocol.Timer{ID: l.timers.pop()})
	}
}

// step gives an event to the machine, and then those that come of its commands.
func (l *Loop) step(ev protocol.Event) {
	l.handle(ev)
	taken := 0
	for taken < len(l.local) { // which may grow
		l.handle(l.local[taken])
		taken++
	}
	clear(l.local)
	l.local = l.local[:0]
}

func (l *Loop) handle(ev protocol.Event) {
	if l.exit != nil {
		return
	}
	now := l.now()
	for _, c := range l.m.Step(now, ev) {
		if l.command(now, c); l.exit != nil {
			return
		}
	}
}

func (l *Loop) command(now time.Duration, c protocol.Command) {
	switch c := c.(type) {
	case protocol.Send:
		l.send(&c)
	case protocol.SetTimer:
		l.timers.set(c.ID, now, c.After)
	case protocol.Answer:
		l.answer(c)
	case protocol.Compute:
		l.wg.Go(func() {
			if c.Work != nil {
				c.Work()
			}
			l.put(l.ctx, input{ev: protocol.Computed{ID: c.ID}})
		})
	case protocol.Store:
		l.store(c)
	case protocol.MetaCall:
		l.wg.Go(func() { l.ask(c) })
	case protocol.Report:
		if l.o.Report != nil {
			l.o.Report(c.Fact)
		}
	case protocol.Exit:
		l.exit = &c
	default:
		l.exit = &protocol.Exit{Err: fmt.Errorf("run: the machine commands a %T, which this loop does not know", c)}
	}
}

func (l *Loop) wanted(call uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[call] != nil
}

func (l *Loop) answer(a protocol.Answer) {
	l.mu.Lock()
	ch := l.calls[a.ID]
	delete(l.calls, a.ID)
	l.mu.Unlock()
	if ch != nil {
		ch <- answer{a.Result, a.Err}
	}
}

// end lets what was sent go out, ends everything else, and waits for it.
func (l *Loop) end() {
	close(l.ending)
	l.mu.Lock()
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, ch := range calls {
		ch <- answer{nil, l.because()}
	}
	linger := time.AfterFunc(l.o.Linger, l.cancel)
	for _, p := range l.peers {
		p.close()
	}
	for _, p := range l.peers {
		<-p.ended
	}
	if l.disk != nil {
		l.disk.close()
		<-l.disk.ended
	}
	linger.Stop()
	l.cancel()
	l.wg.Wait()
	for {
		select {
		case in := <-l.in:
			discard(in.ev)
		default:
			return
		}
	}
}

// discard drops an event that the machine will not get.
func discard(ev protocol.Event) {
	if m, ok := ev.(protocol.Message); ok {
		if r, ok := m.Body.(interface{ Release() }); ok {
			r.Release()
		}
	}
}

func (l *Loop) because() error {
	if l.err == nil {
		return ErrEnded
	}
	return fmt.Errorf("%w: %w", ErrEnded, l.err)
}

// ask asks the metadata store, and passes the answers on.
func (l *Loop) ask(c protocol.MetaCall) {
	answered := false
	if l.o.Meta != nil {
		for kv, err := range l.o.Meta(l.ctx, c) {
			answered = true
			if !l.put(l.ctx, input{ev: protocol.MetaReply{ID: c.ID, KV: kv, Err: err}}) {
				return
			}
			if c.Op != protocol.MetaWatch {
				return
			}
		}
	}
	if !answered || c.Op == protocol.MetaWatch {
		l.put(l.ctx, input{ev: protocol.MetaReply{ID: c.ID, KV: protocol.MetaKV{Key: c.Key}, Err: protocol.ErrUnavailable}})
	}
}
