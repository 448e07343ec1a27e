package train_test

import (
	"runtime"
	"testing"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestTakeTurns: only workers of one host that are more than its cores take turns.
func TestTakeTurns(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.NumCPU() == 1 {
		t.Skip("not run here: turns are for Linux, and for several cores")
	}
	for _, c := range []struct {
		name    string
		near    bool
		workers int
		want    bool
	}{
		{"on several hosts", false, runtime.NumCPU() + 1, false},
		{"as many as cores", true, runtime.NumCPU(), false},
		{"more than cores", true, runtime.NumCPU() + 1, true},
	} {
		cpu := tensor.NewCPU(1, false)
		env := train.Env{Near: c.near, CPU: cpu, Peers: make([]transport.Name, c.workers)}
		if env.TakeTurns(); (cpu.Turns() != nil) != c.want {
			t.Errorf("%s: take turns: %t, want %t", c.name, !c.want, c.want)
		}
		cpu.Close()
	}
}
