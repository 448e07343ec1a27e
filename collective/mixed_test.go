package collective_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/shards"
)

var soak = flag.Uint64("soak", 1, "how many times as many seeds TestMixed and TestDifferInAnyOrder run")

// A mixedOp is an operation of any kind. What its ranks give are small whole numbers, which no order of additions and no rounding changes.
type mixedOp struct {
	op     collective.Op
	tag    uint32
	counts []int // of parts
	n      int
}

// mixedOps are the operations of a step, the same at all ranks.
func mixedOps(seed, step uint64, size int) (list []mixedOp) {
	random := rand.New(rand.NewPCG(seed, step))
	for tag := range 1 + random.IntN(4) {
		m := mixedOp{op: collective.Op{Kind: collective.Kind(random.IntN(int(collective.Receive))), Root: random.IntN(size)}, tag: uint32(2 * tag)}
		for range size {
			m.counts = append(m.counts, random.IntN(4)*random.IntN(12))
			m.n += m.counts[len(m.counts)-1]
		}
		switch m.op.Kind {
		case collective.AllReduce:
			m.op.Plan = collective.Algorithm(random.IntN(int(collective.Shared) + 1))
			switch random.IntN(4) {
			case 0:
				m.op.Plan, m.op.Shards = collective.Auto, 1+random.IntN(17)
			case 1:
				m.op.Codec, m.op.Plain = compress.F16{}, min(m.n, random.IntN(3))
			case 2:
				m.op.Codec = compress.TopK{Share: 0.25}
			}
		case collective.ReduceScatter, collective.AllGather:
			if m.op.Counts = m.counts; random.IntN(2) == 0 {
				m.op.Plan = collective.Hierarchy
			}
		case collective.Gather, collective.Scatter:
			m.op.Counts = m.counts
		}
		list = append(list, m)
	}
	return list
}

// mixedCell is what a rank gives of an element.
func mixedCell(rank, i int) float32 { return float32((rank + 1) * (i%7 - 3)) }

func mixedCells(rank, from, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = mixedCell(rank, from+i)
	}
	return x
}

// call is the operation at a rank, and what it should make of the destination; nil: what no codec may be asked.
func (m mixedOp) call(rank, size int) (call collective.StartCall, want []float32) {
	op := m.op
	at := 0
	for _, n := range m.counts[:rank] {
		at += n
	}
	part, sum, all := m.counts[rank], make([]float32, m.n), make([]float32, 0, m.n)
	for i := range sum {
		for r := range size {
			sum[i] += mixedCell(r, i)
		}
	}
	for r, n := range m.counts {
		all = append(all, mixedCells(r, 0, n)...)
	}
	var src, dst []float32
	switch op.Kind {
	case collective.AllReduce:
		src, dst, want = mixedCells(rank, 0, m.n), make([]float32, m.n), sum
		if op.Shards > 0 { // a rank's first subtree has what it gives, the others nothing; one without shards gives nothing
			own := len(shards.Owned(rank, size, op.Shards))
			want = make([]float32, m.n)
			for r := range size {
				if len(shards.Owned(r, size, op.Shards)) > 0 {
					for i := range want {
						want[i] += mixedCell(r, i)
					}
				}
			}
			src = append(src, make([]float32, max(0, own-1)*m.n)...)[:own*m.n]
		}
		if _, lossy := op.Codec.(compress.TopK); lossy {
			want = nil
			op.Residual, op.Owner = compress.NewResidual(m.n), compress.NewResidual(m.n)
		}
	case collective.ReduceTo:
		if src = mixedCells(rank, 0, m.n); rank == op.Root {
			dst, want = make([]float32, m.n), sum
		}
	case collective.ReduceScatter:
		src, dst, want = mixedCells(rank, 0, m.n), make([]float32, part), sum[at:at+part]
	case collective.AllGather:
		src, dst, want = mixedCells(rank, 0, part), make([]float32, m.n), all
	case collective.Gather:
		if src = mixedCells(rank, 0, part); rank == op.Root {
			dst, want = make([]float32, m.n), all
		}
	case collective.Scatter:
		if dst, want = make([]float32, part), all[at:at+part]; rank == op.Root {
			src = all
		}
	case collective.Broadcast:
		if dst, want = make([]float32, m.n), all; rank == op.Root {
			src = all
		}
	case collective.AllToAll: // rank r sends as many to each as that one's part has
		op.Counts, op.Recv = m.counts, slices.Repeat([]int{part}, size)
		for _, n := range m.counts {
			src = append(src, mixedCells(rank, 0, n)...)
		}
		for r := range size {
			want = append(want, mixedCells(r, 0, part)...)
		}
		dst = make([]float32, len(want))
	case collective.Send: // to the root, from the one before it
		to := op.Root
		switch from := (to + size - 1) % size; rank {
		case from:
			src = mixedCells(from, 0, m.n)
		case to:
			op.Kind, op.Root, dst, want = collective.Receive, from, make([]float32, m.n), mixedCells(from, 0, m.n)
		default:
			op.Kind = collective.Kind(255) // it has no part in it
		}
	}
	return collective.StartCall{Op: op, Tag: m.tag, Dst: collective.Of(dst), Src: collective.Of(src)}, want
}

// A mixer has a mob do mixed operations, and looks at what comes of them.
type mixer struct {
	seed uint64
	size int
	odd  func(rank int, step uint64, calls []collective.StartCall) []collective.StartCall // what one rank does instead; nil: nothing
	mine map[[2]int][]mixedResult                                                         // by rank and step
}

type mixedResult struct {
	call collective.StartCall
	want []float32
	was  []byte // once it is the caller's again
	src  []byte
}

func (x *mixer) calls(r int, step uint64) (calls []collective.StartCall) {
	at := [2]int{r, int(step)}
	for _, m := range mixedOps(x.seed, step, x.size) {
		call, want := m.call(r, x.size)
		if call.Op.Kind == 255 {
			continue
		}
		x.mine[at] = append(x.mine[at], mixedResult{call, want, nil, bytes.Clone(call.Src.Bytes)})
		calls = append(calls, call)
	}
	if x.odd != nil {
		calls = x.odd(r, step, calls)
	}
	return calls
}

// ended is told of a commit: from now on the memory is the caller's.
func (x *mixer) ended(r int, step uint64) {
	list := x.mine[[2]int{r, int(step)}]
	for i := range list {
		list[i].was = bytes.Clone(list[i].call.Dst.Bytes)
	}
}

// wrong lists what is wrong with the results of the mob.
func (x *mixer) wrong(b *mob) (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for r := range x.size {
		for step := uint64(0); step <= b.step[r]; step++ {
			text, told := b.waits[r][fmt.Sprintf("step %d, commit", step)]
			for i, m := range x.mine[[2]int{r, int(step)}] {
				if m.was != nil && !bytes.Equal(m.was, m.call.Dst.Bytes) {
					say("step %d, rank %d: %v was written to after the commit", step, r, m.call.Op.Kind)
				}
				if !bytes.Equal(m.src, m.call.Src.Bytes) {
					say("step %d, rank %d: the source of %v was written to", step, r, m.call.Op.Kind)
				}
				if !told || text != "" {
					continue
				}
				if m.want != nil && !bytes.Equal(collective.Of(m.want).Bytes, m.call.Dst.Bytes) {
					say("step %d, rank %d: %+v has made something else than %v", step, r, m.call.Op, m.want)
				}
				other := x.mine[[2]int{0, int(step)}]
				if m.call.Op.Kind == collective.AllReduce && i < len(other) && other[i].call.Tag == m.call.Tag && !b.dead[0] && !bytes.Equal(other[i].call.Dst.Bytes, m.call.Dst.Bytes) {
					say("step %d: %+v has other bits at ranks 0 and %d", step, m.call.Op, r)
				}
			}
		}
	}
	return list
}

// TestMixed: operations of all kinds, with codecs and in exact mode, under way at once, where messages come in any order: all have the right results,
// or all survivors the same errors, and nothing is written to memory that is the caller's again, where a rank dies, or does something else.
func TestMixed(t *testing.T) {
	seeds := 40 * *soak
	if testing.Short() {
		seeds = 12
	}
	for _, kind := range []string{"nothing happens", "one dies", "one differs", "one dies, one differs", "two die"} {
		counts, fails := 0, 0
		for _, size := range []int{2, 3, 4, 5, 6, 9} { // of more than 8, votes go another way
			for seed := range seeds {
				steps, failed, wrong := mixed(t, kind, seed, size)
				if counts, fails = counts+steps, fails+failed; len(wrong) > 0 {
					t.Fatalf("%s: seed %d, %d ranks: %q", kind, seed, size, wrong)
				}
			}
		}
		t.Logf("%s: %d steps, %d of them failed", kind, counts, fails)
		if counts == 0 || fails == 0 && kind != "nothing happens" {
			t.Errorf("%s: %d steps, %d of them failed: the test has lost its sting", kind, counts, fails)
		}
	}
}

func mixed(t *testing.T, kind string, seed uint64, size int) (steps, failed int, wrong []string) {
	random := rand.New(rand.NewPCG(seed, 77))
	x := &mixer{seed: seed, size: size, mine: map[[2]int][]mixedResult{}}
	var hosts [][]int
	if each := random.IntN(4); each > 0 {
		hosts = collective.HostsOf(size, each)
	}
	b := newMob(seed, size, hosts, x.calls)
	b.last, b.ended, b.eager = 8, x.ended, seed%2 == 1
	die, die2, odd := random.IntN(size), random.IntN(size), random.IntN(size)
	if odd == die {
		odd = (odd + 1) % size
	}
	if die2 == die {
		die2 = (die2 + 1) % size
	}
	if kind == "one differs" || kind == "one dies, one differs" {
		step := uint64(random.IntN(5))
		how := random.IntN(6)
		x.odd = func(r int, s uint64, calls []collective.StartCall) []collective.StartCall {
			if r != odd || s != step {
				return calls
			}
			return differently(calls, how, size, r)
		}
	}
	never := 1 << 30
	first, second := never, never
	if kind == "one dies" || kind == "one dies, one differs" || kind == "two die" {
		first = random.IntN(100 * size)
	}
	if kind == "two die" && size > 2 {
		second = first + random.IntN(60)
	}
	b.start()
	var killed time.Duration
	turn := 0
	for ; b.training() && turn < 100_000; turn++ {
		if turn == first {
			b.kill(die)
			killed = b.now
		}
		if turn == second {
			b.kill(die2)
			killed = b.now
		}
		b.turn()
	}
	took := b.now - killed
	for range 200 { // what is still under way lands
		if first < turn || second < turn {
			b.turn()
		}
	}
	for r := range b.m {
		if !b.dead[r] && !b.over[r] {
			wrong = append(wrong, fmt.Sprintf("rank %d does not end", r))
		}
	}
	if first < turn && took > 10*time.Millisecond {
		wrong = append(wrong, fmt.Sprintf("it took %v", took))
	}
	wrong = append(wrong, b.differences()...)
	wrong = append(wrong, x.wrong(b)...)
	for r := range b.m {
		for what, text := range b.waits[r] {
			if len(what) > 6 && what[len(what)-6:] == "commit" {
				if steps++; text != "" {
					failed++
				}
			}
		}
	}
	return steps, failed, wrong
}

// differently is what a rank does in place of calls.
func differently(calls []collective.StartCall, how, size, rank int) []collective.StartCall {
	calls = slices.Clone(calls)
	if len(calls) == 0 {
		how = 5
	}
	switch how {
	case 0: // one less
		return calls[1:]
	case 1: // another tag
		calls[0].Tag++
	case 2: // another type
		calls[0].Dst.DType, calls[0].Src.DType = 0, 0
		calls[0] = collective.StartCall{Op: collective.Op{Reduce: collective.Max}, Tag: calls[0].Tag, Dst: collective.Of(make([]int64, 5)), Src: collective.Of(make([]int64, 5))}
	case 3: // another reduction, or root
		calls[0].Op.Reduce, calls[0].Op.Root = collective.Mean, (calls[0].Op.Root+1)%size
	case 4: // another order
		slices.Reverse(calls)
	case 5: // one more
		calls = append(calls, collective.StartCall{Op: collective.Op{Kind: collective.Barrier}, Tag: 99})
	}
	return calls
}
