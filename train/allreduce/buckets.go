package allreduce

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
)

// A bucket is a range of the gradient that is reduced by one operation.
type bucket struct {
	collective.Bucket
	op       collective.Op
	dst, src collective.Buffer
	strays   []stray // what codecs had dropped of it before a run resumed, where this worker encodes nothing now
}

// denseRuns are the runs of neighbouring dense tensors, the first and the last of each, in reverse order, which is that of the backward
// pass.
func denseRuns(l *trivium.Layout) (runs [][2]int) {
	for last := l.Tensors() - 1; last >= 0; last-- {
		if !dense(l, last) {
			continue
		}
		first := last
		for first > 0 && dense(l, first-1) {
			first--
		}
		runs = append(runs, [2]int{first, last})
		last = first
	}
	return runs
}

// denseBuckets cuts the runs of dense tensors into the ranges that travel by themselves, by these costs.
func (x *exchange) denseBuckets(l *trivium.Layout, costs collective.Costs) (list []collective.Bucket) {
	bytes := costs.BucketBytes(4*l.Len(), x.workers)
	for _, run := range denseRuns(l) {
		first, last := run[0], run[1]
		var lens []int
		for i := first; i <= last; i++ {
			from, to := l.Range(i)
			lens = append(lens, to-from)
		}
		base, _ := l.Range(first)
		for _, b := range join(collective.Cut(lens, 4, bytes)) {
			b.From, b.To = b.From+base, b.To+base
			for k := range b.Tensors {
				b.Tensors[k] += first
			}
			list = append(list, b)
		}
	}
	return list
}

// cut makes the buckets. apart says that the facts may not ride with the gradient.
func (x *exchange) cut(l *trivium.Layout, codec compress.Codec, apart bool) {
	costs := x.g.Costs()
	if codec != nil { // what it keeps fits the same cut alone: a resumed run, which may measure other costs, makes that too
		costs = collective.Costs{}
	}
	cut := x.denseBuckets(l, costs)
	x.measured.coded = map[int]time.Duration{}
	x.rides = !apart && len(cut) > 0 && cut[len(cut)-1].From == 0
	for i, b := range cut {
		x.buckets = append(x.buckets, x.bucket(l, b, codec, x.rides && i == len(cut)-1))
		if last := x.buckets[i]; x.auto != nil && last.op.Codec != nil {
			x.measured.coded[len(last.src.Bytes)] = x.auto.of(b.To - b.From).coded
		}
	}
	x.uncoded = x.fitsNone(codec)
	x.launches(l, cut, x.launch)
	if x.rides && len(x.buckets) == 1 {
		x.ready = nil // all of it waits for the facts
	}
}

// launches has buckets leave, by start, as their tensors become final.
func (x *exchange) launches(l *trivium.Layout, list []collective.Bucket, start func(i int)) {
	x.launcher = collective.NewLauncher(list, func(i int) {
		if i == 0 {
			x.launched = x.run.Now()
		}
		start(i)
	})
	for i := range l.Tensors() {
		if l.Spec(i).Tie != "" {
			return // a tensor is final only when all that share its cells are
		}
	}
	x.ready = x.final
}

// joined is the number of cells up to which a gradient is one bucket: what is so short arrives sooner in one operation than in two that
// overlap with the backward pass, because each costs a fixed time at each end. Of a longer one, only what is a quarter as long is joined.
const joined = 128 << 10

func join(list []collective.Bucket) []collective.Bucket {
	most := joined
	if n := len(list); n > 0 && list[0].To-list[n-1].From > joined {
		most /= 4
	}
	out := list[:1]
	for _, b := range list[1:] {
		last := &out[len(out)-1]
		if last.To-b.From > most {
			out = append(out, b)
			continue
		}
		last.From, last.Priority = b.From, b.Priority
		for _, t := range b.Tensors {
			if !slices.Contains(last.Tensors, t) {
				last.Tensors = append(last.Tensors, t)
			}
		}
	}
	return out
}

func dense(l *trivium.Layout, i int) bool {
	s := l.Spec(i)
	return s.Tie == "" && !s.RowSparse
}

// bucket makes a bucket's operation; where carries is true, the facts, before its first cell, travel in it too, as they are.
func (x *exchange) bucket(l *trivium.Layout, b collective.Bucket, codec compress.Codec, carries bool) bucket {
	op := collective.Op{Label: "gradient of " + span(l, b.Tensors), Priority: b.Priority}
	dst, src, plain := x.total.Flat[b.From:b.To], x.own.Flat[b.From:b.To], 0
	if carries {
		dst, src, plain = x.totalFacts[:numFacts+b.To], x.ownFacts[:numFacts+b.To], numFacts
	}
	if coded := (collective.Op{Codec: codec, Plain: plain}); codec != nil && x.auto.encodes(b.To-b.From) && x.g.Fits(coded, len(src)) == nil {
		n := b.To - b.From
		op.Codec, op.Plain, op.Residual, op.Owner = codec, plain, compress.NewResidual(n), compress.NewResidual(n)
	}
	return bucket{Bucket: b, op: op, dst: collective.Of(dst), src: collective.Of(src)}
}

// codedCells is how many cells of the gradient a codec encodes.
func (x *exchange) codedCells() (n int) {
	for _, b := range x.buckets {
		if b.op.Codec != nil {
			n += b.To - b.From
		}
	}
	return n
}

// fitsNone is why codec encodes no bucket; nil: it does, or there is none.
func (x *exchange) fitsNone(codec compress.Codec) error {
	if codec == nil || x.codedCells() > 0 {
		return nil
	}
	largest := 0
	for _, b := range x.buckets {
		largest = max(largest, b.To-b.From)
	}
	if largest == 0 {
		return fmt.Errorf("%s: all tensors are row-sparse", codec)
	}
	return x.g.Fits(collective.Op{Codec: codec}, largest)
}

// span names the tensors of a bucket, which are in reverse order.
func span(l *trivium.Layout, tensors []int) string {
	first, last := l.Spec(tensors[len(tensors)-1]).Name, l.Spec(tensors[0]).Name
	if first == last {
		return first
	}
	return first + " to " + last
}

// final says that a tensor of this worker's gradient is final.
func (x *exchange) final(tensor int) {
	if !dense(x.own.Layout, tensor) {
		return
	}
	if x.start(tensor) {
		yield()
	}
}

// start starts the buckets that a tensor was missing to, and reports whether the others should have this processor for a moment.
func (x *exchange) start(tensor int) (due bool) {
	x.mu.Lock()
	defer x.mu.Unlock()          // also after a panic, which the executor makes an error of: the others hear of it by trade
	_ = x.launcher.Ready(tensor) // it is one of the buckets' tensors
	return x.courtesy.due(x.run.Now())
}

func (x *exchange) launch(i int) {
	if x.rides && i == len(x.buckets)-1 {
		return // when the facts are known
	}
	b := &x.buckets[i]
	x.sendStrays(b)
	op := b.op
	op.Aside = i < len(x.buckets)-1 // the backward pass goes on
	x.g.Start(op, x.base+uint32(i), b.dst, b.src)
}
