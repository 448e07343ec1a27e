// Package host says what machine a run is on and what the process takes of it: processors, memory, limits of its control group,
// processor time, pauses of the garbage collector, throttling.
//
// [Describe] returns the [Facts] for the run directory; a [Reader] keeps a Set's live figures fresh:
//
//	facts, err := host.Describe(host.Options{})
//	figures := host.NewReader(host.Options{})
//	hub.Poll(figures.Into(recorder.Set()))
//
// On Linux it reads procfs and the files of control groups, version 1 and 2; elsewhere there are fewer figures. What is not known is
// zero. Linux keeps no network bytes per process: the transport counts them.
package host

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/trivium-ml/trivium/observe"
)

// Facts describe a machine, and what a process may use of it.
type Facts struct {
	Name        string  `json:"name,omitempty"`
	OS          string  `json:"os"` // a distribution's name and version, or Go's name for the system
	Kernel      string  `json:"kernel,omitempty"`
	Arch        string  `json:"arch"`
	CPU         string  `json:"cpu,omitempty"` // the model
	Cores       int     `json:"cores"`         // logical processors this process may run on
	MemoryBytes uint64  `json:"memory_bytes,omitempty"`
	CPULimit    float64 `json:"cpu_limit,omitempty"`          // cores, of the control group; 0: none
	MemoryLimit uint64  `json:"memory_limit_bytes,omitempty"` // of the control group; 0: none
	Cgroup      int     `json:"cgroup,omitempty"`             // its version; 0: none
}

// Memory is what a process may have of this machine's memory, in bytes: all of it, or its control group's part; 0: that is not known.
func (f Facts) Memory() int64 {
	if f.MemoryLimit > 0 && (f.MemoryBytes == 0 || f.MemoryLimit < f.MemoryBytes) {
		return int64(f.MemoryLimit)
	}
	return int64(f.MemoryBytes)
}

// Figures are what a process has taken so far, and takes now.
type Figures struct {
	CPUUser, CPUSystem    time.Duration
	ResidentBytes         uint64
	HeapBytes             uint64 // in objects
	GCPauses              time.Duration
	Throttled             time.Duration // held back by the control group's processor limit
	DiskRead, DiskWritten uint64        // bytes that reached storage
}

// Options say where to read. The zero value is this machine.
type Options struct {
	Root string // of the file system that has proc, sys and etc; empty: /
}

func (o Options) root() string {
	if o.Root == "" {
		return "/"
	}
	return o.Root
}

// Describe returns what is known about the machine. With an error, the facts hold what could be read.
func Describe(o Options) (Facts, error) {
	f := Facts{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()}
	f.Name, _ = os.Hostname() // a machine without a name is no error
	err := describe(o, &f)
	return f, err
}

// A Reader reads the live figures of this process. It is for one goroutine.
type Reader struct {
	options Options
	gc      debug.GCStats
	heap    []metrics.Sample

	busy   time.Duration // processor time at the last call of Into's func
	busyAt time.Duration
	warm   bool
}

// NewReader returns a Reader.
func NewReader(o Options) *Reader {
	return &Reader{options: o, heap: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}}
}

// Read returns the figures now. With an error, they hold what could be read.
func (r *Reader) Read() (Figures, error) {
	var f Figures
	debug.ReadGCStats(&r.gc)
	f.GCPauses = r.gc.PauseTotal
	metrics.Read(r.heap)
	if r.heap[0].Value.Kind() == metrics.KindUint64 {
		f.HeapBytes = r.heap[0].Value.Uint64()
	}
	f.CPUUser, f.CPUSystem = processorTime()
	err := readFigures(r.options, &f)
	return f, err
}

// Into returns a func for Hub.Poll that puts the figures into s. A figure that cannot be read keeps its last value.
func (r *Reader) Into(s *observe.Set) func(now time.Duration) {
	return func(now time.Duration) {
		f, _ := r.Read() // what could not be read is zero, and left out below
		s.Raise(observe.CPUUser, uint64(f.CPUUser))
		s.Raise(observe.CPUSystem, uint64(f.CPUSystem))
		s.Raise(observe.GCPauses, uint64(f.GCPauses))
		s.Raise(observe.Throttled, uint64(f.Throttled))
		s.Raise(observe.DiskRead, f.DiskRead)
		s.Raise(observe.DiskWritten, f.DiskWritten)
		if f.ResidentBytes > 0 {
			s.Put(observe.ResidentBytes, float64(f.ResidentBytes))
		}
		if f.HeapBytes > 0 {
			s.Put(observe.HeapBytes, float64(f.HeapBytes))
		}
		busy := f.CPUUser + f.CPUSystem
		if r.warm && now > r.busyAt {
			s.Put(observe.CPUUse, float64(busy-r.busy)/float64(now-r.busyAt))
		}
		r.busy, r.busyAt, r.warm = busy, now, true
	}
}
