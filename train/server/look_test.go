package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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

// A forgetfulNet loses the first so many frames of one stream to each port.
type forgetfulNet struct {
	transport.Network
	stream  string
	swallow int32
	frames  *atomic.Int64 // of that stream
}

func (n forgetfulNet) Open(ctx context.Context, name transport.Name, o transport.Options) (transport.Port, error) {
	p, err := n.Network.Open(ctx, name, o)
	return forgetfulPort{p, n}, err
}

type forgetfulPort struct {
	transport.Port
	n forgetfulNet
}

func (p forgetfulPort) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	s, err := p.Port.Stream(name, o)
	if err == nil && name == p.n.stream {
		s = &forgetfulStream{Stream: s, frames: p.n.frames, first: map[transport.Name]int32{}, swallow: p.n.swallow}
	}
	return s, err
}

type forgetfulStream struct {
	transport.Stream
	frames  *atomic.Int64
	first   map[transport.Name]int32
	swallow int32
}

func (s *forgetfulStream) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	s.frames.Add(1)
	if s.first[to]++; s.first[to] <= s.swallow {
		if f.Done != nil {
			f.Done(nil)
		}
		return nil
	}
	return s.Stream.Send(ctx, to, f)
}

// TestLook: a job whose links are slow cuts its servers into lanes, and its model has the bits of one lane; also where a frame of the look is lost,
// and with several servers, in processes of their own or not.
func TestLook(t *testing.T) {
	for _, c := range []struct {
		servers, at int // of their own, and at workers
		swallow     int32
	}{{1, 0, 0}, {0, 1, 0}, {2, 0, 0}, {0, 2, 1}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			run := func(lanes int, slow bool) (bits []float32, said string, frames int64) {
				var counted atomic.Int64
				synctest.Test(t, func(t *testing.T) {
					cpu := tensor.NewCPU(1, false) // a pool of more looks at the clock while it waits for work
					defer cpu.Close()
					w := &crew{env: train.Env{CPU: cpu}, workers: 3, servers: c.servers, o: server.Options{Mode: ps.BSP, Lanes: lanes, Servers: c.at}}
					first := transport.Name{Role: "worker", ID: "0"}
					if c.servers > 0 {
						first.ID = "3"
					}
					w.network = transport.NewMemory()
					if slow {
						w.network = slowNet{w.network, first, 10 * time.Millisecond}
					}
					w.network = forgetfulNet{w.network, "ps lanes", c.swallow, &counted}
					w.env.Watch.Notice = func(_ observe.Level, text string) { said += text + "\n" }
					j := job()
					j.Epochs = 1
					r, err := w.Train(t.Context(), j)
					if err = errors.Join(append(w.errs, err)...); err != nil {
						t.Fatal(err)
					}
					bits = r.Params.Flat
				})
				return bits, said, counted.Load()
			}
			one, said, frames := run(1, true)
			if said != "" || frames != 0 {
				t.Errorf("with lanes given: %d frames, and said is %q", frames, said)
			}
			looked, said, frames := run(0, true)
			if !strings.Contains(said, "lanes: a round of all workers takes ") || frames == 0 {
				t.Errorf("%d frames, and said is %q", frames, said)
			}
			if len(one) == 0 || !slices.Equal(one, looked) {
				t.Error("lanes change the model")
			}
			fast, said, _ := run(0, false)
			if said != "" || !slices.Equal(one, fast) {
				t.Errorf("where links take no time, said is %q", said)
			}
		})
	}
}

// TestLookWhileLost: a member that is lost while the others look ends their wait.
func TestLookWhileLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ports, names := memoryPorts(t, 3)
		working, interrupt, abort := train.Member(t.Context())
		defer interrupt()
		errs := make(chan error)
		for i := range 2 { // the third never comes
			cpu := tensor.NewCPU(1, false)
			defer cpu.Close()
			env := train.Env{Rank: i, Peers: names, Port: ports[i], CPU: cpu}
			go func() {
				_, err := server.New(env, server.Options{Mode: ps.BSP}).Train(working, job())
				errs <- err
			}()
		}
		time.Sleep(5 * time.Second)
		lost := &train.LostError{Peer: names[2], Why: "it never came"}
		abort(lost)
		for range 2 {
			if err := <-errs; !errors.Is(err, lost) {
				t.Errorf("want %v, found %v", lost, err)
			}
		}
	})
}
