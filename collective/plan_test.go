package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
)

// An interpreter runs the plans of all ranks in one place, in a random order. A frame's bytes are read from the sender's memory as late
// as can be, when the receiver takes them: a plan that overwrites what is still on its way gives wrong results here.
type interpreter struct {
	t     *testing.T
	jobs  []*job
	plans []*Plan
	mem   [][numBufs][]byte
	left  [][]int32
	ready [][]int // tasks by rank
	wire  map[[3]int][]byte
}

func runPlans(t *testing.T, jobs []*job, a Algorithm, segment int, hosts [][]int, seed uint64) {
	t.Helper()
	size := len(jobs)
	in := &interpreter{t: t, jobs: jobs, wire: map[[3]int][]byte{}}
	random := rand.New(rand.NewPCG(seed, 1))
	for r, j := range jobs {
		p := planOf(j, a, r, size, segment, 1<<20, hosts, [2]bool{})
		in.plans = append(in.plans, p)
		es := j.dtype.Size()
		in.mem = append(in.mem, [numBufs][]byte{Src: j.src.Bytes, Dst: j.dst.Bytes, Scratch: tensor.AlignedBytes(p.Scratch * es)})
		left := make([]int32, len(p.Tasks))
		var ready []int
		for i, task := range p.Tasks {
			if left[i] = task.after; left[i] == 0 {
				ready = append(ready, i)
			}
		}
		in.left, in.ready = append(in.left, left), append(in.ready, ready)
	}
	type token struct{ rank, task int }
	posted := map[[3]int]token{}
	var flying [][3]int // in the order of their sending, so that the seed says all
	done := 0
	total := 0
	for _, p := range in.plans {
		total += len(p.Tasks)
	}
	finish := func(r, i int) {
		done++
		for _, n := range in.plans[r].Tasks[i].next {
			if in.left[r][n]--; in.left[r][n] == 0 {
				in.ready[r] = append(in.ready[r], int(n))
			}
		}
	}
	for {
		// A local task that is ready, or a frame that is both sent and wanted.
		type choice struct {
			rank, at int
			key      [3]int
		}
		var choices []choice
		for r := range in.ready {
			for at := range in.ready[r] {
				choices = append(choices, choice{r, at, [3]int{}})
			}
		}
		for _, k := range flying {
			if _, ok := posted[k]; ok {
				choices = append(choices, choice{-1, 0, k})
			}
		}
		if len(choices) == 0 {
			break
		}
		c := choices[random.IntN(len(choices))]
		if c.rank < 0 {
			to := posted[c.key]
			task := &in.plans[to.rank].Tasks[to.task]
			dst := in.span(to.rank, task.To)
			src := in.wire[c.key]
			if len(src) != len(dst) {
				t.Fatalf("seed %d: rank %d sends %d bytes to rank %d, which wants %d", seed, c.key[0], len(src), c.key[1], len(dst))
			}
			copy(dst, src)
			delete(posted, c.key)
			delete(in.wire, c.key)
			flying = slices.DeleteFunc(flying, func(k [3]int) bool { return k == c.key })
			finish(to.rank, to.task)
			continue
		}
		r := c.rank
		i := in.ready[r][c.at]
		in.ready[r] = append(in.ready[r][:c.at], in.ready[r][c.at+1:]...)
		task := &in.plans[r].Tasks[i]
		switch task.Do {
		case DoSend:
			s := in.span(r, task.To)
			k := [3]int{r, task.Peer, int(task.Chunk)}
			in.wire[k] = s
			flying = append(flying, k)
			finish(r, i)
		case DoRecv:
			posted[[3]int{task.Peer, r, int(task.Chunk)}] = token{r, i}
		case DoCombine:
			var from [][]byte
			for _, s := range task.From {
				from = append(from, in.span(r, s))
			}
			combine(jobs[r].dtype, jobs[r].Reduce, in.span(r, task.To), from...)
			finish(r, i)
		case DoCopy:
			copy(in.span(r, task.To), in.span(r, task.From[0]))
			finish(r, i)
		case DoFinish:
			j := jobs[r]
			j.finishPart(size, in.span(r, task.To))
			finish(r, i)
		default:
			t.Fatalf("task %v", task.Do)
		}
	}
	if done != total {
		t.Fatalf("seed %d: %v, %v, %d ranks: stuck after %d of %d tasks", seed, jobs[0].Kind, a, size, done, total)
	}
}

func (in *interpreter) span(r int, s Span) []byte {
	es := in.jobs[r].dtype.Size()
	return in.mem[r][s.Buf][s.From*es : s.To*es]
}

func mustJob(t *testing.T, op Op, rank, size int, dst, src Buffer) *job {
	t.Helper()
	j, err := op.validate(rank, size, dst, src)
	if err != nil {
		t.Fatal(err)
	}
	return &j
}

var reducing = []Algorithm{GatherCast, Ring, Halving, Doubling, Tree, Pairwise, Hierarchy}

func hostsOf(size, each int) [][]int {
	var hosts [][]int
	for r := 0; r < size; r += each {
		var h []int
		for i := r; i < min(size, r+each); i++ {
			h = append(h, i)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func TestPlansAllReduce(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: plans are made and run by one goroutine")
	}
	for _, a := range reducing {
		for _, size := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16} {
			for _, n := range []int{0, 1, 3, size, 40} {
				for seed := range uint64(2) {
					jobs := make([]*job, size)
					for r := range jobs {
						src, dst := make([]int64, n), make([]int64, n)
						for i := range src {
							src[i] = int64(1+r) * int64(i+1)
						}
						jobs[r] = mustJob(t, Op{Kind: AllReduce}, r, size, Of(dst), Of(src))
					}
					each := 1 + int(seed)*2
					runPlans(t, jobs, a, 5, hostsOf(size, each), seed)
					for r, j := range jobs {
						for i, v := range as[int64](j.dst.Bytes) {
							if want := int64(size*(size+1)/2) * int64(i+1); v != want {
								t.Fatalf("%v, %d ranks, %d elements: rank %d has %d at %d, want %d", a, size, n, r, v, i, want)
							}
						}
					}
				}
			}
		}
	}
}

// exactSum is the tree, written apart from the plans: the counter of package train.
func exactSum(leaves [][]float32) []float32 {
	var pending [][]float32
	for v, s := range leaves {
		now := append([]float32(nil), s...)
		for size := v + 1; len(pending) > 0 && (size%2 == 0 || v == len(leaves)-1); size /= 2 {
			last := pending[len(pending)-1]
			pending = pending[:len(pending)-1]
			for i := range now {
				now[i] += last[i]
			}
		}
		pending = append(pending, now)
	}
	return pending[0]
}

func shardVectors(v, n int, seed uint64) [][]float32 {
	random := rand.New(rand.NewPCG(seed, 2))
	leaves := make([][]float32, v)
	for i := range leaves {
		leaves[i] = make([]float32, n)
		for k := range leaves[i] {
			leaves[i][k] = float32(random.NormFloat64())
		}
	}
	return leaves
}

// exactSource is what rank contributes.
func exactSource(leaves [][]float32, rank, size int) []float32 {
	var src []float32
	for _, s := range shards.Owned(rank, size, len(leaves)) {
		src = append(src, exactSum(leaves[s.From:s.To])...)
	}
	return src
}

func TestPlansExact(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: plans are made and run by one goroutine")
	}
	const n = 29
	for _, v := range []int{1, 2, 3, 5, 8, 12, 16, 21} {
		leaves := shardVectors(v, n, uint64(v))
		want := exactSum(leaves)
		for _, size := range []int{1, 2, 3, 4, 5, 7, 8, 13, 16, 18} {
			for _, a := range []Algorithm{ExactTree, Doubling} {
				jobs := make([]*job, size)
				for r := range jobs {
					jobs[r] = mustJob(t, Op{Kind: AllReduce, Shards: v}, r, size, Of(make([]float32, n)), Of(exactSource(leaves, r, size)))
				}
				runPlans(t, jobs, a, 4, nil, uint64(size))
				for r, j := range jobs {
					if got := as[float32](j.dst.Bytes); !bytes.Equal(j.dst.Bytes, Of(want).Bytes) {
						t.Fatalf("%d shards, %d ranks: rank %d has %v, want %v", v, size, r, got, want)
					}
				}
			}
		}
	}
}

func TestPlansMove(t *testing.T) {
	for size := 1; size <= 9; size++ {
		counts := make([]int, size)
		total := 0
		for r := range counts {
			counts[r] = r * 3 % 7
			total += counts[r]
		}
		part := func(r int) []int32 {
			x := make([]int32, counts[r])
			for i := range x {
				x[i] = int32(100*r + i)
			}
			return x
		}
		var all []int32
		for r := range counts {
			all = append(all, part(r)...)
		}
		root := size / 2
		for k, a := range []Algorithm{Direct, Doubling, Hierarchy, Hierarchy, Hierarchy} {
			hosts := [...][][]int{nil, nil, hostsOf(size, 2), hostsOf(size, 3), spread(size, 3)}[k]
			for _, kind := range []Kind{AllGather, Gather, Scatter, Broadcast, ReduceScatter, ReduceTo, AllToAll, Barrier} {
				jobs := make([]*job, size)
				want := make([][]int32, size)
				for r := range jobs {
					op := Op{Kind: kind, Root: root, Counts: counts}
					var src, dst []int32
					switch kind {
					case AllGather:
						src, dst, want[r] = part(r), make([]int32, total), all
					case Gather:
						src = part(r)
						if r == root {
							dst, want[r] = make([]int32, total), all
						}
					case Scatter:
						dst, want[r] = make([]int32, counts[r]), part(r)
						if r == root {
							src = all
						}
					case Broadcast:
						op.Counts = nil
						dst, want[r] = make([]int32, total), all
						if r == root {
							src = all
						}
					case ReduceScatter:
						src, dst, want[r] = all, make([]int32, counts[r]), part(r)
						for i := range want[r] {
							want[r][i] *= int32(size)
						}
					case ReduceTo:
						op.Counts = nil
						src = all
						if r == root {
							dst = make([]int32, total)
							for _, v := range all {
								want[r] = append(want[r], v*int32(size))
							}
						}
					case AllToAll:
						op.Counts, op.Recv = make([]int, size), make([]int, size)
						for q := range size {
							op.Counts[q], op.Recv[q] = (r+2*q)%3, (q+2*r)%3
							for i := range op.Counts[q] {
								src = append(src, int32(1000*r+10*q+i))
							}
							for i := range op.Recv[q] {
								want[r] = append(want[r], int32(1000*q+10*r+i))
							}
						}
						dst = make([]int32, len(want[r]))
					case Barrier:
						op.Counts = nil
					}
					jobs[r] = mustJob(t, op, r, size, Of(dst), Of(src))
				}
				runPlans(t, jobs, a, 2, hosts, 7)
				for r, j := range jobs {
					if got := as[int32](j.dst.Bytes); fmt.Sprint(got) != fmt.Sprint(want[r]) && len(got)+len(want[r]) > 0 {
						t.Fatalf("%v, %v, %d ranks on %v: rank %d has %v, want %v", kind, a, size, hosts, r, got, want[r])
					}
				}
			}
		}
	}
}

// spread lays size ranks out on so many hosts in turn, as far as there are ranks.
func spread(size, hosts int) [][]int {
	list := make([][]int, min(size, hosts))
	for r := range size {
		list[r%len(list)] = append(list[r%len(list)], r)
	}
	return list
}
