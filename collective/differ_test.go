package collective_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/tensor"
)

// A plannedOp is what all ranks begin at a tag, or one that asks for something else.
type plannedOp struct {
	kind   collective.Kind // Send: from one rank to the root
	tag    uint32
	n      int // elements of a part
	dtype  tensor.DType
	reduce collective.Reduce
	root   int
	scale  float64
	shape  []int
	codec  compress.Codec
	plan   collective.Algorithm
	more   [2]int // in AllToAll, to a rank, so many elements more
	any    bool   // the root receives from any
	others bool   // all others send
	absent bool   // one of them does not call it
	extra  int    // so many messages more are received
}

// calls are what rank r of size begins.
func (o *plannedOp) calls(r, size int) []collective.StartCall {
	buffer := func(n int) collective.Buffer {
		return collective.Buffer{DType: o.dtype, Bytes: tensor.AlignedBytes(n * o.dtype.Size())}
	}
	op := collective.Op{Kind: o.kind, Reduce: o.reduce, Root: o.root, Scale: o.scale, Shape: o.shape, Codec: o.codec, Plan: o.plan}
	dst, src := o.n, o.n
	atRoot := func(n *int, times int) {
		if *n *= times; r != o.root {
			*n = 0
		}
	}
	times := 1
	switch {
	case o.absent:
		return nil
	case o.kind == collective.AllReduce:
	case o.kind == collective.ReduceTo:
		atRoot(&dst, 1)
	case o.kind == collective.ReduceScatter:
		src *= size
	case o.kind == collective.AllGather:
		dst *= size
	case o.kind == collective.Gather:
		atRoot(&dst, size)
	case o.kind == collective.Scatter:
		atRoot(&src, size)
	case o.kind == collective.Broadcast:
		atRoot(&src, 1)
	case o.kind == collective.Barrier:
		dst, src = 0, 0
	case o.kind == collective.AllToAll:
		op.Counts, op.Recv = slices.Repeat([]int{o.n}, size), slices.Repeat([]int{o.n}, size)
		op.Counts[o.more[0]] += o.more[1]
		dst, src = o.n*size, o.n*size+o.more[1]
	case r == o.root:
		op.Kind, op.Root, src = collective.Receive, (o.root+1)%size, 0
		if o.any {
			op.Root = collective.AnyRank
		}
		if o.others {
			times = size - 1
		}
		times += o.extra
	case o.others || r == (o.root+1)%size:
		dst = 0
	default:
		return nil
	}
	var list []collective.StartCall
	for range times {
		list = append(list, collective.StartCall{Op: op, Tag: o.tag, Dst: buffer(dst), Src: buffer(src)})
	}
	return list
}

var plannedKinds = []collective.Kind{
	collective.AllReduce, collective.AllReduce, collective.ReduceTo, collective.ReduceScatter, collective.AllGather, collective.Gather, collective.Scatter,
	collective.Broadcast, collective.AllToAll, collective.AllToAll, collective.Barrier, collective.Send, collective.Send,
}

func randomPlanned(random *rand.Rand, tag, size int) plannedOp {
	o := plannedOp{kind: plannedKinds[random.IntN(len(plannedKinds))], tag: uint32(tag), n: []int{0, 1, 8, 16, 32, 40}[random.IntN(6)], dtype: tensor.F32}
	root, plan := random.IntN(size), collective.Algorithm(random.IntN(int(collective.Pairwise)+1))
	switch o.kind { // what does not matter to it is the same in all: two that differ in nothing else are alike
	case collective.AllReduce:
		o.plan = plan
	case collective.Barrier:
		o.n = 0
	case collective.ReduceScatter, collective.AllGather, collective.AllToAll:
	default:
		o.root = root
	}
	if o.kind == collective.Send {
		o.any = random.IntN(2) == 0
		o.others = o.any && random.IntN(2) == 0
	}
	return o
}

// differ makes one rank's list of operations another, and says how; empty: it has found nothing to change.
func differ(random *rand.Rand, ops []plannedOp, rank, size int) string {
	o := &ops[random.IntN(len(ops))]
	transfer, carries := o.kind == collective.Send, o.kind != collective.Barrier
	defer slices.SortFunc(ops, func(a, b plannedOp) int { return int(a.tag) - int(b.tag) })
	if len(o.calls(rank, size)) == 0 {
		return ""
	}
	switch random.IntN(11) {
	case 0:
		if carries {
			o.n++
			return "count"
		}
	case 1:
		if carries && o.n > 0 {
			o.dtype = tensor.I32
			return "dtype"
		}
	case 2:
		if o.kind == collective.AllReduce || o.kind == collective.ReduceTo || o.kind == collective.ReduceScatter {
			o.reduce = collective.Max
			return "reduction"
		}
	case 3:
		if !transfer && (o.kind == collective.ReduceTo || o.kind >= collective.Gather && o.kind <= collective.Broadcast) {
			o.root = (o.root + 1) % size
			return "root"
		}
	case 4:
		if carries {
			o.shape = []int{o.n, 1}
			return "shape"
		}
	case 5:
		if o.kind == collective.AllReduce && o.n > 0 {
			o.codec = compress.F16{}
			return "codec"
		}
	case 6:
		if o.kind == collective.AllToAll {
			o.more = [2]int{(rank + 1 + random.IntN(size-1)) % size, []int{1, 16}[random.IntN(2)]}
			return "splits"
		}
	case 7:
		if !transfer {
			o.kind = []collective.Kind{collective.Broadcast, collective.AllReduce, collective.Barrier, collective.Gather}[random.IntN(4)]
			return "operation"
		}
	case 8:
		o.absent = true
		return "absent"
	case 9:
		p := &ops[random.IntN(len(ops))]
		if p != o && !(size == 2 && alike(*o, *p)) {
			o.tag, p.tag = p.tag, o.tag
			return "order"
		}
	case 10:
		if transfer && o.any && rank == o.root {
			o.extra = 1 - 2*random.IntN(2)
			return "number of receives"
		}
	}
	return ""
}

// alike says whether two transfers between two ranks are the same, though one receives from any: from the only other.
func alike(a, b plannedOp) bool {
	a.tag, a.any, a.others = b.tag, b.any, b.others
	return a.kind == collective.Send && fmt.Sprint(a) == fmt.Sprint(b)
}

// TestDifferInAnyOrder: one rank asks for something else than the others, in one step of three, and what they send arrives in any order that links
// allow. All have the same outcome of every commit, and of every operation that fails, and soon. None commits the step.
func TestDifferInAnyOrder(t *testing.T) {
	seeds := 1600 * *soak
	if testing.Short() {
		seeds = 400
	}
	for seed := range seeds {
		differInAnyOrder(t, seed)
	}
}

func differInAnyOrder(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	size := []int{2, 3, 4, 5, 9}[random.IntN(5)]
	odd, how := 0, ""
	var steps [3][]plannedOp
	var others []plannedOp // of the odd rank in step 1
	for s := range steps {
		for tag := range 1 + random.IntN(4) {
			steps[s] = append(steps[s], randomPlanned(random, tag, size))
		}
	}
	for how == "" {
		odd, others = random.IntN(size), slices.Clone(steps[1])
		if how = differ(random, others, odd, size); fmt.Sprint(others) == fmt.Sprint(steps[1]) {
			how = ""
		}
	}
	x := newMob(seed, size, nil, func(r int, step uint64) (calls []collective.StartCall) {
		ops := steps[step]
		if r == odd && step == 1 {
			ops = others
		}
		for i := range ops {
			calls = append(calls, ops[i].calls(r, size)...)
		}
		return calls
	})
	x.eager, x.last = true, 2
	x.start()
	for turn := 0; turn < 100_000 && x.training(); turn++ {
		x.turn()
	}
	name := fmt.Sprintf("seed %d, %d ranks, of which rank %d differs in %s", seed, size, odd, how)
	if x.now > 100*time.Millisecond {
		t.Errorf("%s: it took %v", name, x.now)
	}
	for _, d := range x.differences() {
		t.Errorf("%s: %s", name, d)
	}
	if x.waits[0]["step 1, commit"] == "" {
		t.Errorf("%s: the step is committed", name)
	}
	for _, s := range []string{"step 0, commit", "step 2, commit"} {
		if text := x.waits[0][s]; text != "" {
			t.Errorf("%s: %s: %s", name, s, text)
		}
	}
}

// TestSplitsOfWholeFrames: of two ranks in an all-to-all one sends whole frames more, or fewer, than the other expects, of which all that come fit.
func TestSplitsOfWholeFrames(t *testing.T) {
	const frame = 16 // elements
	synctest.Test(t, func(t *testing.T) {
		for _, sent := range []int{0, 1, 3} {
			w := open(t, inMemory, 3, collective.Options{Segment: 4 * frame})
			begin := time.Now()
			errs := w.each(func(r int, g *collective.Group) error {
				op := collective.Op{Kind: collective.AllToAll, Counts: slices.Repeat([]int{2 * frame}, 3), Recv: slices.Repeat([]int{2 * frame}, 3)}
				n := 6 * frame
				if r == 2 {
					op.Counts[1] = sent * frame
					n += (sent - 2) * frame
				}
				return run(t.Context(), g, op, collective.Of(make([]float32, 6*frame)), collective.Of(make([]float32, n)))
			})
			for r, err := range errs {
				if m, ok := errors.AsType[*collective.Mismatch](err); !ok || m.Field != "splits" || m.RankA != 1 || m.RankB != 2 || err.Error() != errs[0].Error() {
					t.Errorf("%d frames: rank %d has %v, rank 0 %v", sent, r, err, errs[0])
				}
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("%d frames: it took %v", sent, took)
			}
			w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
			w.close()
		}
	})
}
