package ps

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/internal/finite"
)

// A Worker is one training thread. It and its tables belong to one goroutine.
type Worker struct {
	s   *WorkerState
	d   Driver
	saw func(table string, v Clock, cached bool) // nil: nobody wants to know

	waits func(staleness Clock, behind bool) // nil: likewise
	came  func()
}

// A Driver runs a ClientState for its workers: a Client over a network, or a simulator. What Call's argument is, ClientState knows.
type Driver interface {
	sync.Locker // the state's: held for short, by calls that the cache answers
	// Call gives arg to the state as a protocol.Call and returns its answer. When ctx ends first, it withdraws the call.
	Call(ctx context.Context, arg any) (any, error)
}

// NewWorker asks the client that d drives for a worker. Client.Worker is what programs call.
func NewWorker(ctx context.Context, d Driver) (*Worker, error) {
	r, err := d.Call(ctx, workerCall{})
	if err != nil {
		return nil, err
	}
	return &Worker{s: r.(*WorkerState), d: d}, nil
}

// Index is the number of the worker in its client.
func (w *Worker) Index() int { return w.s.index }

// Now is the worker's clock: the rounds that it has finished.
func (w *Worker) Now() Clock { return w.s.clock }

// Lead is how many rounds the worker is ahead of the slowest, as far as its client has heard: of the round that it has just ended it may not
// have.
func (w *Worker) Lead() Clock {
	w.d.Lock()
	defer w.d.Unlock()
	return max(w.s.clock-w.s.c.ended(), 0)
}

// ended is how many rounds all workers of the job have ended, as far as the client has heard: of those that a lane holds of all clients, each
// is ended, whatever other lanes have told.
func (c *ClientState) ended() (m Clock) {
	for _, l := range c.lanes {
		m = max(m, l.m)
	}
	return m
}

// KeepState says how a snapshot gets what the worker needs to go on: f is called within Clock, at the snapshot's round. A snapshot in which
// a client's workers keep more than 512 KiB fails.
func (w *Worker) KeepState(f func() []byte) {
	w.d.Lock()
	w.s.state = f
	w.d.Unlock()
}

// OnRead has f called after each read of a table with the value clock that the read returns: Now less that is how stale it was. cached: the
// client had all of it, perhaps since it was asked for ahead; else a server was waited for. f is called by the worker's goroutine.
func (w *Worker) OnRead(f func(table string, v Clock, cached bool)) { w.saw = f }

// OnWait has begin called before a read asks the servers, and end after the answer, both by the worker's goroutine. staleness is the table's,
// in rounds, 0 under BSP and ASP. behind: others have not ended all rounds that the read needs, as far as the client has heard, so that it
// waits for them, and not for the way of the answer alone. Nil functions end that.
func (w *Worker) OnWait(begin func(staleness Clock, behind bool), end func()) {
	w.waits, w.came = begin, end
}

// Waited is for how long each other client has held this worker up. What a read, Clock or Barrier waits for a round of others is counted at
// the client that was the last to end it, whole, with the way of that round and of the answer; where it waits for several rounds, at the last
// of each. Who held it up for no time is left out, as is a call that still waits. Any goroutine may ask.
func (w *Worker) Waited() map[Name]time.Duration {
	w.d.Lock()
	defer w.d.Unlock()
	by := map[Name]time.Duration{}
	for i, d := range w.s.waited {
		if d > 0 {
			by[w.s.c.config.Clients[i].Name] = d
		}
	}
	return by
}

// Clock ends the round: what was added is sent. It waits only for Lead, and for room in flight and at the servers, which keep what is of
// BSP tables until the others' rounds are there, and returns the new clock. A delta
// that is no number makes it fail, as deltas do whose sum is none, and nothing is sent. Where ctx ends first the round is ended all the same.
//
// With the round goes the question for next, which is what the next one reads: as Table.Prefetch would ask, but for all tables at once, and
// in the write that sends the round.
func (w *Worker) Clock(ctx context.Context, next ...Wanted) (Clock, error) {
	return w.end(ctx, clockCall{w: w.s, next: w.silent(next)})
}

// Barrier is Clock, and waits until all workers have ended as many rounds. Where workers of one client wait in it after unequal numbers of
// rounds, each of them gets an error, and the last to come has not ended its round; those of another client look slow, and are waited for.
// What is read afterwards may lack some of the rounds as before, as its table's mode has it: all are in it once Staleness more rounds have ended.
func (w *Worker) Barrier(ctx context.Context) error {
	_, err := w.end(ctx, clockCall{w: w.s, barrier: true})
	return err
}

func (w *Worker) end(ctx context.Context, x clockCall) (Clock, error) {
	if _, err := w.d.Call(ctx, x); err != nil {
		return w.s.clock, err
	}
	return w.s.clock, nil
}

// Finish ends the worker: what it added since the last Clock is its last round, and it counts as finished with every later one. The
// client's last worker returns once all is held.
func (w *Worker) Finish(ctx context.Context) error {
	_, err := w.d.Call(ctx, finishCall{w.s})
	return err
}

// Weight tells what the round's sums are to be divided by: the server adds the weights of all, along the tree of their parts, and
// divides the sum of a row's deltas once. In a round where nobody calls it, nothing is divided; counts never are. A weight is 0 or more. Where
// they add up to 0 there is no mean, and the round changes counts alone.
func (w *Worker) Weight(part int, sum float64) error {
	if part < 0 || part > maxPart || !finite.Is(sum) || sum < 0 {
		return fmt.Errorf("ps: weight %v of part %d: want a number of 0 or more, and 0 or the Node of a shards.Subtree", sum, part)
	}
	w.d.Lock()
	defer w.d.Unlock()
	ws := w.s.now.weights
	for i := range ws {
		if ws[i].part == uint32(part) {
			if !finite.Is(ws[i].sum + sum) {
				return fmt.Errorf("ps: weight %v of part %d: with the %v that worker %d of %s gave it in round %d it is no number", sum, part, ws[i].sum, w.s.index, w.s.c.self, w.s.clock)
			}
			ws[i].sum += sum
			return nil
		}
	}
	w.s.now.weights = append(ws, weight{uint32(part), sum})
	return nil
}

const maxPart = 1 << 30
