package collective

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/transport"
)

// TestImpossibleAmounts: counts whose sum no int holds, and shards beyond a job's most, are refused. Plans made of them would never end.
func TestImpossibleAmounts(t *testing.T) {
	four := []int{0, 1 << 62, 1 << 62, 1 << 62, 1 << 62} // together 0, in 64 bits
	none := Of([]float32{})
	for _, v := range []struct {
		op   Op
		want string
	}{
		{Op{Kind: AllGather, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: Gather, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: Scatter, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: ReduceScatter, Counts: four}, "a count of 4611686018427387904"},
		{Op{Kind: AllToAll, Counts: four, Recv: make([]int, 5)}, "a count of 4611686018427387904"},
		{Op{Kind: AllToAll, Counts: make([]int, 5), Recv: four}, "a count of 4611686018427387904"},
		{Op{Kind: AllGather, Counts: []int{0, -1, 1, 0, 0}}, "a count of -1"},
		{Op{Shards: 1 << 40}, "1099511627776 shards"},
	} {
		if _, err := v.op.validate(0, 5, none, none); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v", v.op, err)
		}
	}
}

// TestOpOfNoEffect: a scale where nothing is reduced, and a plan that there is not, are refused. One that does not fit an allreduce leaves the choice
// to the planner, in its own name.
func TestOpOfNoEffect(t *testing.T) {
	one, other, two := Of(make([]float32, 1)), Of(make([]float32, 1)), Of(make([]float32, 2))
	for _, v := range []struct {
		op       Op
		dst, src Buffer
		want     string // empty: it is not refused
	}{
		{Op{Kind: Broadcast, Scale: 2}, one, other, "broadcast does not reduce, and cannot be scaled by 2"},
		{Op{Kind: AllGather, Scale: 0.5}, two, one, "all-gather does not reduce, and cannot be scaled by 0.5"},
		{Op{Kind: AllGather, Scale: 1}, two, one, ""},
		{Op{Kind: ReduceScatter, Scale: 2}, one, two, ""},
		{Op{Plan: 77}, one, other, "there is no plan algorithm(77)"},
		{Op{Kind: Barrier, Plan: Direct + 1}, Buffer{}, Buffer{}, "there is no plan algorithm(11)"},
		{Op{Kind: Barrier, Plan: Direct}, Buffer{}, Buffer{}, ""},
	} {
		if _, err := v.op.validate(0, 2, v.dst, v.src); (err == nil) != (v.want == "") || err != nil && err.Error() != v.want {
			t.Errorf("%+v: %v, want %s", v.op, err, v.want)
		}
	}
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}}}, &o)
	for _, n := range []int{10, 1 << 20} {
		dst, src := Of(make([]float32, n)), Of(make([]float32, n))
		for _, a := range []Algorithm{ExactTree, Direct, Hierarchy} {
			auto, asked := mustJob(t, Op{}, 0, 2, dst, src), mustJob(t, Op{Plan: a}, 0, 2, dst, src)
			if got, want := c.choose(asked), c.choose(auto); got != want {
				t.Errorf("%d elements by %v: it goes by %v, want %v", n, a, got, want)
			}
		}
	}
}

// TestFirstStep: a step that no frame can name is refused. Others took its frames for those of a step long past, and blamed its rank.
func TestFirstStep(t *testing.T) {
	for step, refused := range map[uint64]bool{0: false, 1<<44 - 1: false, 1 << 44: true, 1<<44 + 1: true, math.MaxUint64: true} {
		if _, err := (Options{FirstStep: step}).resolve(); (err != nil) != refused || refused && !strings.Contains(err.Error(), fmt.Sprintf("a FirstStep of %d", step)) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}

// TestOpsSeen: the ranks that a mismatch of the step's operations names are the lowest that have the sums, in whatever order votes come.
func TestOpsSeen(t *testing.T) {
	sums := []uint32{7, 3, 7, 3, 5}
	for from := range sums {
		for step := 1; step < len(sums); step++ { // the number is prime
			seen := opsSeen{math.MaxUint32, 0, len(sums), len(sums)}
			for i := range sums {
				r := (from + i*step) % len(sums)
				seen.merge(opsSeen{sums[r], sums[r], r, r})
			}
			if want := (opsSeen{3, 7, 1, 0}); seen != want {
				t.Errorf("from rank %d in steps of %d: %+v, want %+v", from, step, seen, want)
			}
		}
	}
}

// TestPriority: of a gradient's buckets the last, which the next forward pass needs first, goes before all others, and so do its frames. An
// operation that is known from one of another priority has its own.
func TestPriority(t *testing.T) {
	buckets := Cut([]int{1 << 20, 1 << 20, 1 << 20}, 4, 1<<20)
	for i, b := range buckets {
		if last := i == len(buckets)-1; (b.Priority == Front) != last || !last && b.Priority != Normal {
			t.Errorf("bucket %d of %d has priority %d", i, len(buckets), b.Priority)
		}
	}
	o, err := Options{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := newCore(0, View{Epoch: 1, Peers: []transport.Name{{ID: "0"}, {ID: "1"}}}, &o)
	for tag, v := range []struct {
		of   Priority
		want transport.Priority
	}{{Normal, transport.Data}, {Front, transport.Urgent}, {Back, transport.Bulk}} {
		c.out = c.out[:0]
		c.start(Op{Priority: v.of}, uint32(tag), Of(make([]float32, 10)), Of(make([]float32, 10)), nil)
		if len(c.out) == 0 {
			t.Errorf("priority %d: nothing is sent", v.of)
		}
		for _, out := range c.out {
			if out.f.Priority != v.want {
				t.Errorf("priority %d: a frame of priority %d, want %d", v.of, out.f.Priority, v.want)
			}
		}
	}
}
