package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
)

// ShardOptions say which rows a shard has.
type ShardOptions struct {
	Part, Parts int    // number Part of Parts
	Shuffle     bool   // deal the rows out at random, as Batches orders epoch 0 under Seed; else part by part in index order
	Seed        uint64 //
	Budget      int64  // bytes of memory for the shard; 0: 4 GiB
}

// Shard returns the rows [⌊Part·N/Parts⌋, ⌊(Part+1)·N/Parts⌋) of ds, in that order, as a data set of its own: the shards of all parts
// together are ds. A shuffled shard is resident, with its rows' ids, and holds on to nothing of ds. One in index order shares the
// memory, or the file, of ds; so does a shuffled one that would not fit the budget, and then its rows lie together in ds.
func Shard(ctx context.Context, ds Dataset, o ShardOptions) (Dataset, error) {
	if o.Parts < 1 || o.Part < 0 || o.Part >= o.Parts {
		return nil, setting("part", "want a part of %d, found %d", o.Parts, o.Part)
	}
	n := ds.Rows()
	from, to := int64(o.Part)*n/int64(o.Parts), int64(o.Part+1)*n/int64(o.Parts)
	budget := o.Budget
	if budget == 0 {
		budget = defaultBudget
	}
	if !o.Shuffle || (to-from)*dealtBytes(ds) > budget {
		return Slice(ds, from, to)
	}
	var rows Builder
	var images *pixels // images of bytes stay bytes
	if m, ok := ds.(*memory); ok && m.pixels != nil {
		images = newPixels(&m.schema, tensor.AlignedBytes(int(to-from)*m.pixels.n), m.pixels.budget)
	}
	for b, err := range Batches(ctx, ds, BatchOptions{Batch: shardBatch, Shuffle: true, Seed: o.Seed, From: from, IDs: true}) {
		if err != nil {
			return nil, err
		}
		part := *b
		if left := to - from - int64(rows.Rows()); int64(part.Rows) > left {
			part = b.Slice(0, int(left))
		}
		if images != nil {
			for i := range part.Rows {
				images.keep(rows.Rows()+i, part.Inputs[0].Values[i*images.n:(i+1)*images.n])
			}
			part.Inputs = nil
		}
		if err := rows.Append(&part); err != nil {
			return nil, err
		}
		if int64(rows.Rows()) == to-from {
			break
		}
	}
	shard := newMemory(ds.Schema(), rows.all)
	shard.pixels = images
	return shard, nil
}

// dealtBytes is what a row of ds takes in a shuffled shard. Of rows in memory it says so of images alone: others take what they take in ds.
func dealtBytes(ds Dataset) int64 {
	if m, ok := ds.(*memory); ok && m.pixels != nil {
		return int64(m.pixels.n)
	}
	if st, ok := streamOf(ds); ok {
		return st.rowBytes
	}
	return 0
}

// streamOf returns the stream whose rows ds has.
func streamOf(ds Dataset) (*stream, bool) {
	switch x := ds.(type) {
	case *stream:
		return x, true
	case *slice:
		return streamOf(x.whole)
	case *weighted:
		return streamOf(x.Dataset)
	}
	return nil, false
}

// shardBatch is the number of rows copied at a time. An order of fewer rows than a batch is not shuffled: so it is one.
const shardBatch = 1

// A Builder collects batches into one resident data set. The zero value is empty.
type Builder struct{ all trivium.Batch }

// Rows returns the number of rows so far.
func (b *Builder) Rows() int { return b.all.Rows }

// Append copies the rows of src, whose inputs and labels must be as those of the batches before.
func (b *Builder) Append(src *trivium.Batch) error {
	if b.all.Rows == 0 {
		shapeBatch(&b.all, src)
		if src.IDs != nil {
			b.all.IDs = []int64{}
		}
	}
	if err := sameShape(&b.all, src); err != nil {
		return fmt.Errorf("data: a batch does not go with those before: %w", err)
	}
	b.all.Rows += src.Rows
	for k := range b.all.Inputs {
		in, from := &b.all.Inputs[k], &src.Inputs[k]
		if in.Form == trivium.Dense {
			in.Values = append(in.Values, from.Values...)
			continue
		}
		lo, hi := from.Ptr[0], from.Ptr[src.Rows]
		if in.Index != nil {
			in.Index = append(in.Index, from.Index[lo:hi]...)
		}
		if in.Values != nil {
			n := int64(1)
			if in.Form == trivium.Ragged {
				n = int64(in.RowLen())
			}
			in.Values = append(in.Values, from.Values[lo*n:hi*n]...)
		}
		in.Ptr = appendPtr(in.Ptr, from.Ptr[:src.Rows+1])
	}
	y := &b.all.Labels
	y.Class = append(y.Class, src.Labels.Class...)
	y.Real = append(y.Real, src.Labels.Real...)
	if y.Kind == trivium.MultiHot {
		y.Index = append(y.Index, src.Labels.Index[src.Labels.Ptr[0]:src.Labels.Ptr[src.Rows]]...)
		y.Ptr = appendPtr(y.Ptr, src.Labels.Ptr[:src.Rows+1])
	}
	b.all.Weights = append(b.all.Weights, src.Weights...)
	b.all.IDs = append(b.all.IDs, src.IDs...)
	return nil
}

// appendPtr appends the offsets of more rows, counted on from the last one in dst.
func appendPtr(dst, src []int64) []int64 {
	base := dst[len(dst)-1] - src[0]
	for _, p := range src[1:] {
		dst = append(dst, base+p)
	}
	return dst
}

// Dataset returns what was collected. The Builder is empty afterwards.
func (b *Builder) Dataset(schema trivium.Schema) Dataset {
	ds := Memory(schema, b.all)
	b.all = trivium.Batch{}
	return ds
}

// sameShape says in what the rows of b differ from those of a.
func sameShape(a, b *trivium.Batch) error {
	if len(a.Inputs) != len(b.Inputs) {
		return fmt.Errorf("%d inputs, then %d", len(a.Inputs), len(b.Inputs))
	}
	for k := range a.Inputs {
		x, y := &a.Inputs[k], &b.Inputs[k]
		if x.Name != y.Name || x.Form != y.Form || fmt.Sprint(x.Shape) != fmt.Sprint(y.Shape) ||
			x.Form != trivium.CSR && ((x.Index == nil) != (y.Index == nil) || (x.Values == nil) != (y.Values == nil)) { // empty ones may be nil there
			return fmt.Errorf("input %q: %v of shape %v, then %q: %v of shape %v", x.Name, x.Form, x.Shape, y.Name, y.Form, y.Shape)
		}
	}
	if a.Labels.Kind != b.Labels.Kind || a.Labels.Width != b.Labels.Width {
		return fmt.Errorf("labels: %v of width %d, then %v of width %d", a.Labels.Kind, a.Labels.Width, b.Labels.Kind, b.Labels.Width)
	}
	if (a.Weights == nil) != (b.Weights == nil) || (a.IDs == nil) != (b.IDs == nil) {
		return fmt.Errorf("weights or ids in one and not in the other")
	}
	return nil
}
