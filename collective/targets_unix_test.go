//go:build unix

package collective_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
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

// step does count steps of as many operations as fit the memory, eight at most, all under way at once as the buckets of a gradient are, and
// keeps the median step and what share of it its commit is.
func (re *reply) step(ctx context.Context, g *collective.Group, dst, src []float32, o order) error {
	n := o.Bytes / 4
	ops := max(1, min(8, len(src)/n))
	var steps, commits []float64
	for range o.Count {
		at := time.Now()
		var list []*collective.Handle
		for i := range ops {
			list = append(list, g.Start(collective.Op{Plan: o.Plan}, uint32(i), collective.Of(dst[i*n:(i+1)*n]), collective.Of(src[i*n:(i+1)*n])))
		}
		for _, h := range list {
			if err := h.Wait(ctx); err != nil {
				return err
			}
		}
		over := time.Now()
		if err := g.Commit(ctx, g.Step()); err != nil {
			return err
		}
		steps, commits = append(steps, float64(time.Since(at).Nanoseconds())/1e3), append(commits, float64(time.Since(over).Nanoseconds())/1e3)
	}
	re.Micros, re.Share = median(steps), median(commits)/median(steps)
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

// BenchmarkCommit tells what share of a step its commit is, at most 3 %: of eight sums that are under way at once, with nothing computed
// meanwhile, which makes the share of a training step smaller.
func BenchmarkCommit(b *testing.B) {
	for _, network := range []string{"tcp", "direct"} {
		for _, size := range []int{2, 4} {
			for _, bytes := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
				b.Run(fmt.Sprintf("%s/P=%d/8×%dKiB", network, size, bytes>>10), func(b *testing.B) {
					c := newCrew(b, network, size)
					c.all(order{Do: "step", Bytes: bytes, Count: 5})
					var shares, steps []float64
					for b.Loop() {
						re := c.reply(order{Do: "step", Bytes: bytes, Count: max(9, (16<<20)/bytes)})
						shares, steps = append(shares, re.Share), append(steps, re.Micros)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(median(steps), "µs-step")
					b.ReportMetric(100*median(shares), "%commit")
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
	const header, segment = 48, 256 << 10
	for _, size := range []int{2, 3, 4} {
		c := newCrew(t, "tcp", size)
		for _, bytes := range []int{64 << 10, 1 << 20, 5<<20 + 4} {
			n, p := float64(bytes), float64(size)
			for _, v := range []struct {
				plan  collective.Algorithm
				bytes float64 // of all ranks together
			}{{collective.Ring, 2 * (p - 1) * n}, {collective.Pairwise, 2 * (p - 1) * n}, {collective.Halving, halvingBytes(size) * n}, {collective.Doubling, doublingBytes(size) * n}} {
				before := c.sent()
				const ops = 4
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
