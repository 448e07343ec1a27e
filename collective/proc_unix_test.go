//go:build unix

package collective_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/cores"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/transport"
)

// This program is also its own child process: "collective.test child" is one rank.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "child" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// An order is what a child is told on its standard input: once, and then one more for each thing to do.
type order struct {
	Net   string // first
	Rank  int
	Dir   string
	Addrs []string // second
	Bare  []string
	Room  int // bytes of a vector at most

	Do    string // then
	Bytes int
	Count int
	Plan  collective.Algorithm
	Exact int // shards
	Ops   int // of a step
	Sizes []int
	Plans []collective.Algorithm
}

// A reply is what a child writes.
type reply struct {
	Addr, Bare string
	Err        string
	Rank       int   // whom it blames
	At         int64 // when it was through, in nanoseconds since 1970
	Micros     float64
	Plan       string

	Timings      []timing
	P99          float64 // microseconds
	Sent, Frames uint64  // so far
}

func child() error {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	var o order
	if err := in.Decode(&o); err != nil {
		return err
	}
	var n transport.Network = transport.TCP{}
	switch o.Net {
	case "unix":
		n = transport.Unix{Dir: o.Dir, Sockets: true}
	case "shared":
		n = transport.Unix{Dir: o.Dir}
	case "direct", "inside":
		n = transport.Unix{Dir: o.Dir, Sockets: true}
	}
	me := func(r int) transport.Name { return transport.Name{Role: "worker", ID: fmt.Sprint(r)} }
	port, err := n.Open(context.Background(), me(o.Rank), transport.Options{})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := out.Encode(reply{Addr: port.Addr(), Bare: l.Addr().String()}); err != nil {
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
		v.Peers = append(v.Peers, me(r))
		if r != o.Rank {
			if err := s.Know(me(r), a); err != nil {
				return err
			}
		}
	}
	size := len(v.Peers)
	if n := runtime.GOMAXPROCS(0); n*size == runtime.NumCPU() { // as training has it: see train/processes.Narrow
		cores.Keep(context.Background(), o.Rank*n, n)
	}
	bare := &bareRing{next: make([]net.Conn, size), prev: make([]net.Conn, size), tmp: make([][]byte, size)}
	if bare.next[o.Rank], err = net.Dial("tcp", o.Bare[(o.Rank+1)%size]); err != nil {
		return err
	}
	if bare.prev[o.Rank], err = l.Accept(); err != nil {
		return err
	}
	var last collective.Measurement
	g, err := collective.New(s, v, collective.Options{Record: func(m collective.Measurement) { last = m }})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if o.Net == "direct" || o.Net == "inside" {
		if err := g.Share(ctx, o.Dir); err != nil {
			return err
		}
	}
	var room [2][]float32
	for k := range room {
		room[k] = floats(tensor.AlignedBytes(o.Room))
		if k == 0 {
			for i := range room[k] {
				room[k][i] = float32(i % 5)
			}
		}
		if o.Net == "inside" {
			room[k] = floats(g.Memory(o.Room))
		}
	}
	var walk collective.Walk
	for {
		if err := in.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				_ = g.Close()
				return port.Close()
			}
			return err
		}
		src, dst := room[0][:o.Bytes/4], room[1][:o.Bytes/4]
		for i := range src {
			src[i] = float32(i % 5)
		}
		re := reply{Rank: -1}
		begin := time.Now()
		switch o.Do {
		case "calibrate":
			_, err = g.Calibrate(ctx)
		case "windows":
			re.Timings, err = windows(ctx, g, &walk, o, &last)
		case "tail":
			err = re.tail(ctx, g, dst, src, o.Count)
		case "step":
			err = re.step(ctx, g, room[1], room[0], o)
		case "bare":
			bare.tmp[o.Rank] = make([]byte, o.Bytes)
			begin = time.Now()
			for range o.Count {
				bare.allReduce(o.Rank, dst, src)
			}
		case "ops": // each on memory of its own, as buckets
			for k := range o.Count {
				at := k * len(src) % (len(room[0]) - len(src) + 1)
				if err = g.Start(collective.Op{Plan: o.Plan}, uint32(k), collective.Of(room[1][at:][:len(src)]), collective.Of(room[0][at:][:len(src)])).Wait(ctx); err != nil {
					break
				}
			}
		case "commits":
			if o.Exact > 0 {
				src = room[0][:len(src)*len(shards.Owned(o.Rank, size, o.Exact))]
			}
			for range o.Count {
				if err = run(ctx, g, collective.Op{Plan: o.Plan, Shards: o.Exact}, collective.Of(dst), collective.Of(src)); err != nil {
					break
				}
			}
		}
		re.At = time.Now().UnixNano()
		re.Plan = last.Algorithm.String()
		re.Sent, re.Frames = port.Stats().BytesSent, port.Stats().FramesSent
		if re.Micros == 0 {
			re.Micros = float64(time.Since(begin).Nanoseconds()) / 1e3 / float64(max(o.Count, 1))
		}
		if o.Do == "ops" && err == nil {
			err = g.Commit(ctx, g.Step())
		}
		if err != nil {
			re.Err = err.Error()
			var b *collective.Blame
			if errors.As(err, &b) {
				re.Rank = b.Rank
			}
		}
		if err := out.Encode(re); err != nil {
			return err
		}
	}
}

// A crew is a group of child processes.
type crew struct {
	t   testing.TB
	cmd []*exec.Cmd
	in  []*json.Encoder
	out []*json.Decoder
	end []io.Closer
}

func newCrew(t testing.TB, network string, size int) *crew {
	t.Helper()
	return newCrewOf(t, network, size, 64<<20)
}

// newCrewOf opens a crew whose vectors have so many bytes at most.
func newCrewOf(t testing.TB, network string, size, room int) *crew {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &crew{t: t}
	t.Cleanup(c.close)
	dir := t.TempDir()
	var addrs, bare []string
	for r := range size {
		cmd := exec.Command(self, "child")
		cmd.Stderr = os.Stderr
		cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", max(1, runtime.NumCPU()/size))) // the cores divided among them, as training has it
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c.cmd, c.in, c.out, c.end = append(c.cmd, cmd), append(c.in, json.NewEncoder(in)), append(c.out, json.NewDecoder(out)), append(c.end, in)
		c.say(r, order{Net: network, Rank: r, Dir: dir})
		re := c.hear(r)
		addrs, bare = append(addrs, re.Addr), append(bare, re.Bare)
	}
	for r := range size {
		c.say(r, order{Net: network, Rank: r, Dir: dir, Addrs: addrs, Bare: bare, Room: room})
	}
	return c
}

func (c *crew) say(r int, o order) {
	if err := c.in[r].Encode(o); err != nil {
		c.t.Fatalf("rank %d: %v", r, err)
	}
}

func (c *crew) hear(r int) reply {
	var re reply
	if err := c.out[r].Decode(&re); err != nil {
		c.t.Fatalf("rank %d: %v", r, err)
	}
	return re
}

// all lets every child do o, and returns the longest time.
func (c *crew) all(o order) float64 { return c.reply(o).Micros }

func (c *crew) reply(o order) reply {
	c.t.Helper()
	for r := range c.cmd {
		o := o
		o.Rank = r
		c.say(r, o)
	}
	var all reply
	for r := range c.cmd {
		re := c.hear(r)
		if re.Err != "" {
			c.t.Fatalf("rank %d: %s", r, re.Err)
		}
		re.Micros = max(re.Micros, all.Micros)
		all = re
	}
	return all
}

func (c *crew) close() {
	for r := range c.cmd {
		_ = c.end[r].Close()
	}
	for r := range c.cmd {
		_ = c.cmd[r].Process.Signal(syscall.SIGCONT)
		stop := time.AfterFunc(5*time.Second, func() { _ = c.cmd[r].Process.Kill() })
		_ = c.cmd[r].Wait()
		stop.Stop()
	}
}

// BenchmarkProcesses is BenchmarkAllReduce with a process for each rank.
func BenchmarkProcesses(b *testing.B) {
	for _, network := range []string{"tcp", "unix", "shared", "direct", "inside"} {
		for _, size := range []int{2, 4} {
			for _, bytes := range []int{1 << 10, 256 << 10, 4 << 20, 32 << 20} {
				b.Run(fmt.Sprintf("%s/P=%d/%dKiB", network, size, bytes>>10), func(b *testing.B) {
					c := newCrew(b, network, size)
					count := max(2, min(500, (32<<20)/bytes))
					best := [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)}
					c.all(order{Do: "calibrate"})
					for b.Loop() {
						for range 7 {
							for k, do := range []string{"ops", "commits", "bare"} {
								best[k] = min(best[k], c.all(order{Do: do, Bytes: bytes, Count: count}))
							}
						}
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(best[0], "µs")
					b.ReportMetric(best[1], "µs-committed")
					b.ReportMetric(best[2], "µs-bare")
					b.ReportMetric(best[2]/best[0], "×bare")
				})
			}
		}
	}
}
