package server_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

// A slowNet is a network on which what workers send of 4 KiB and more is under way for a while, and what they send after it waits.
type slowNet struct {
	transport.Network
	server transport.Name
	takes  time.Duration
}

type slowPort struct {
	transport.Port
	takes time.Duration
}

type slowStream struct {
	transport.Stream
	takes time.Duration
	ctx   context.Context
	stop  context.CancelFunc
	wait  sync.WaitGroup
	mu    sync.Mutex
	lines map[transport.Name]chan transport.Frame
}

func (n slowNet) Open(ctx context.Context, self transport.Name, o transport.Options) (transport.Port, error) {
	p, err := n.Network.Open(ctx, self, o)
	if err != nil || self == n.server {
		return p, err
	}
	return slowPort{p, n.takes}, nil
}

func (p slowPort) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	inner, err := p.Port.Stream(name, o)
	if err != nil {
		return nil, err
	}
	s := &slowStream{Stream: inner, takes: p.takes, lines: map[transport.Name]chan transport.Frame{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

func (s *slowStream) Send(_ context.Context, to transport.Name, f transport.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[to]
	if line == nil {
		line = make(chan transport.Frame, 1000)
		s.lines[to] = line
		s.wait.Go(func() {
			for {
				select {
				case f := <-line:
					if len(f.Payload) >= 4<<10 {
						time.Sleep(s.takes)
					}
					if err := s.Stream.Send(s.ctx, to, f); err != nil && f.Done != nil {
						f.Done(err)
					}
				case <-s.ctx.Done():
					return
				}
			}
		})
	}
	if f.Done == nil { // the slices are the caller's again when Send returns
		f.Head, f.Payload = append([]byte(nil), f.Head...), append([]byte(nil), f.Payload...)
	}
	line <- f
	return nil
}

func (s *slowStream) Close() error {
	s.stop()
	s.wait.Wait()
	return s.Stream.Close()
}

// TestCase3Overlap: 40 ms in which a round is on its way while the worker computes the next for 50 ms are 50 ms of compute, none of push,
// and 40 ms overlapped.
func TestCase3Overlap(t *testing.T) {
	const steps, computes, takes = 12, 50 * time.Millisecond, 40 * time.Millisecond
	for _, o := range []server.Options{{Mode: ps.SSP, Staleness: 3}, {Mode: ps.SSP, Staleness: 3, OptimizerAt: server.AtWorker}, {Mode: ps.BSP, Lanes: 1}} {
		j := job()
		j.Epochs, j.Steps, j.EvalEvery, j.Batch = 100, steps, 1<<40, 30
		shared(t.Context(), train.Env{}, j)
		o.Slow = server.Slow{Factor: 1, Unit: computes}
		var all [3]func(observe.Counter) time.Duration
		synctest.Test(t, func(t *testing.T) {
			hub := observe.NewHub(observe.Options{Start: time.Now()})
			cpu := tensor.NewCPU(1, false) // a pool of more looks at the clock while it waits for work
			defer cpu.Close()
			c := &crew{env: train.Env{Run: "r", Observe: hub, CPU: cpu}, workers: 3, servers: 1, o: o, network: slowNet{transport.NewMemory(), transport.Name{Role: "worker", ID: "3"}, takes}}
			if _, err := c.Train(t.Context(), j); err != nil {
				t.Fatal(errors.Join(c.errs...))
			}
			hub.Collect(true)
			for _, report := range hub.Latest() {
				if f := report.Frame; f.Source.Role == observe.Worker {
					all[f.Source.Rank] = func(k observe.Counter) time.Duration { return time.Duration(f.Counters[k]) }
				}
			}
		})
		for rank, get := range all {
			sum := time.Duration(0)
			for _, p := range observe.Phases() {
				sum += get(observe.PhaseTime(p))
			}
			if wall := get(observe.WallTime); sum != wall {
				t.Errorf("%s, rank %d: the parts sum to %v, the steps took %v", o.Mode, rank, sum, wall)
			}
			if x := get(observe.PhaseTime(observe.Compute)); x != steps*computes {
				t.Errorf("%s, rank %d: %v of compute, want %v", o.Mode, rank, x, steps*computes)
			}
			if x := get(observe.PhaseTime(observe.Push)); x != 0 {
				t.Errorf("%s, rank %d: %v of push in the steps", o.Mode, rank, x)
			}
			if x := get(observe.OverlapTime(observe.Push)); x != steps*takes {
				t.Errorf("%s, rank %d: %v of push overlapped, want %v", o.Mode, rank, x, steps*takes)
			}
			if x := get(observe.PhaseTime(observe.Other)); x != 0 {
				t.Errorf("%s, rank %d: %v of other", o.Mode, rank, x)
			}
			waits := get(observe.PhaseTime(observe.WaitBarrier))
			// Under SSP no step waits for another. At the end all wait for the others, and then for as many rounds as reads may lack.
			if want := steps * takes; o.Mode == ps.BSP && waits != want || o.Mode != ps.BSP && waits > time.Duration(o.Staleness+2)*takes {
				t.Errorf("%s, rank %d: %v of wait-barrier", o.Mode, rank, waits)
			}
		}
	}
}
