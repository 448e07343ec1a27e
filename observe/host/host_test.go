package host

import (
	"runtime"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe"
)

// TestThisMachine reads whatever machine the test is on.
func TestThisMachine(t *testing.T) {
	f, err := Describe(Options{})
	if err != nil {
		t.Log(err)
	}
	t.Logf("%+v", f)
	if f.Cores < 1 || f.OS == "" || f.Arch != runtime.GOARCH {
		t.Errorf("facts %+v", f)
	}
	r := NewReader(Options{})
	set := observe.NewSet(observe.Source{Role: observe.Worker})
	poll := r.Into(set)
	poll(0)
	runtime.GC()
	for begin, _ := processorTime(); ; { // until the clock of processor time has ticked
		if user, _ := processorTime(); user > begin {
			break
		}
	}
	poll(time.Second)
	frame := set.Frame(0)
	if frame.Counter(observe.CPUUser) == 0 || frame.Counter(observe.GCPauses) == 0 {
		t.Errorf("user time %d, pauses %d ns after a collection", frame.Counter(observe.CPUUser), frame.Counter(observe.GCPauses))
	}
	if use, ok := frame.Gauge(observe.CPUUse); !ok || use <= 0 {
		t.Errorf("busy cores %g", use)
	}
	if heap, ok := frame.Gauge(observe.HeapBytes); !ok || heap <= 0 {
		t.Errorf("heap %g", heap)
	}
}

// TestMemory: of the machine's memory and its control group's, what is less counts, and what is not known does not.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		f    Facts
		want int64
	}{
		{Facts{}, 0}, {Facts{MemoryBytes: 8}, 8}, {Facts{MemoryLimit: 4}, 4}, {Facts{MemoryBytes: 8, MemoryLimit: 4}, 4}, {Facts{MemoryBytes: 8, MemoryLimit: 9}, 8},
	} {
		if got := c.f.Memory(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.f, got, c.want)
		}
	}
}
