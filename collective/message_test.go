package collective

import (
	"reflect"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// Hostile reports and votes are refused, or read as what they would be written as again.
func FuzzReport(f *testing.F) {
	d := descriptor{kind: "allreduce", dtype: "f32", n: 7, splits: "x"}
	for _, m := range []report{{}, {whole: true, waits: 2, fault: fault{cause: Lost, rank: 3, evidence: "gone"}}, {step: 9, tag: 4, status: complete, waits: -1, lost: []int{1, 3}, desc: &d}} {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := readReport(p, 4)
		if err != nil {
			return
		}
		again, err := readReport(m.append(nil), 4)
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
		if m.fault.rank > 3 || m.waits > 3 || m.tag > maxTag || slices.ContainsFunc(m.lost, func(r int) bool { return r < 0 || r > 3 }) || len(m.lost) > 4 {
			t.Fatalf("out of range: %+v", m)
		}
	})
}

func FuzzOutcome(f *testing.F) {
	for _, o := range []outcome{{ofOperation, fault{cause: Disagree, rankA: 1, rankB: 3, field: "count", a: "1", b: "2"}}, {ofGroup, fault{cause: Lost, rank: 3, evidence: "gone"}}, {}} {
		f.Add(o.append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		o, err := readOutcome(p, 4)
		if err != nil {
			return
		}
		if again, err := readOutcome(o.append(nil), 4); err != nil || o != again {
			t.Fatalf("%+v became %+v, %v", o, again, err)
		}
		if o.fault.cause == 0 || o.fault.rank > 3 || o.fault.rankA > 3 || o.fault.rankB > 3 || o.of > ofGroup {
			t.Fatalf("out of range: %+v", o)
		}
	})
}

func FuzzVote(f *testing.F) {
	for _, v := range []vote{{}, {round: 2, fault: fault{cause: Disagree, rankA: 1, rankB: 3, field: "count", a: "1", b: "2"}}} {
		f.Add(v.append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		v, err := readVote(p, 4)
		if err != nil {
			return
		}
		again, err := readVote(v.append(nil), 4)
		if err != nil || v != again {
			t.Fatalf("%+v became %+v, %v", v, again, err)
		}
	})
}

// Case 5: a buffer above 2³¹ bytes has frames that can be numbered, and covers every element once. Only the plan is looked at: four such
// buffers do not fit a small machine.
func TestCase5PlanOfThreeGiB(t *testing.T) {
	const n = 3 << 30 / 4
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		kind Kind
		plan Algorithm
	}{{AllReduce, Ring}, {AllReduce, Halving}, {AllReduce, Pairwise}, {AllGather, Direct}, {AllToAll, Direct}} {
		for _, size := range []int{2, 5} {
			for rank := range size {
				if testing.Short() && rank > 1 { // they are alike
					break
				}
				c := newCore(0, View{Peers: make([]transport.Name, size), Self: rank}, &o)
				a, j := v.plan, job{Op: Op{Kind: v.kind, Plan: v.plan}, dtype: tensor.F32, n: n}
				least := n
				if v.kind != AllReduce { // of which the own part does not travel
					for r := range size {
						j.Counts = append(j.Counts, (r+1)*n/size-r*n/size)
					}
					least -= j.Counts[rank]
				}
				if v.kind == AllToAll {
					for range size {
						j.Recv = append(j.Recv, j.Counts[rank])
					}
					least = (size - 1) * j.Counts[rank]
				}
				p := planOf(&j, a, rank, size, c.segment(&j, a)/4, o.MaxFrame, nil, [2]bool{})
				p.index(size)
				received := 0
				for _, task := range p.Tasks {
					if task.Chunk >= 0xffff || task.To.Len()*4 > o.MaxFrame && task.Do == DoSend {
						t.Fatalf("%v, %v: chunk %d of %d bytes", v.kind, a, task.Chunk, task.To.Len()*4)
					}
					if task.Do == DoRecv {
						received += task.To.Len()
					}
				}
				if received < least {
					t.Errorf("%v, %v, %d ranks: rank %d receives %d of %d elements", v.kind, a, size, rank, received, least)
				}
			}
		}
	}
}
