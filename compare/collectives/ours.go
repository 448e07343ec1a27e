package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/cores"
	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// An order is what a child is told: first who it is, then where the others are, then one for each window.
type order struct {
	Network string // tcp; shared: a shared segment, buffers elsewhere; inside: also the buffers lie there
	How     string // commit: every operation is a step of its own; step: stepOps operations, one after the other, and a commit
	Rank    int
	Dir     string
	Addrs   []string
	Cores   int // that this process has for itself; 0: none

	Bytes, Count int
}

// A reply is what a child says.
type reply struct {
	Addr string
	Err  string
	Took time.Duration // median
	CPU  time.Duration // of this process, for one operation
	Plan string
}

// stepOps is how many operations a step has, where one has many: the buckets of a gradient.
const stepOps = 8

// stepBytes is the size of the gradient, if one operation is not longer.
const stepBytes = 64 << 20

// A crew is our processes, which stay.
type crew struct {
	cmd []*exec.Cmd
	in  []io.WriteCloser
	enc []*json.Encoder
	dec []*json.Decoder

	// Of the last window: the time of all processes for one operation, and the algorithm.
	cpu  time.Duration
	plan string
}

func newCrew(dir, network, how string, ranks, threads int) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "ours"); err != nil {
		return nil, err
	}
	if threads == 0 {
		threads = max(1, runtime.NumCPU()/ranks)
	}
	c := &crew{}
	orders := make([]order, ranks)
	for r := range ranks {
		cmd := exec.Command(self, "child")
		cmd.Stderr = os.Stderr
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(threads))
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.cmd, c.in, c.enc, c.dec = append(c.cmd, cmd), append(c.in, in), append(c.enc, json.NewEncoder(in)), append(c.dec, json.NewDecoder(out))
		orders[r] = order{Network: network, How: how, Rank: r, Dir: dir}
		if n := coresEach(ranks); n == threads {
			orders[r].Cores = n
		}
	}
	replies, err := c.all(orders)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	for r := range orders {
		for _, re := range replies {
			orders[r].Addrs = append(orders[r].Addrs, re.Addr)
		}
	}
	if _, err = c.all(orders); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// all tells every child its order and hears its reply.
func (c *crew) all(orders []order) ([]reply, error) {
	for r := range c.cmd {
		if err := c.enc[r].Encode(orders[r]); err != nil {
			return nil, err
		}
	}
	list := make([]reply, len(c.cmd))
	for r := range c.cmd {
		if err := c.dec[r].Decode(&list[r]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if list[r].Err != "" {
			return nil, fmt.Errorf("rank %d: %s", r, list[r].Err)
		}
	}
	return list, nil
}

func (c *crew) run(_ context.Context, ranks, bytes, count int) (time.Duration, error) {
	list, err := c.all(slices.Repeat([]order{{Bytes: bytes, Count: count}}, ranks))
	if err != nil {
		return 0, err
	}
	c.cpu, c.plan = 0, list[0].Plan
	for _, re := range list {
		c.cpu += re.CPU
	}
	return list[0].Took, nil
}

func (c *crew) close() error {
	var err error
	for _, in := range c.in {
		_ = in.Close() // they end
	}
	for _, cmd := range c.cmd {
		err = errors.Join(err, cmd.Wait())
	}
	return err
}

// child is one rank.
func child(stdin io.Reader, stdout io.Writer) error {
	ctx := context.Background()
	in, out := json.NewDecoder(bufio.NewReader(stdin)), json.NewEncoder(stdout)
	var o order
	if err := in.Decode(&o); err != nil {
		return err
	}
	var n transport.Network = transport.TCP{}
	if o.Network != "tcp" {
		n = transport.Unix{Dir: filepath.Join(o.Dir), Sockets: true}
	}
	name := func(r int) transport.Name { return transport.Name{Role: "worker", ID: strconv.Itoa(r)} }
	port, err := n.Open(ctx, name(o.Rank), transport.Options{})
	if err != nil {
		return err
	}
	if err := out.Encode(reply{Addr: port.Addr()}); err != nil {
		return err
	}
	if err := in.Decode(&o); err != nil {
		return err
	}
	s, err := port.Stream("collective", transport.StreamOptions{})
	if err != nil {
		return err
	}
	v := collective.View{Epoch: 1, Self: o.Rank}
	for r, a := range o.Addrs {
		v.Peers = append(v.Peers, name(r))
		if r != o.Rank {
			if err := s.Know(name(r), a); err != nil {
				return err
			}
		}
	}
	if o.Cores > 0 { // as in training: see train/processes.Narrow
		cores.Keep(ctx, o.Rank*o.Cores, o.Cores)
	}
	w := worker{}
	var plan atomic.Value
	if w.g, err = collective.New(s, v, collective.Options{Record: func(m collective.Measurement) { plan.Store(m.Algorithm.String()) }}); err != nil {
		return err
	}
	w.how = o.How
	if o.Network != "tcp" {
		if err := w.g.Share(ctx, o.Dir); err != nil {
			return err
		}
	}
	memory := tensor.AlignedBytes
	if o.Network == "inside" {
		memory = w.g.Memory
	}
	w.memory = memory
	if _, err := w.g.Calibrate(ctx); err != nil {
		return err
	}
	if err := out.Encode(reply{}); err != nil {
		return err
	}
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.Join(w.g.Close(), port.Close())
			}
			return err
		}
		var re reply
		if re.Took, re.CPU, err = w.window(ctx, o.Bytes/4, o.Count); err != nil {
			re.Err = err.Error()
		}
		re.Plan, _ = plan.Load().(string)
		if err := out.Encode(re); err != nil {
			return err
		}
	}
}

func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// A worker is a rank that measures.
type worker struct {
	g        *collective.Group
	how      string
	memory   func(n int) []byte
	src, dst []float32
}

// grow makes the memories long enough: one source, and destinations for so many operations.
func (w *worker) grow(n, ops int) {
	if len(w.src) < n {
		w.src = floats(w.memory(4 * n))
		for i := range w.src {
			w.src[i] = float32(i % 5)
		}
	}
	if len(w.dst) < n*ops {
		w.dst = floats(w.memory(4 * n * ops))
	}
}

// window does count operations of n elements, and returns the median time of one, its commit included.
func (w *worker) window(ctx context.Context, n, count int) (took, cpu time.Duration, err error) {
	ops := 1
	if w.how == "step" {
		ops = max(1, min(stepOps, stepBytes/(4*n)))
	}
	w.grow(n, ops)
	var list []time.Duration
	begin := processTime()
	for k := range 2 + max(1, count/ops) {
		at := time.Now()
		step := w.g.Step()
		for i := range ops {
			to := w.dst[i*n : (i+1)*n]
			if err := w.g.Start(collective.Op{}, uint32(i), collective.Of(to), collective.Of(w.src[:n])).Wait(ctx); err != nil {
				return 0, 0, err
			}
		}
		if err := w.g.Commit(ctx, step); err != nil {
			return 0, 0, err
		}
		if k >= 2 { // the first warm up
			list = append(list, time.Since(at)/time.Duration(ops))
		}
	}
	cpu = (processTime() - begin) / time.Duration(ops*(len(list)+2))
	var sum float32
	for r := range w.g.Size() {
		sum += w.src[n-1]
		_ = r
	}
	if got := w.dst[n-1]; got != sum {
		return 0, 0, fmt.Errorf("the last sum is %v, want %v", got, sum)
	}
	return median.Of(list), cpu, nil
}
