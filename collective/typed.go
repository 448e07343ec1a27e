package collective

import (
	"context"
	"slices"

	"github.com/trivium-ml/trivium/tensor"
)

// The functions below do one operation, at tag 0, and commit the step, which should hold no other operation. Where ctx ends before the operation
// is complete here, it is void at all ranks, unless all have voted for it already; see [Group.Commit] for how long the others are waited for then.

// AllReduceInto writes to dst, at every rank, the reduction of all ranks' src. dst may be src.
func AllReduceInto[T Number](ctx context.Context, g *Group, dst, src []T, r Reduce) error {
	if len(src) > 0 && len(dst) > 0 && overlap(bytesOf(dst), bytesOf(src)) {
		src = slices.Clone(src)
	}
	return g.one(ctx, Op{Kind: AllReduce, Reduce: r}, Of(dst), Of(src))
}

// ReduceScatterInto writes to dst this rank's part of the reduction of all ranks' src. Parts are equal where src is a multiple of the
// ranks; otherwise rank r has elements [r·n/P, (r+1)·n/P).
func ReduceScatterInto[T Number](ctx context.Context, g *Group, dst, src []T, r Reduce) error {
	return g.one(ctx, Op{Kind: ReduceScatter, Reduce: r}, Of(dst), Of(src))
}

// AllGatherInto writes all ranks' src, which have one length, to dst, one after the other.
func AllGatherInto[T Number](ctx context.Context, g *Group, dst, src []T) error {
	return g.one(ctx, Op{Kind: AllGather}, Of(dst), Of(src))
}

// AllGatherAll returns all ranks' src, of any lengths, one after the other, and the lengths. It takes two steps.
func AllGatherAll[T Number](ctx context.Context, g *Group, src []T) (all []T, counts []int, err error) {
	lens := make([]int64, g.Size())
	if err := AllGatherInto(ctx, g, lens, []int64{int64(len(src))}); err != nil {
		return nil, nil, err
	}
	total := 0
	for _, n := range lens {
		counts = append(counts, int(n))
		total += int(n)
	}
	all = make([]T, total)
	return all, counts, g.one(ctx, Op{Kind: AllGather, Counts: counts}, Of(all), Of(src))
}

// BroadcastInto writes root's x to x at every rank.
func BroadcastInto[T Number](ctx context.Context, g *Group, x []T, root int) error {
	src := Buffer{}
	if g.Rank() == root {
		src = Of(slices.Clone(x))
	}
	return g.one(ctx, Op{Kind: Broadcast, Root: root}, Of(x), src)
}

// AllToAllInto sends the i-th equal part of src to rank i, and writes to the i-th part of dst what rank i sends.
func AllToAllInto[T Number](ctx context.Context, g *Group, dst, src []T) error {
	return g.one(ctx, Op{Kind: AllToAll}, Of(dst), Of(src))
}

// Barrier returns when all ranks have called it. It is a [Group.Commit], also where ctx ends.
func (g *Group) Barrier(ctx context.Context) error {
	return g.Commit(ctx, g.Step())
}

// AllReduce32 adds x over all ranks, in place.
func (g *Group) AllReduce32(ctx context.Context, x []float32) error {
	return AllReduceInto(ctx, g, x, x, Sum)
}

// AllReduce64 adds x over all ranks, in place.
func (g *Group) AllReduce64(ctx context.Context, x []float64) error {
	return AllReduceInto(ctx, g, x, x, Sum)
}

func (g *Group) one(ctx context.Context, op Op, dst, src Buffer) error {
	step := g.Step()
	err := g.Start(op, 0, dst, src).Wait(ctx)
	if c := g.Commit(ctx, step); err == nil {
		err = c
	}
	return err
}

// Half is x as a Buffer, a view.
func Half[T tensor.Float16 | tensor.BFloat16](x []T) Buffer {
	var z T
	dt := tensor.F16
	if _, ok := any(z).(tensor.BFloat16); ok {
		dt = tensor.BF16
	}
	return Buffer{dt, bytesOf(x)}
}
