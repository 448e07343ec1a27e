package collective

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/tensor"
)

// A Coding is what a codec costs in an allreduce.
type Coding struct {
	Encode, Decode float64 // seconds for a value
	Share          float64 // what is left of a vector's bytes
	Within         float64 // seconds for a byte that is summed within a host, as it is, where ranks share hosts
}

// PredictCoded is the time that an allreduce of so many bytes of float32 takes p ranks, on these hosts, by algorithm a, with a codec that costs x:
// what is encoded and decoded one after the other, and the transfer of what that leaves, which takes as long as that of a shorter vector. By
// Hierarchy, what travels within hosts is no shorter, and only after Calibrate there is a prediction; 0: there is none.
func (c Costs) PredictCoded(a Algorithm, p, bytes int, hosts [][]int, x Coding) time.Duration {
	if p < 2 || a == Hierarchy && !c.measured(a, p) {
		return 0
	}
	n := float64(bytes)
	encoded, decoded := codings(a, p, hosts)
	s := n / float64(tensor.F32.Size()) * (encoded*x.Encode + decoded*x.Decode)
	if a == Hierarchy {
		s += (1 - x.Share) * n * x.Within
	}
	return c.Predict(a, p, int(x.Share*n), 1) + time.Duration(s*1e9)
}

// codings are how many times the values of a vector are encoded and decoded, one after the other, before all ranks have the sum.
func codings(a Algorithm, p int, hosts [][]int) (encoded, decoded float64) {
	switch a {
	case GatherCast: // the first rank decodes what all others encode, encodes the sum, and decodes it as they do
		return 2, float64(p) + 1
	case Hierarchy: // each rank of a host its part, or one of them all
		if _, _, equal := place(hosts, 0); equal {
			encoded, decoded = codings(Pairwise, len(hosts), nil)
			each := float64(len(hosts[0]))
			return encoded / each, decoded / each
		}
		return codings(Pairwise, len(hosts), nil)
	}
	return 1, 2 - 1/float64(p)
}

// Predict is the time that op takes by the plan that is chosen for it: a sum of n float32 for all ranks, or a part of it for each (ReduceScatter); x
// is what its codec costs, if it has one. 0: there is no prediction.
func (g *Group) Predict(op Op, n int, x Coding) time.Duration {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	c := g.c
	j := &job{Op: op, dtype: tensor.F32, n: n}
	if op.Kind == ReduceScatter && op.Counts == nil {
		j.Counts = []int{(n + c.size() - 1) / c.size()} // the longest part counts
	}
	a := c.choose(j)
	if op.Codec != nil {
		return c.costs().PredictCoded(a, c.size(), n*j.dtype.Size(), c.hosts, x)
	}
	return c.predict(j, a)
}

// codedCells are the values at most that MeasureCodec encodes in a round. They fit no cache, and longer vectors take no longer for each.
const codedCells = 1 << 20

// codedRounds are those of MeasureCodec at least, of which the first does not count.
const codedRounds = 4

// MeasureCodec measures what codec, which fits them, costs in allreduces of so many float32: for some ten milliseconds each, on numbers as those of a
// gradient, with a residual. All ranks call it, with the same lengths and between operations, and all get the same: what the slowest found while
// the others measured too, as they encode at the same time in a sum. It takes steps of the group.
func (g *Group) MeasureCodec(ctx context.Context, codec compress.Codec, lens []int) ([]Coding, error) {
	if len(lens) == 0 {
		return nil, nil
	}
	within, leave, err := g.within(ctx)
	if err != nil {
		return nil, err
	}
	defer leave() // when all have come as far as the sum below
	found := []float64{within}
	for _, n := range lens {
		if err := g.Barrier(ctx); err != nil {
			return nil, err
		}
		x, err := measureCodec(codec, n, g.piece(codec, n))
		if err != nil { // at all ranks
			return nil, err
		}
		found = append(found, x.Encode, x.Decode, x.Share)
	}
	if err := AllReduceInto(ctx, g, found, found, Max); err != nil {
		return nil, err
	}
	list := make([]Coding, len(lens))
	for i := range list {
		f := found[1+3*i:]
		list[i] = Coding{Encode: f[0], Decode: f[1], Share: f[2], Within: found[0]}
	}
	return list, nil
}

// piece is how many values of n codec encodes at once.
func (g *Group) piece(codec compress.Codec, n int) (most int) {
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	op := Op{Codec: codec}
	for rank := range g.c.size() {
		_, owns := g.c.codedOf(op, n, rank)
		most = max(most, owns.Len())
	}
	return min(most, op.unit(g.c.opt.MaxFrame))
}

// measureCodec encodes n values, or as many of them as show what more cost, in pieces, and decodes them, some times.
func measureCodec(codec compress.Codec, n, piece int) (Coding, error) {
	if piece < 1 {
		return Coding{}, fmt.Errorf("collective: measure codec %s: there are %d values", codec, n)
	}
	n = min(n, max(piece, codedCells)) / piece * piece
	src, sum, e := make([]float32, n), make([]float32, n), compress.NewResidual(n)
	random := rand.New(rand.NewPCG(uint64(n), uint64(piece))) // the same numbers, and so as many bytes of them, at all ranks
	for i := range src {
		src[i] = float32(random.NormFloat64())
	}
	var encode, decode []float64
	var p []byte
	bytes := 0
	for begin := time.Now(); len(encode) < codedRounds || time.Since(begin) < atWork; {
		var encoded, decoded time.Duration
		bytes = 0
		for at := 0; at < n; at += piece {
			start := time.Now()
			var err error
			if p, err = codec.Encode(p[:0], src[at:at+piece], e.Range(at, at+piece)); err != nil {
				return Coding{}, err
			}
			half := time.Now()
			if err := codec.DecodeAdd(sum[at:at+piece], p); err != nil {
				return Coding{}, err
			}
			encoded, decoded = encoded+half.Sub(start), decoded+time.Since(half)
			bytes += len(p)
		}
		encode, decode = append(encode, encoded.Seconds()), append(decode, decoded.Seconds())
	}
	values := float64(n)
	return Coding{
		Encode: median.Of(encode[1:]) / values, Decode: median.Of(decode[1:]) / values, Share: float64(bytes) / (values * float64(tensor.F32.Size())),
	}, nil
}

// within is what a byte of a sum costs among the ranks of this one's host; 0: there are no others, or all are on one. The caller calls leave when
// all ranks have returned.
func (g *Group) within(ctx context.Context) (seconds float64, leave func(), err error) {
	leave = func() {}
	if !g.c.layered() {
		return 0, leave, nil
	}
	host, _, equal := place(g.c.hosts, g.c.self)
	if len(g.c.hosts[host]) == 1 {
		return 0, leave, nil
	}
	sub, err := g.Sub(g.c.hosts[host])
	if err != nil {
		return 0, leave, err
	}
	leave = func() { _ = sub.Close() }
	plan := Tree // as Hierarchy has it
	if equal {
		plan = Ring
	}
	var w walk
	list, err := sub.timeBatches(ctx, Op{Plan: plan}, fitBytes, beforeOps(fitBytes), codedRounds, &w)
	if err != nil {
		return 0, leave, err
	}
	return median.Of(list) / fitBytes, leave, nil
}
