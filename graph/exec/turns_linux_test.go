package exec_test

import (
	"math/bits"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/exec"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/tensor/kernel"
)

// TestTurns: a long step of a process that shares the cores keeps to its own, from the second on, and leaves none of its threads there.
func TestTurns(t *testing.T) {
	all := coresNow(t)
	if all == 1 {
		t.Skip("not run here: there is one core")
	}
	cpu := tensor.NewCPU(1, false)
	defer cpu.Close()
	cpu.Among(0, all+1)
	b := graph.NewBuilder()
	n := 512 // of milliseconds on any machine: one of 192 took less than the 0.5 ms from which on turns are taken on a fast one
	if cpu.ISA == kernel.Go {
		n = 128 // as it is under the race detector
	}
	x := b.Input("x", graph.F32, graph.N(n), graph.N(n))
	y := x
	for range 8 {
		y = graph.Tanh(graph.MatMul(y, x))
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p, err := exec.Compile(g, []graph.Value{x}, []graph.Value{y}, nil, exec.Options{CPU: cpu})
	if err != nil {
		t.Fatal(err)
	}
	s := exec.NewState(exec.StateOptions{})
	feed, dst := tensor.New(tensor.F32, n, n), tensor.New(tensor.F32, n, n)
	for step := range 3 {
		var during atomic.Int32
		if err := p.RunInto(t.Context(), s, []*tensor.Tensor{feed}, []*tensor.Tensor{dst}, func(int) { during.Store(int32(coresNow(t))) }); err != nil {
			t.Fatal(err)
		}
		want := 1
		if step == 0 { // how long it takes is not known
			want = all
		}
		if int(during.Load()) != want {
			t.Errorf("step %d may run on %d cores, want %d", step, during.Load(), want)
		}
		if now := coresNow(t); now != all {
			t.Errorf("after step %d the thread has %d cores, had %d", step, now, all)
		}
	}
}

// coresNow is how many cores the calling thread may run on.
func coresNow(t *testing.T) int {
	t.Helper()
	var set [16]uint64
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set))); errno != 0 {
		t.Error(errno)
	}
	n := 0
	for _, x := range set {
		n += bits.OnesCount64(x)
	}
	return n
}
