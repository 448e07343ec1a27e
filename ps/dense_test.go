package ps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/transport"
)

// denseCells are those of a table of 100 MB.
const denseCells = 25_000_000

var densePlacement = Placement{Epoch: 1, Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}

// The kinds of frames of a loop. A round of the first two goes to the other process, which answers once it is ready and again once it has
// all; of the others it comes from there, as a pull does.
const (
	denseAdd     = iota + 1 // adds what comes into a resident array
	denseCopy               // copies it there
	denseReceive            // does nothing with it
	densePost               // has the transport read each frame to its place there
	denseAnswer
	densePiece
)

func denseNetwork(name, dir string) transport.Network {
	switch name {
	case "tcp":
		return &transport.TCP{}
	case "sockets":
		return &transport.Unix{Dir: dir, Sockets: true}
	}
	return &transport.Unix{Dir: dir}
}

// BenchmarkDense is a table of 100 MB between two processes: its push beside a loop that receives the same frames and adds them to a
// resident array (or only copies them), its pull beside one that receives them, into such an array (post) or not at all.
func BenchmarkDense(b *testing.B) {
	g := make([]float32, denseCells)
	for i := range g {
		g[i] = float32(i % 17)
	}
	for _, net := range []string{"unix", "sockets", "tcp"} {
		for kind, how := range []string{"add", "copy", "receive", "post"} {
			b.Run(fmt.Sprintf("%s/loop/%s", net, how), func(b *testing.B) {
				port := besideDense(b, net)
				s, err := port.Stream("raw", StreamOptions())
				if err != nil {
					b.Fatal(err)
				}
				kind, in := kind+denseAdd, denseSink{how: uint8(kind + denseAdd), array: make([]float32, denseCells)}
				dense(b, func(begin func()) {
					if kind >= denseReceive {
						if err := in.begin(s, serverName(0)); err != nil {
							b.Fatal(err)
						}
						begin()
						denseTell(b, s, kind)
						denseHear(b, s, in.take)
						return
					}
					denseTell(b, s, kind)
					denseHear(b, s, isDenseAnswer)
					begin()
					if err := denseSend(bg, s, serverName(0), g); err != nil {
						b.Fatal(err)
					}
					denseHear(b, s, isDenseAnswer)
				})
			})
		}
		open := func(b *testing.B, spec Spec) (*Client, *Worker) {
			s, err := besideDense(b, net).Stream("ps", StreamOptions())
			if err != nil {
				b.Fatal(err)
			}
			c, err := Open(bg, s, densePlacement, []Spec{spec}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := c.Close(); err != nil {
					b.Error(err)
				}
			})
			w, err := c.Worker(bg)
			if err != nil {
				b.Fatal(err)
			}
			return c, w
		}
		b.Run(net+"/push", func(b *testing.B) {
			_, w := open(b, Spec{Name: "t", Rows: 1, Cols: denseCells, Mode: SSP, Staleness: 3})
			tab := tableOf[float32](w, "t")
			dense(b, func(begin func()) {
				if err := tab.DenseInc(0, 0, g); err != nil {
					b.Fatal(err)
				}
				begin()
				if err := w.Barrier(bg); err != nil { // until all is applied
					b.Fatal(err)
				}
			})
		})
		for _, way := range []string{"pull", "pull-copied"} {
			b.Run(net+"/"+way, func(b *testing.B) {
				c, w := open(b, Spec{Name: "t", Rows: 1, Cols: denseCells, Mode: ASP})
				tab := tableOf[float32](w, "t")
				c.state.tables[0].unposted = way == "pull-copied" // by way of the transport's memory
				dense(b, func(begin func()) {
					if err := tab.Inc(0, 0, 1); err != nil {
						b.Fatal(err)
					}
					if err := w.Barrier(bg); err != nil {
						b.Fatal(err)
					}
					c.state.tables[0].forgetVersions()
					begin()
					if _, err := tab.View(bg, 0, func([]float32) {}); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}

// dense times rounds from where they call begin.
func dense(b *testing.B, round func(begin func())) {
	b.SetBytes(4 * denseCells)
	var all []time.Duration
	for b.Loop() {
		b.StopTimer()
		var begun time.Time
		round(func() {
			begun = time.Now()
			b.StartTimer()
		})
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	for name, took := range map[string]time.Duration{"best-MB/s": all[0], "median-MB/s": all[len(all)/2]} {
		b.ReportMetric(float64(4*denseCells)/took.Seconds()/1e6, name)
	}
}

func denseTell(b *testing.B, s transport.Stream, kind int) {
	b.Helper()
	if err := s.Send(bg, serverName(0), transport.Frame{Kind: uint8(kind)}); err != nil {
		b.Fatal(err)
	}
}

func isDenseAnswer(ev transport.Event) bool { return ev.Kind == denseAnswer }

// denseHear receives until enough says so.
func denseHear(b *testing.B, s transport.Stream, enough func(transport.Event) bool) {
	b.Helper()
	for is := false; !is; {
		ev, err := s.Recv(bg)
		if err != nil {
			b.Fatal(err)
		}
		is = ev.What == transport.Received && enough(ev)
		ev.Release()
	}
}

// denseSend sends an array in pieces, as a table's are.
func denseSend(ctx context.Context, s transport.Stream, to Name, g []float32) error {
	for at := 0; at < len(g); at += maxPiece / 4 {
		key := transport.Key{Chunk: uint32(at / (maxPiece / 4))}
		f := transport.Frame{Kind: densePiece, Key: key, Payload: raw.Bytes(g[at:min(at+maxPiece/4, len(g))]), Done: func(error) {}}
		if err := s.Send(ctx, to, f); err != nil {
			return err
		}
	}
	return nil
}

// A denseSink is where the frames of a round go.
type denseSink struct {
	how   uint8
	array []float32
	at    int
}

// begin begins a round of frames of who.
func (d *denseSink) begin(s transport.Stream, who Name) error {
	d.at = 0
	for c := 0; d.how == densePost && c*maxPiece < 4*denseCells; c++ {
		into := raw.Bytes(d.array[c*maxPiece/4 : min((c+1)*maxPiece/4, denseCells)])
		if err := s.Post(who, transport.Key{Chunk: uint32(c)}, into); err != nil {
			return err
		}
	}
	return nil
}

// take takes a frame, and reports whether it was the last.
func (d *denseSink) take(ev transport.Event) bool {
	v := raw.Of[float32](ev.Payload)
	switch d.how {
	case denseAdd:
		kernel.AddInto(kernel.Best(), d.array[d.at:d.at+len(v)], v)
	case denseCopy:
		copy(d.array[d.at:], v)
	}
	d.at += len(v)
	return d.at == denseCells
}

// forgetVersions makes the next read fetch all cells, changed or not.
func (t *clientTable) forgetVersions() {
	for _, r := range t.byRow {
		if r != nil {
			for i := range r.segs {
				r.segs[i].version = 0
			}
		}
	}
}

// besideDense starts a process of TestDensePeer, and returns a port that knows it.
func besideDense(b *testing.B, net string) transport.Port {
	b.Helper()
	dir := b.TempDir()
	port, err := denseNetwork(net, dir).Open(bg, clientName(0), transport.Options{})
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDensePeer$")
	cmd.Env = append(os.Environ(), "TRIVIUM_DENSE="+net+" "+dir+" "+port.Addr())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := in.Close(); err != nil { // which ends it
			b.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		if err := port.Close(); err != nil {
			b.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	for known := 0; known < 2; {
		if !lines.Scan() {
			b.Fatal("the other process ended before it said where it is")
		}
		if addr, is := strings.CutPrefix(lines.Text(), "address "); is {
			if err := port.Know([]Name{dirName(), serverName(0)}[known], addr); err != nil {
				b.Fatal(err)
			}
			known++
		}
	}
	return port
}

// TestDensePeer is the other process of BenchmarkDense: the server of its table, and the loop that receives its frames.
func TestDensePeer(t *testing.T) {
	f := strings.Fields(os.Getenv("TRIVIUM_DENSE"))
	if len(f) != 3 {
		t.Skip("not a process of BenchmarkDense")
	}
	n, streams := denseNetwork(f[0], f[1]), map[Name]transport.Stream{}
	var raw transport.Stream
	var ports []transport.Port
	for _, name := range []Name{dirName(), serverName(0)} {
		p, err := n.Open(t.Context(), name, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, p)
		if err := p.Know(clientName(0), f[2]); err != nil {
			t.Fatal(err)
		}
		if streams[name], err = p.Stream("ps", StreamOptions()); err != nil {
			t.Fatal(err)
		}
		if name == serverName(0) {
			if raw, err = p.Stream("raw", StreamOptions()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, p := range ports {
		if q := ports[1-i]; p.Know(q.Name(), q.Addr()) != nil {
			t.Fatal("a port does not take the other's address")
		}
	}
	dir, err := Direct(streams[dirName()], densePlacement, DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- Serve(ctx, streams[serverName(0)], densePlacement, ServerOptions{}) }()
	go func() { ended <- denseLoop(ctx, raw) }()
	for _, p := range ports {
		fmt.Println("address", p.Addr())
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // until the benchmark closes it
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if err := dir.Close(); err != nil {
		t.Error(err)
	}
	for _, p := range ports {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// denseLoop is the other end of the loops beside which a push and a pull are measured.
func denseLoop(ctx context.Context, s transport.Stream) error {
	in := denseSink{array: make([]float32, denseCells)}
	answer := func() error { return s.Send(ctx, clientName(0), transport.Frame{Kind: denseAnswer}) }
	for {
		ev, err := s.Recv(ctx)
		if err != nil {
			return err
		}
		switch {
		case ev.What != transport.Received:
		case ev.Kind == densePiece:
			if in.take(ev) {
				err = answer()
			}
		case ev.Kind >= denseReceive:
			err = denseSend(ctx, s, clientName(0), in.array)
		default:
			in.how = ev.Kind
			err = errors.Join(in.begin(s, clientName(0)), answer())
		}
		ev.Release()
		if err != nil {
			return err
		}
	}
}
