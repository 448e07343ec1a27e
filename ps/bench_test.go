package ps

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// alone opens a job of one client on memory.
func alone(b testing.TB, spec Spec) (*realJob, *Worker) {
	b.Helper()
	j := newRealJob(b, transport.NewMemory(), simOptions{clients: 1, servers: 1, tables: []Spec{spec}})
	w, err := j.clients[0].Worker(bg)
	if err != nil {
		b.Fatal(err)
	}
	return j, w
}

// BenchmarkCachedGet is a Get that the cache answers, beside a copy.
func BenchmarkCachedGet(b *testing.B) {
	for _, cols := range []int64{16, 1000} {
		j, w := alone(b, Spec{Name: "t", Rows: 100, Cols: cols})
		tab, dst, src := tableOf[float32](w, "t"), make([]float32, cols), make([]float32, cols)
		for r := range int64(100) {
			if _, err := tab.Get(bg, r, dst); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("get/%d", cols), func(b *testing.B) {
			b.ReportAllocs()
			i := int64(0)
			for b.Loop() {
				if _, err := tab.Get(bg, i%100, dst); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run(fmt.Sprintf("copy/%d", cols), func(b *testing.B) {
			for b.Loop() {
				copy(dst, src)
			}
		})
		j.close()
	}
}

func BenchmarkInc(b *testing.B) {
	for _, spec := range []Spec{{Rows: 1000, Cols: 16}, {Rows: 1, Cols: 10000}, {Cols: 16}} {
		spec.Name = "t"
		j, w := alone(b, spec)
		tab := tableOf[float32](w, "t")
		rows := max(spec.Rows, 1)
		if spec.Rows == 0 {
			rows = 1000
		}
		for r := range rows {
			if err := tab.Inc(r, 0, 1); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("%dx%d", spec.Rows, spec.Cols), func(b *testing.B) {
			b.ReportAllocs()
			i := int64(0)
			for b.Loop() {
				if err := tab.Inc(i%rows, i%spec.Cols, 1); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		j.close()
	}
}

// BenchmarkApply is what a server core does with batches of 1,000 rows of 16 cells: decoding, checking, adding.
func BenchmarkApply(b *testing.B) {
	for _, spec := range []Spec{{Rows: 1_000_000, Cols: 16}, {Cols: 16}, {Rows: 1_000_000, Cols: 16, Optimizer: "sgd rate=0.1"}, {Cols: 1 << 20, Sparse: true}} {
		spec.Name, spec.Mode = "t", SSP
		spec.Staleness = 3
		b.Run(fmt.Sprintf("%dx%d%s", spec.Rows, spec.Cols, spec.Optimizer), func(b *testing.B) {
			p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}.withDefaults()
			s, err := NewServerState(p, 0, ServerOptions{})
			if err != nil {
				b.Fatal(err)
			}
			d := Definition{Spec: spec}
			d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
			s.Step(0, protocol.Message{From: dirName(), Body: &install{config: &Config{
				Version: 1, Place: s.p.hash(), Clients: []Member{{Name: clientName(0), Session: 1, State: Active}}, Tables: []Definition{d},
			}}})
			// A client's batch, as it is coded.
			t := newClientTable(newTable(&d, &p))
			buf := newDeltas[float32](t, 0)
			for r := range int64(1000) {
				row := r * 997
				for c := range int64(16) {
					if spec.Sparse {
						c *= 3
					}
					buf.inc(row, c, float32(c+1))
				}
			}
			m := &batch{session: 1, last: true}
			buf.sections(func(c section, _ *hold) { m.secs = append(m.secs, c) })
			payload := slices.Clone(appendPayloads(nil, m.secs))
			var head []byte
			stamp := Clock(0)
			for b.Loop() {
				m.stamp = stamp
				head = m.appendHead(head[:0])
				x, err := decodeBatch(head, payload)
				if err != nil {
					b.Fatal(err)
				}
				s.Step(0, protocol.Message{From: clientName(0), Body: x})
				stamp++
			}
			if s.clients[0].next != stamp {
				b.Fatal("batches were not applied")
			}
			b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// pair opens two ports with a stream each.
func pair(b *testing.B, n transport.Network) (x, y transport.Stream, stop func()) {
	b.Helper()
	var ports []transport.Port
	var streams []transport.Stream
	for _, name := range []Name{clientName(0), serverName(0)} {
		p, err := n.Open(b.Context(), name, transport.Options{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := p.Stream("raw", StreamOptions())
		if err != nil {
			b.Fatal(err)
		}
		ports, streams = append(ports, p), append(streams, s)
	}
	for i := range 2 {
		if err := ports[i].Know(ports[1-i].Name(), ports[1-i].Addr()); err != nil {
			b.Fatal(err)
		}
	}
	return streams[0], streams[1], func() {
		for _, p := range ports {
			if err := p.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}

// BenchmarkMiss is a Get of a row of 64 bytes that the cache lacks, beside a round trip of the transport.
func BenchmarkMiss(b *testing.B) {
	for _, net := range []string{"memory", "unix", "tcp"} {
		open := func() transport.Network {
			switch net {
			case "tcp":
				return &transport.TCP{}
			case "unix":
				return &transport.Unix{Dir: b.TempDir()}
			}
			return transport.NewMemory()
		}
		b.Run(net+"/roundtrip", func(b *testing.B) {
			x, y, stop := pair(b, open())
			defer stop()
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					ev, err := y.Recv(ctx)
					if err != nil {
						return
					}
					if ev.What == transport.Received {
						if err := y.Send(ctx, ev.From, transport.Frame{Kind: 1, Payload: ev.Payload}); err != nil {
							return
						}
					}
					ev.Release()
				}
			}()
			p := make([]byte, 64)
			for b.Loop() {
				if err := x.Send(ctx, serverName(0), transport.Frame{Kind: 1, Payload: p}); err != nil {
					b.Fatal(err)
				}
				for {
					ev, err := x.Recv(ctx)
					if err != nil {
						b.Fatal(err)
					}
					got := ev.What == transport.Received
					ev.Release()
					if got {
						break
					}
				}
			}
			cancel()
			<-ended
		})
		b.Run(net+"/get", func(b *testing.B) {
			j := newRealJob(b, open(), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1000, Cols: 16}}})
			defer j.close()
			w, err := j.clients[0].Worker(bg)
			if err != nil {
				b.Fatal(err)
			}
			tab, dst := tableOf[float32](w, "t"), make([]float32, 16)
			c := j.clients[0]
			for b.Loop() {
				c.Lock()
				for k := range c.state.ring.rows {
					c.state.ring.rows[k].segs[0].v = -1
				}
				c.Unlock()
				if _, err := tab.Get(bg, 0, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
