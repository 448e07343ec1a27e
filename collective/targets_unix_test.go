//go:build unix

package collective_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/transport"
)

// tail does count operations, each a step of its own, and keeps the median and the 99th percentile of their times.
func (re *reply) tail(ctx context.Context, g *collective.Group, dst, src []float32, count int) error {
	var list []float64
	for k := range count + count/50 {
		at := time.Now()
		if err := run(ctx, g, collective.Op{}, collective.Of(dst), collective.Of(src)); err != nil {
			return err
		}
		if k >= count/50 { // the first warm up
			list = append(list, float64(time.Since(at).Nanoseconds())/1e3)
		}
	}
	slices.Sort(list)
	re.Micros, re.P99 = list[len(list)/2], list[len(list)*99/100]
	return nil
}

// step does o.Count steps of o.Ops operations, all under way at once as the buckets of a gradient are, on memory of two times
// eight, and keeps the median step.
func (re *reply) step(ctx context.Context, g *collective.Group, dst, src []float32, o order) error {
	n := o.Bytes / 4
	var steps []float64
	for k := range o.Count {
		at := time.Now()
		var list []*collective.Handle
		for i := range o.Ops { // eight, or two times eight one after the other
			from := (k*o.Ops + i) % (2 * stepOps) * n
			list = append(list, g.Start(collective.Op{}, uint32(i), collective.Of(dst[from:from+n]), collective.Of(src[from:from+n])))
			if len(list) < stepOps {
				continue
			}
			for _, h := range list {
				if err := h.Wait(ctx); err != nil {
					return err
				}
			}
			list = list[:0]
		}
		if err := g.Commit(ctx, g.Step()); err != nil {
			return err
		}
		steps = append(steps, float64(time.Since(at).Nanoseconds())/1e3)
	}
	re.Micros = median.Of(steps)
	return nil
}

// BenchmarkTail sets the slowest of a hundred operations beside the median: at most five times as long. The design asks for 10,000
// operations of each size; of the longest here are fewer, since they would take minutes.
func BenchmarkTail(b *testing.B) {
	for _, network := range []string{"tcp", "direct"} {
		for _, size := range []int{2, 4} {
			for _, v := range []struct{ bytes, count int }{{1 << 10, 10000}, {256 << 10, 10000}, {4 << 20, 1000}, {32 << 20, 100}} {
				b.Run(fmt.Sprintf("%s/P=%d/%dKiB", network, size, v.bytes>>10), func(b *testing.B) {
					c := newCrew(b, network, size)
					c.all(order{Do: "tail", Bytes: v.bytes, Count: 20})
					var worst reply
					for b.Loop() {
						re := c.reply(order{Do: "tail", Bytes: v.bytes, Count: v.count})
						if re.P99/re.Micros > worst.P99/max(worst.Micros, 1e-3) {
							worst = re
						}
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(worst.Micros, "µs-median")
					b.ReportMetric(worst.P99, "µs-99%")
					b.ReportMetric(worst.P99/worst.Micros, "×median")
				})
			}
		}
	}
}

// BenchmarkExact sets exact mode over 16 shards beside the fast one: at most 1.15 times as long for a power of two of ranks, else 1.7. The
// two take turns; medians count.
func BenchmarkExact(b *testing.B) {
	for _, size := range []int{2, 3, 4} {
		for _, bytes := range []int{1 << 20, 4 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("P=%d/%dKiB", size, bytes>>10), func(b *testing.B) {
				c := newCrew(b, "tcp", size)
				c.all(order{Do: "calibrate"})
				var fast, exact []float64
				for b.Loop() {
					fast = append(fast, c.all(order{Do: "commits", Bytes: bytes, Count: 5}))
					exact = append(exact, c.all(order{Do: "commits", Bytes: bytes, Count: 5, Exact: 16}))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median.Of(exact), "µs-exact")
				b.ReportMetric(median.Of(exact)/median.Of(fast), "×fast")
			})
		}
	}
}

// stepOps is how many operations are under way at once.
const stepOps = 8

// BenchmarkCommit tells what share of a step its commit is, at most 3 %: a step of eight sums that are under way at once, with nothing
// computed meanwhile, which makes the share of a training step smaller. It is what two such steps take longer than one with the sums of both.
func BenchmarkCommit(b *testing.B) {
	for _, network := range []string{"tcp", "direct"} {
		for _, size := range []int{2, 4} {
			for _, bytes := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
				b.Run(fmt.Sprintf("%s/P=%d/8×%dKiB", network, size, bytes>>10), func(b *testing.B) {
					c := newCrew(b, network, size)
					one := order{Do: "step", Bytes: bytes, Count: max(4, (16<<20)/bytes), Ops: stepOps}
					two := one
					two.Ops, two.Count = 2*one.Ops, one.Count/2
					c.all(one)
					c.all(two)
					var ones, twos []float64
					for b.Loop() {
						ones, twos = append(ones, c.all(one)), append(twos, c.all(two))
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(median.Of(ones), "µs-step")
					b.ReportMetric(100*(2*median.Of(ones)-median.Of(twos))/(2*median.Of(ones)), "%commit")
				})
			}
		}
	}
}

// What goes over the wire is what the formula of the plan says, within 2 %, besides a header of 48 bytes for each frame.
func TestBytesOnTheWire(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: starts processes")
	}
	const header, segment = 48, transport.LongPayload
	for _, size := range []int{3, 4} {
		c := newCrew(t, "tcp", size)
		for _, bytes := range []int{64 << 10, 2<<20 + 4} {
			n, p := float64(bytes), float64(size)
			for _, v := range []struct {
				plan  collective.Algorithm
				bytes float64 // of all ranks together
			}{{collective.Ring, 2 * (p - 1) * n}, {collective.Pairwise, 2 * (p - 1) * n}, {collective.Halving, halvingBytes(size) * n}, {collective.Doubling, doublingBytes(size) * n}} {
				before := c.sent()
				const ops = 2
				for range ops {
					c.all(order{Do: "commits", Bytes: bytes, Count: 1, Plan: v.plan})
				}
				after := c.sent()
				sent, frames := float64(after.Sent-before.Sent), float64(after.Frames-before.Frames)
				want := ops * v.bytes
				votes := float64(ops) * 2 * p * voteMost
				if most := 1.02*want + header*frames + votes; sent > most || sent < want {
					t.Errorf("%d ranks, %d bytes, %v: %.0f bytes in %.0f frames, want %.0f to %.0f", size, bytes, v.plan, sent, frames, want, most)
				}
				// Whole segments; two rests for each of at most 2(p−1) sends of a rank; and the votes.
				if most := ops * (2*(p-1)*p*2 + v.bytes/segment + 2*p); frames > most {
					t.Errorf("%d ranks, %d bytes, %v: %.0f frames, want %.0f at most", size, bytes, v.plan, frames, most)
				}
			}
		}
		c.close()
	}
}

// voteMost is more than a vote takes.
const voteMost = 256

// sent sums up what all ranks have sent.
func (c *crew) sent() (all reply) {
	for r := range c.cmd {
		c.say(r, order{Rank: r, Do: "count"})
	}
	for r := range c.cmd {
		re := c.hear(r)
		all.Sent += re.Sent
		all.Frames += re.Frames
	}
	return all
}

// halvingBytes are the vectors that all ranks send together: those of the power of two exchange halves, and the others give theirs and
// get the sum.
func halvingBytes(size int) float64 {
	q := 1
	for 2*q <= size {
		q *= 2
	}
	return 2*float64(q-1) + 2*float64(size-q)
}

func doublingBytes(size int) float64 {
	q, log := 1, 0
	for 2*q <= size {
		q, log = 2*q, log+1
	}
	return float64(q*log) + 2*float64(size-q)
}
