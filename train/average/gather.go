package average

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// The kinds of frame. Rank 0 asks the others one by one, so that it adds their models in the order of ranks and holds one at a time,
// and then sends all the mean.
const (
	kindHere   uint8 = iota + 1 // done, and waiting: so that the loss of rank 0 is noticed
	kindAsk                     // rank 0: send your model
	kindModel                   // its Head has the weight
	kindMean                    // rank 0: the result
	kindFailed                  // rank 0: there will be none, and why
)

// chunk is the number of values of a frame.
const chunk = 1 << 18

// mean makes p the mean of all ranks' p, weighted by weight.
func mean(ctx context.Context, env *train.Env, p []float32, weight float64) error {
	s, err := env.Port.Stream("average", transport.StreamOptions{MaxFrame: 4*chunk + 64})
	if err != nil {
		return err
	}
	defer s.Close()
	if env.Rank != 0 {
		return follow(ctx, env, s, p, weight)
	}
	if err = lead(ctx, env, s, p, weight); err != nil {
		for _, peer := range env.Peers[1:] {
			_ = s.Send(context.WithoutCancel(ctx), peer, transport.Frame{Kind: kindFailed, Head: []byte(err.Error())}) // one may be lost
		}
	}
	return err
}

// lead is mean at rank 0.
func lead(ctx context.Context, env *train.Env, s transport.Stream, p []float32, weight float64) error {
	sum := make([]float64, len(p))
	for i, x := range p {
		sum[i] = weight * float64(x)
	}
	scratch := make([]float32, len(p))
	for rank := 1; rank < len(env.Peers); rank++ {
		if err := s.Send(ctx, env.Peers[rank], transport.Frame{Kind: kindAsk}); err != nil {
			return fmt.Errorf("the model of %v: %w", env.Peers[rank], err)
		}
		w, err := receive(ctx, s, env.Peers[rank], kindModel, scratch)
		if err != nil {
			return fmt.Errorf("the model of %v: %w", env.Peers[rank], err)
		}
		weight += w
		for i, x := range scratch {
			sum[i] += w * float64(x)
		}
	}
	if weight > 0 { // else interrupted before the first update of any, and all are as they began
		for i := range p {
			p[i] = float32(sum[i] / weight)
		}
	}
	for rank := 1; rank < len(env.Peers); rank++ {
		if err := send(ctx, s, env.Peers[rank], kindMean, 0, p); err != nil {
			return fmt.Errorf("the mean to %v: %w", env.Peers[rank], err)
		}
	}
	return nil
}

// follow is mean at another rank.
func follow(ctx context.Context, env *train.Env, s transport.Stream, p []float32, weight float64) error {
	leader := env.Peers[0]
	if err := s.Send(ctx, leader, transport.Frame{Kind: kindHere}); err != nil {
		return err
	}
	if _, err := receive(ctx, s, leader, kindAsk, nil); err != nil {
		return err
	}
	if err := send(ctx, s, leader, kindModel, weight, p); err != nil {
		return err
	}
	_, err := receive(ctx, s, leader, kindMean, p)
	return err
}

func send(ctx context.Context, s transport.Stream, to transport.Name, kind uint8, weight float64, p []float32) error {
	for i := 0; i < len(p); i += chunk {
		part := p[i:min(i+chunk, len(p))]
		f := transport.Frame{
			Kind: kind, Key: transport.Key{Chunk: uint32(i / chunk)}, Head: wire.AppendFloat64(nil, weight), Payload: bytesOf(part),
		}
		if err := s.Send(ctx, to, f); err != nil {
			return err
		}
	}
	return nil
}

// receive fills p with the frames of that kind that from sends. Of an empty p there is one.
func receive(ctx context.Context, s transport.Stream, from transport.Name, kind uint8, p []float32) (weight float64, err error) {
	for got, done := 0, false; !done; {
		ev, err := s.Recv(ctx)
		if err != nil {
			return 0, err
		}
		switch {
		case ev.From != from:
		case ev.What == transport.LinkLost:
			err = &train.LostError{Peer: from, Why: fmt.Sprint(ev.Err)}
		case ev.What == transport.Received && ev.Kind == kindFailed:
			err = fmt.Errorf("%v gave up: %s", from, ev.Head)
		case ev.What == transport.Received && ev.Kind == kind:
			if len(ev.Head) > 0 {
				weight = wire.NewReader("weight", ev.Head).Float64("weight")
			}
			if int(ev.Chunk)*chunk != got || len(ev.Payload) != 4*min(chunk, len(p)-got) {
				err = errors.New("a chunk of another model")
				break
			}
			got += copy(bytesOf(p[got:]), ev.Payload) / 4
			done = got == len(p)
		}
		ev.Release()
		if err != nil {
			return 0, err
		}
	}
	return weight, nil
}

// bytesOf is the memory of p: the machines that we run on are little-endian, as frames are.
func bytesOf(p []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), 4*len(p))
}
