package exec

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// A Device has memory of its own and runs Segments. The CPU is one; others need not be, and find their libraries at run time.
type Device interface {
	Spec() DeviceSpec
	// Alloc returns zeroed memory. The error says how much was wanted and how much is free.
	Alloc(bytes int64) (Buffer, error)
	// Copy moves as many bytes as src has to dst, either of which may belong to another device.
	Copy(dst, src Buffer) Event
	// Compile prepares a segment for inputs of these shapes. The error names every operation that the device lacks.
	Compile(s *Segment, shapes []tensor.Shape) (Kernel, error)
}

// A Kernel is a compiled segment. Run calls ready(i), if it is not nil, once for each output, when out[i] is complete.
type Kernel interface {
	Run(ctx context.Context, in, out []Buffer, ready func(i int)) error
}

// A DeviceSpec names a device.
type DeviceSpec struct {
	Name   string // "/job:worker/task:0/cpu:0"
	Kind   string // "cpu"
	Memory int64  // in bytes; 0: unknown
}

// A Buffer is memory of a device. Free gives it back; it may be called once.
type Buffer interface {
	Bytes() []byte // as the host sees it; nil where it cannot
	Len() int64
	Free()
}

// An Event is work under way. Wait returns when it is done.
type Event interface {
	Wait(ctx context.Context) error
}

// A Segment is what a device compiles: the part of a graph that computes Out from In, without resources and without continuations.
type Segment struct {
	Graph   *graph.Graph
	In, Out []graph.Value
}

// CPUDevice is the machine's processor and memory as a Device.
type CPUDevice struct {
	spec DeviceSpec
	o    Options
	used atomic.Int64
}

// NewCPUDevice returns a device that computes on o.CPU and hands out at most memory bytes; 0: no limit.
func NewCPUDevice(o Options, memory int64) *CPUDevice {
	o = o.withDefaults()
	return &CPUDevice{spec: DeviceSpec{Name: o.Device, Kind: "cpu", Memory: memory}, o: o}
}

// Spec names the device.
func (d *CPUDevice) Spec() DeviceSpec { return d.spec }

// Alloc returns zeroed memory that starts on a cache line.
func (d *CPUDevice) Alloc(bytes int64) (Buffer, error) {
	used := d.used.Add(bytes)
	if d.spec.Memory > 0 && used > d.spec.Memory || bytes < 0 {
		d.used.Add(-bytes)
		return nil, fmt.Errorf("exec: %s: want %d bytes, %d of %d are free", d.spec.Name, bytes, d.spec.Memory-(used-bytes), d.spec.Memory)
	}
	return &hostBuffer{alignedBytes(int(bytes)), d}, nil
}

type hostBuffer struct {
	mem []byte
	d   *CPUDevice
}

func (b *hostBuffer) Bytes() []byte { return b.mem }
func (b *hostBuffer) Len() int64    { return int64(len(b.mem)) }
func (b *hostBuffer) Free() {
	b.d.used.Add(-int64(len(b.mem)))
	b.mem = nil
}

// finished is the Event of work that was done at once.
type finished struct{ err error }

func (f finished) Wait(context.Context) error { return f.err }

// Copy copies at once; both buffers must be visible to the host.
func (d *CPUDevice) Copy(dst, src Buffer) Event {
	if dst.Len() < src.Len() || src.Len() > 0 && (dst.Bytes() == nil || src.Bytes() == nil) {
		return finished{fmt.Errorf("exec: %s: cannot copy %d bytes to a buffer of %d", d.spec.Name, src.Len(), dst.Len())}
	}
	copy(dst.Bytes(), src.Bytes())
	return finished{}
}

// cpuKernel is a Program for fixed sizes.
type cpuKernel struct {
	p       *Program
	in, out []layout
}

// A layout says how the bytes of a buffer are read.
type layout struct {
	dt    graph.DType
	shape []int
}

// Compile is the function Compile for a segment whose inputs have these shapes.
func (d *CPUDevice) Compile(s *Segment, shapes []tensor.Shape) (Kernel, error) {
	p, err := Compile(s.Graph, s.In, s.Out, nil, d.o)
	if err != nil {
		return nil, err
	}
	if len(p.blocking) > 0 {
		return nil, fmt.Errorf("exec: %s: %s waits for others; a segment ends before such nodes", d.spec.Name, p.blocking[0].name())
	}
	if len(shapes) != len(s.In) {
		return nil, fmt.Errorf("exec: %s: %d shapes for %d inputs", d.spec.Name, len(shapes), len(s.In))
	}
	k, axes := &cpuKernel{p: p}, graph.Axes{}
	for i, v := range s.In {
		t := s.Graph.TypeOf(v)
		if err := t.Shape.Bind(axes, shapes[i]); err != nil {
			return nil, fmt.Errorf("exec: %s: input %d (%v): %w", d.spec.Name, i, v, err)
		}
		k.in = append(k.in, layout{t.DType, shapes[i]})
	}
	for i, v := range s.Out {
		t := s.Graph.TypeOf(v)
		sizes, err := t.Shape.Sizes(axes)
		if err != nil {
			return nil, fmt.Errorf("exec: %s: output %d (%v): %w", d.spec.Name, i, v, err)
		}
		k.out = append(k.out, layout{t.DType, sizes})
	}
	return k, nil
}

// Run computes the segment.
func (k *cpuKernel) Run(ctx context.Context, in, out []Buffer, ready func(i int)) error {
	feeds, err := wrapAll(k.in, in)
	if err != nil {
		return fmt.Errorf("exec: %s: input %w", k.p.o.Device, err)
	}
	dst, err := wrapAll(k.out, out)
	if err != nil {
		return fmt.Errorf("exec: %s: output %w", k.p.o.Device, err)
	}
	return k.p.RunInto(ctx, nil, feeds, dst, ready)
}

// wrapAll makes tensors over the memory of buffers.
func wrapAll(views []layout, bufs []Buffer) ([]*tensor.Tensor, error) {
	if len(bufs) != len(views) {
		return nil, fmt.Errorf("%d buffers, want %d", len(bufs), len(views))
	}
	ts := make([]*tensor.Tensor, len(views))
	for i, v := range views {
		n := elements(v.shape)
		if need := int64(n * v.dt.Size()); bufs[i].Len() < need {
			return nil, fmt.Errorf("%d: a buffer of %d bytes, want %d", i, bufs[i].Len(), need)
		}
		ts[i] = wrap(v.dt, start(bufs[i].Bytes()), n, v.shape)
	}
	return ts, nil
}
