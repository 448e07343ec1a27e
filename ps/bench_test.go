package ps

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/tensor/kernel"
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

const denseCells = 25_000_000

// BenchmarkDense is a table of 100 MB: its push beside a loop that receives the same frames and adds them to a resident array, its pull
// beside one that receives them, into the array (post) or not at all.
func BenchmarkDense(b *testing.B) {
	for _, net := range []string{"unix", "sockets", "tcp"} {
		open := func() transport.Network {
			switch net {
			case "tcp":
				return &transport.TCP{}
			case "sockets":
				return &transport.Unix{Dir: b.TempDir(), Sockets: true}
			}
			return &transport.Unix{Dir: b.TempDir()}
		}
		g := make([]float32, denseCells)
		for i := range g {
			g[i] = float32(i % 17)
		}
		for _, how := range []string{"add", "copy", "receive", "post"} {
			b.Run(fmt.Sprintf("%s/loop/%s", net, how), func(b *testing.B) {
				x, y, stop := pair(b, open())
				defer stop()
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan error)
				array := make([]float32, denseCells)
				go func() {
					for {
						at := 0
						if how == "post" { // the transport reads each frame to its place
							for c := 0; c*maxPiece < 4*denseCells; c++ {
								into := asBytes(array[c*maxPiece/4 : min((c+1)*maxPiece/4, denseCells)])
								if err := y.Post(clientName(0), transport.Key{Chunk: uint32(c)}, into); err != nil {
									b.Error(err)
									return
								}
							}
							done <- nil
						}
						for at < denseCells {
							ev, err := y.Recv(ctx)
							if err != nil {
								close(done)
								return
							}
							if ev.What == transport.Received {
								v := asCells[float32](ev.Payload)
								switch how {
								case "add":
									kernel.AddInto(kernel.Best(), array[at:at+len(v)], v)
								case "copy":
									copy(array[at:], v)
								}
								at += len(v)
							}
							ev.Release()
						}
						done <- nil
					}
				}()
				b.SetBytes(4 * denseCells)
				least := time.Hour
				var all []time.Duration
				for b.Loop() {
					if how == "post" {
						<-done
					}
					begun := time.Now()
					for at := 0; at < denseCells; at += maxPiece / 4 {
						n := min(maxPiece/4, denseCells-at)
						key := transport.Key{Chunk: uint32(at / (maxPiece / 4))}
						if err := x.Send(ctx, serverName(0), transport.Frame{Kind: 1, Key: key, Payload: asBytes(g[at : at+n]), Done: func(error) {}}); err != nil {
							b.Fatal(err)
						}
					}
					<-done
					took := time.Since(begun)
					least, all = min(least, took), append(all, took)
				}
				b.ReportMetric(float64(4*denseCells)/least.Seconds()/1e6, "best-MB/s")
				report(b, all)
				if how == "post" {
					<-done
				}
				cancel()
				<-done
			})
		}
		b.Run(net+"/push", func(b *testing.B) {
			j := newRealJob(b, open(), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: denseCells, Mode: SSP, Staleness: 3}}})
			defer j.close()
			w, err := j.clients[0].Worker(bg)
			if err != nil {
				b.Fatal(err)
			}
			tab := tableOf[float32](w, "t")
			b.SetBytes(4 * denseCells)
			least := time.Hour
			for b.Loop() {
				b.StopTimer()
				if err := tab.DenseInc(0, 0, g); err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				b.StartTimer()
				if err := w.Barrier(bg); err != nil { // until all is applied
					b.Fatal(err)
				}
				least = min(least, time.Since(begun))
			}
			b.ReportMetric(float64(4*denseCells)/least.Seconds()/1e6, "best-MB/s")
		})
		for _, way := range []string{"pull", "pull-copied"} {
			b.Run(net+"/"+way, func(b *testing.B) {
				j := newRealJob(b, open(), simOptions{clients: 1, servers: 1, tables: []Spec{{Name: "t", Rows: 1, Cols: denseCells, Mode: ASP}}})
				defer j.close()
				w, err := j.clients[0].Worker(bg)
				if err != nil {
					b.Fatal(err)
				}
				tab := tableOf[float32](w, "t")
				j.clients[0].state.tables[0].unposted = way == "pull-copied" // by way of the transport's memory
				b.SetBytes(4 * denseCells)
				least := time.Hour
				var all []time.Duration
				for b.Loop() {
					b.StopTimer()
					if err := tab.Inc(0, 0, 1); err != nil {
						b.Fatal(err)
					}
					if err := w.Barrier(bg); err != nil {
						b.Fatal(err)
					}
					j.clients[0].state.tables[0].forgetVersions()
					begun := time.Now()
					b.StartTimer()
					if _, err := tab.View(bg, 0, func([]float32) {}); err != nil {
						b.Fatal(err)
					}
					took := time.Since(begun)
					least, all = min(least, took), append(all, took)
				}
				b.ReportMetric(float64(4*denseCells)/least.Seconds()/1e6, "best-MB/s")
				report(b, all)
			})
		}
	}
}

// report tells the median, since the first turns are slower: the system gives the memory.
func report(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(4*denseCells)/all[len(all)/2].Seconds()/1e6, "median-MB/s")
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
