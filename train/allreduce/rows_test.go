package allreduce

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestMeanOfRows: of a row-sparse tensor a worker adopts how often its rows were updated by whoever did so most; and a gradient's cells of rows that it
// does not touch, which hold anything, are not part of its sum.
func TestMeanOfRows(t *testing.T) {
	l, err := trivium.NewLayout(trivium.Spec{Name: "w", Shape: []int{3, 2}, RowSparse: true})
	if err != nil {
		t.Fatal(err)
	}
	rule, err := optim.New(trivium.OptimizerSpec{Name: "adam"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	state, err := optim.NewState(l, rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	cpu := tensor.NewCPU(1, false)
	defer cpu.Close()
	self := transport.Name{Role: "worker", ID: "0"}
	port, err := transport.NewMemory().Open(t.Context(), self, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	s, err := port.Stream("test", transport.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := collective.New(s, collective.View{Peers: []transport.Name{self}}, collective.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	x := &exchange{g: g, run: &train.Run{Params: trivium.NewParams(l), CPU: cpu}, own: trivium.NewGradient(l)}
	m := newMean(x, 2, state)

	copy(state.RowSteps()[0], []uint32{1, 0, 2})
	copy(m.most, []int32{4, 0, 2})
	x.sums[factSeen] = 10
	m.adopt()
	if got := state.RowSteps()[0]; got[0] != 4 || got[1] != 0 || got[2] != 2 {
		t.Errorf("updates of the rows: %v, want [4 0 2]", got)
	}

	for i := range x.own.Flat {
		x.own.Flat[i] = float32(math.NaN())
	}
	x.own.Rows[0] = []int32{1}
	copy(x.own.Tensor(0)[2:4], []float32{5, 6})
	sum, err := m.gradient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{0, 0, 5, 6, 0, 0} {
		if sum.Flat[i] != want {
			t.Errorf("the gradient is %v, want 5 and 6 in row 1 alone", sum.Flat)
			break
		}
	}
}
