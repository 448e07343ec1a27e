package exec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A wait is a continuation of one step: a node that began and will report once.
type wait struct {
	started, done bool
}

// A report is what a continuation says.
type report struct {
	i   int
	out []*tensor.Tensor
	err error
}

// execSegments starts continuations as soon as their operands are there, and runs segments as soon as what they wait for is. Only the
// caller of Run ever waits.
func (x *instance) execSegments(ctx context.Context) {
	step, cancel := context.WithTimeoutCause(ctx, x.p.o.StepDeadline, fmt.Errorf("the step's deadline of %v is over", x.p.o.StepDeadline))
	defer cancel()
	s := &stepper{
		x: x, ctx: step, reports: make(chan report, len(x.p.blocking)),
		waits: make([]wait, len(x.p.blocking)), done: make([]bool, len(x.parts)),
	}
	for s.advance() {
		s.take(<-s.reports)
	}
	cancel()
	for range s.pending {
		s.take(<-s.reports)
	}
}

// A stepper is the progress of one step through segments and continuations.
type stepper struct {
	x       *instance
	ctx     context.Context
	reports chan report
	waits   []wait
	done    []bool
	pending int
}

// advance does all that can be done now; false when the step is over.
func (s *stepper) advance() bool {
	for progress := true; progress; {
		if s.x.failed.Load() {
			return false
		}
		progress = false
		for i, n := range s.x.p.blocking {
			if !s.waits[i].started && s.present(n) {
				s.waits[i].started, progress = true, true
				s.pending++
				s.start(i, n)
			}
		}
		for {
			select {
			case r := <-s.reports:
				s.take(r)
				progress = true
				continue
			default:
			}
			break
		}
		for i := range s.x.parts {
			if !s.done[i] && s.runnable(s.x.parts[i].seg) {
				s.x.execPart(&s.x.parts[i])
				s.done[i], progress = true, true
				break // what was sent may have woken others: look at continuations first
			}
		}
	}
	return s.pending > 0
}

// present says whether the operands of a continuation are there.
func (s *stepper) present(n *node) bool {
	ok := true
	n.sources(func(m *node) {
		if m.effect() == graph.Blocking {
			for i, b := range s.x.p.blocking {
				ok = ok && (b != m || s.waits[i].done)
			}
		} else {
			ok = ok && s.done[m.segment]
		}
	})
	return ok
}

func (s *stepper) runnable(g *segment) bool {
	for _, i := range g.waits {
		if !s.waits[i].done {
			return false
		}
	}
	for _, i := range g.from {
		if !s.done[i] {
			return false
		}
	}
	return true
}

// take books a report.
func (s *stepper) take(r report) {
	s.pending--
	x, n := s.x, s.x.p.blocking[r.i]
	s.waits[r.i].done = true
	if r.err == nil {
		r.err = x.arrive(n, r.out)
	}
	if r.err != nil && !x.failed.Load() {
		x.fail(&NodeError{Node: n.name(), Op: n.op, Device: x.p.o.Device, Step: x.run.step.ID, Written: x.written(), Err: r.err})
	}
}

// arrive makes what a continuation gave the node's results.
func (x *instance) arrive(n *node, out []*tensor.Tensor) error {
	for k, s := range x.values[n.seq] {
		t := out[k]
		if t.DType() != s.dt || !sameSizes(t.Shape(), s.dims) {
			return fmt.Errorf("output %d is %v%v, want %v%v", k, t.DType(), t.Shape(), s.dt, tensor.Shape(s.dims))
		}
		s.p = pointer(t)
	}
	x.follow(x.later[n])
	return nil
}

// start begins a continuation, unless an earlier attempt at this step finished it. Where one is under way, it waits for that.
func (s *stepper) start(i int, n *node) {
	x := s.x
	begun := time.Now()
	w := x.memory(n)
	if w != nil {
		values, done, other := w.take()
		switch {
		case done:
			s.reports <- report{i, values, nil}
			return
		case other != nil:
			go func() {
				select {
				case <-other:
					s.start(i, n)
				case <-s.ctx.Done():
					s.reports <- report{i, nil, fmt.Errorf("another attempt at the step waits for it: %w", context.Cause(s.ctx))}
				}
			}()
			return
		}
	}
	done := func(out []*tensor.Tensor, err error) {
		if w != nil {
			w.end(out, err)
		}
		if err == nil && x.p.o.Trace != nil {
			x.p.o.Trace(TraceEvent{Node: n.name(), Op: n.op, Device: x.p.o.Device, Step: x.run.step.ID, Tiles: 1, Start: begun, Took: time.Since(begun), Bytes: bytesOf(out)})
		}
		s.reports <- report{i, out, err}
	}
	x.begin(s.ctx, n, done)
}

func bytesOf(ts []*tensor.Tensor) (n int64) {
	for _, t := range ts {
		n += int64(len(t.Bytes()))
	}
	return n
}

// begin hands a continuation to its queue, accumulator or Rendezvous.
func (x *instance) begin(ctx context.Context, n *node, done func([]*tensor.Tensor, error)) {
	state := x.run.state
	if state == nil && n.op != "Recv" {
		done(nil, errors.New("needs a State"))
		return
	}
	switch n.op {
	case "Enqueue":
		entry := make([]*tensor.Tensor, len(n.in))
		for k, r := range n.in {
			entry[k] = x.slot(r).tensor().Clone()
		}
		state.queue(x.resourceOf(n)).put(ctx, entry, done)
	case "Dequeue":
		state.queue(x.resourceOf(n)).take(ctx, done)
	case "AccumTake":
		state.accumulator(x.resourceOf(n)).take(ctx, flat[int64](x.slot(n.in[0]))[0], done)
	case "Recv":
		x.p.o.Rendezvous.Recv(ctx, x.key(n), func(t *tensor.Tensor, err error) {
			if err != nil {
				err = fmt.Errorf("from %s: %w", n.attr("peer").S, err)
			}
			done([]*tensor.Tensor{t}, err)
		})
	default:
		done(nil, fmt.Errorf("operation %s has no continuation", n.op))
	}
}

// key is the name of the tensor that a Send or Recv exchanges in this step.
func (x *instance) key(n *node) Key {
	k := Key{Step: x.run.step.ID, Incarnation: x.run.step.Requester, Edge: n.attr("key").S}
	if len(x.path) > 0 {
		parts := make([]string, 0, len(x.path)/2)
		for i := 1; i < len(x.path); i += 2 { // the indices alone: the Scan's id may be another at the other end
			parts = append(parts, strconv.Itoa(x.path[i]))
		}
		k.Path = strings.Join(parts, "/")
	}
	return k
}

func (x *instance) resourceOf(n *node) *graph.Resource { return x.p.g.Resources()[n.src.Resources[0]] }

func (x *instance) resource(n *node) string {
	if len(n.src.Resources) == 0 {
		return n.attr("key").S
	}
	return x.resourceOf(n).Name
}

// bindSend gives a copy to the Rendezvous.
func bindSend(b *bound) {
	b.size = func() { b.whole(float64(b.in[0].n * b.in[0].dt.Size())) }
	b.run = func(int, *worker) {
		b.once(func() error {
			begun := time.Now()
			err := b.x.p.o.Rendezvous.Send(b.x.key(b.n), b.in[0].tensor().Clone())
			if err == nil && b.x.p.o.Trace != nil {
				b.x.p.o.Trace(TraceEvent{
					Node: b.n.name(), Op: "Send", Device: b.x.p.o.Device, Step: b.x.run.step.ID, Tiles: 1, Start: begun,
					Took: time.Since(begun), Bytes: int64(len(b.in[0].bytes())),
				})
			}
			return err
		})
	}
}

// bindAccumApply adds a gradient to an accumulator.
func bindAccumApply(b *bound) {
	res := b.x.resourceOf(b.n)
	sparse := b.n.attr("sparse").I != 0
	var acc *accumulator
	b.attach = func(s *State) error {
		acc = s.accumulator(res)
		return acc.holds(res)
	}
	b.size = func() { b.whole(float64(b.in[len(b.in)-1].n) * 12) }
	b.run = func(_ int, w *worker) {
		b.once(func() error {
			var rows []int32
			if sparse {
				rows = indices32(b.in[1], &w.ints)
				for i, r := range rows {
					if r < 0 || int(r) >= len(acc.rows) {
						badIndex("row", i, b.in[1].whole(i), len(acc.rows))
					}
				}
				if rows == nil {
					rows = []int32{}
				}
			}
			counted := int64(0)
			if acc.apply(flat[int64](b.in[0])[0], rows, b.in[len(b.in)-1]) {
				counted = 1
			}
			b.result(counted)
			return nil
		})
	}
}
