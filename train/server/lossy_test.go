//go:build unix

package server_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/transport"
)

// lossy is topology, but one in ten frames of the tables that a process sends is lost, and one in ten goes twice.
var lossy = processes.Topology{Name: "lossy", New: func(env train.Env, options json.RawMessage) (trivium.Strategy, error) {
	env.Port = lossyPort{env.Port}
	return topology.New(env, options)
}}

type lossyPort struct{ transport.Port }

func (p lossyPort) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	s, err := p.Port.Stream(name, o)
	if name != "ps" || err != nil {
		return s, err
	}
	losses.on.Store(true)
	return lossyStream{s}, nil
}

// losses are those of this process.
var losses struct {
	on            atomic.Bool
	lost, doubled atomic.Int64
}

// A lossyStream has none of the short cuts that a stream may offer: all frames go through Send.
type lossyStream struct{ transport.Stream }

func (s lossyStream) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	f.More = false // the next one may be lost
	switch rand.IntN(10) {
	case 0:
		losses.lost.Add(1)
		if f.Done != nil {
			go f.Done(nil)
		}
		return nil
	case 1:
		losses.doubled.Add(1)
		again := f
		again.Done, again.Head, again.Payload = nil, slices.Clone(f.Head), slices.Clone(f.Payload)
		if err := s.Stream.Send(ctx, to, again); err != nil {
			return err
		}
	}
	return s.Stream.Send(ctx, to, f)
}

// TestCase16InProcesses is case 16 of package ps, without its failovers, in processes of their own: four workers count in 16 cells, 250 rounds
// (BSP: 100), 10 % of frames are lost and 10 % doubled, and every cell is 1,000 (400).
func TestCase16InProcesses(t *testing.T) {
	t.Parallel()
	for _, o := range []server.Options{{Mode: ps.SSP, Staleness: 3}, {Mode: ps.BSP}} {
		t.Run(o.Mode.String(), func(t *testing.T) {
			t.Parallel() // most of the time it waits
			rounds := int64(250)
			switch {
			case testing.Short():
				rounds = 25
			case o.Mode == ps.BSP:
				rounds = 100 // each waits for a frame that is sent again: a fifth of a second
			}
			j := small(job())
			j.Model, j.Epochs, j.Steps, j.Batch = "cases:16", 0, rounds, 100
			d := driver(t, j, o)
			d.Topology, d.Workers, d.Servers = lossy, 4, 2
			_, c := saved(t, d, rounds)
			for i, x := range c.Params.Flat[:16] {
				if x != float32(4*rounds) {
					t.Errorf("cell %d is %v, want %d", i, x, 4*rounds)
				}
			}
		})
	}
}
