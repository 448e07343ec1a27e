package collective

import (
	"math"
	"slices"
	"testing"
)

// virtualTime is what the plans of all ranks take, in seconds, on a network that costs what the model says: a rank sends one frame after the
// other, each in Alpha and in Beta for a byte, and combines one thing after the other, in Gamma for each byte of all operands but one. All else
// takes no time.
func virtualTime(t *testing.T, jobs []*job, a Algorithm, segment int, c Costs) (end float64) {
	t.Helper()
	type frame struct {
		from, to int
		chunk    uint32
	}
	size := len(jobs)
	plans, left, since, ready := make([]*Plan, size), make([][]int32, size), make([][]float64, size), make([][]int, size)
	links, cores := make([]float64, size), make([]float64, size) // until when a rank's are busy
	arrived, wanted := map[frame]float64{}, map[frame]int{}
	todo := 0
	var complete func(r, i int, at float64)
	begin := func(r, i int) {
		task := &plans[r].Tasks[i]
		if task.Do != DoRecv {
			ready[r] = append(ready[r], i)
			return
		}
		f := frame{task.Peer, r, task.Chunk}
		if at, ok := arrived[f]; ok {
			complete(r, i, max(at, since[r][i]))
		} else {
			wanted[f] = i
		}
	}
	complete = func(r, i int, at float64) {
		todo--
		end = max(end, at)
		for _, n := range plans[r].Tasks[i].next {
			since[r][n] = max(since[r][n], at)
			if left[r][n]--; left[r][n] == 0 {
				begin(r, int(n))
			}
		}
	}
	for r, j := range jobs {
		plans[r] = planOf(j, a, r, size, segment, 1<<20, nil, [2]bool{})
		todo += len(plans[r].Tasks)
		since[r] = make([]float64, len(plans[r].Tasks))
		for i, task := range plans[r].Tasks {
			if left[r] = append(left[r], task.after); task.after == 0 {
				begin(r, i)
			}
		}
	}
	for todo > 0 {
		rank, at, begins := -1, 0, math.Inf(1)
		for r := range ready {
			for k, i := range ready[r] {
				s := since[r][i]
				switch plans[r].Tasks[i].Do {
				case DoSend:
					s = max(s, links[r])
				case DoCombine:
					s = max(s, cores[r])
				}
				if s < begins || s == begins && r == rank && i < ready[r][at] {
					rank, at, begins = r, k, s
				}
			}
		}
		if rank < 0 {
			t.Fatalf("%v by %v: stuck with %d tasks", jobs[0].Kind, a, todo)
		}
		i := ready[rank][at]
		ready[rank] = slices.Delete(ready[rank], at, at+1)
		task := &plans[rank].Tasks[i]
		bytes := float64(task.To.Len() * jobs[rank].dtype.Size())
		switch task.Do {
		case DoSend:
			links[rank] = begins + c.Alpha + c.Beta*bytes
			complete(rank, i, links[rank])
			f := frame{rank, task.Peer, task.Chunk}
			arrived[f] = links[rank]
			if k, ok := wanted[f]; ok {
				complete(f.to, k, max(arrived[f], since[f.to][k]))
			}
		case DoCombine:
			cores[rank] = begins + c.Gamma*bytes*float64(len(task.From)-1)
			complete(rank, i, cores[rank])
		case DoCopy, DoFinish:
			complete(rank, i, begins)
		default:
			t.Fatalf("task %v", task.Do)
		}
	}
	return end
}

// TestFormulas: the predictions are what the plans take on a network that costs what the model says.
func TestFormulas(t *testing.T) {
	const n = 15 << 10 // elements, that the ranks and the segments share evenly
	c := Costs{Alpha: 9e-6, Beta: 0.34e-9, Gamma: 0.12e-9}
	for _, size := range []int{2, 3, 4, 5, 6, 8} {
		root := size - 1
		check := func(op Op, a Algorithm, segments int) {
			t.Helper()
			op.Root = root
			jobs := make([]*job, size)
			for r := range jobs {
				src, dst := n, n
				switch {
				case op.Kind == ReduceScatter:
					dst = n / size
				case op.Kind == AllGather:
					src = n / size
				case op.Kind == Broadcast && r != root:
					src = 0
				case op.Kind == ReduceTo && r != root:
					dst = 0
				}
				jobs[r] = mustJob(t, op, r, size, Of(make([]float32, dst)), Of(make([]float32, src)))
			}
			took := virtualTime(t, jobs, a, n/segments, c)
			predicted := c.PredictKind(op.Kind, size, 4*n, segments)
			if op.Kind == AllReduce {
				predicted = c.Predict(a, size, 4*n, segments)
			}
			if d := 1e9*took - float64(predicted); !(math.Abs(d) < 2) {
				t.Errorf("%v by %v among %d ranks, in %d segments: it takes %.0f ns, predicted were %d",
					op.Kind, a, size, segments, 1e9*took, predicted.Nanoseconds())
			}
		}
		for _, a := range []Algorithm{Ring, Pairwise} {
			check(Op{}, a, 1)
		}
		check(Op{Kind: ReduceScatter}, Direct, 1)
		check(Op{Kind: AllGather}, Direct, 1)
		check(Op{Kind: AllGather}, Doubling, 1)
		check(Op{Kind: Broadcast}, Direct, 1)
		check(Op{Kind: Broadcast}, Direct, 4)
		if size&(size-1) == 0 { // the model counts whole rounds
			check(Op{}, Halving, 1)
			check(Op{}, Doubling, 1)
			check(Op{}, Tree, 1)
			check(Op{Kind: ReduceTo}, Direct, 1)
			check(Op{Kind: ReduceTo}, Direct, 4)
		}
	}
}
