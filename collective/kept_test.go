package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
)

// TestCodecsLoseNothing: under every codec, wherever the ranks are and however many values are plain, what all gave is what all got and what all
// keep, also where steps were void in between: by a value that is not finite, or by a rank that gave up.
func TestCodecsLoseNothing(t *testing.T) {
	seeds := uint64(600)
	if testing.Short() {
		seeds = 60
	}
	void := 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { void += losesNothing(t, seed) })
	}
	if void < int(seeds)/2 {
		t.Errorf("%d steps of %d seeds were void: the test has lost its sting", void, seeds)
	}
}

func losesNothing(t *testing.T, seed uint64) (void int) {
	random := rand.New(rand.NewPCG(seed, 11))
	size := 2 + random.IntN(5)
	var hosts [][]int
	if each := random.IntN(4); each > 0 {
		hosts = collective.HostsOf(size, each)
	}
	w := openHosts(t, inMemory, size, collective.Options{NotFinite: collective.Skip, MaxFrame: 2 << 10, Segment: 1 << 10}, hosts)
	defer w.close()
	n := 60 + random.IntN(3000)
	codec, err := compress.Parse([]string{"f16", "bf16", "int8", "int8:7", "1bit", "1bit:l2", "topk:0.05", "topk:3", "randomk:0.1", "qsgd:7", "powersgd:2"}[random.IntN(11)])
	if err != nil {
		t.Fatal(err)
	}
	op := collective.Op{Codec: codec, Plain: random.IntN(4), Plan: []collective.Algorithm{collective.Auto, collective.GatherCast, collective.Hierarchy}[random.IntN(3)]}
	if w.groups[0].Fits(op, n) != nil {
		return 0
	}
	ops := make([]collective.Op, size)
	for r := range ops {
		ops[r] = op
		ops[r].Residual, ops[r].Owner = compress.NewResidual(n-op.Plain), compress.NewResidual(n-op.Plain)
	}
	gave, got := make([]float64, n), make([]float64, n)
	for step := range 12 {
		bad, gives := -1, -1
		switch random.IntN(6) {
		case 0:
			bad = random.IntN(size)
		case 1:
			gives = random.IntN(size)
		}
		after := time.Duration(random.IntN(400)) * time.Microsecond
		src, dst := make([][]float32, size), make([][]float32, size)
		for r := range size {
			src[r], dst[r] = make([]float32, n), make([]float32, n)
			for i := range src[r] {
				src[r][i] = float32(random.NormFloat64())
			}
			if r == bad {
				src[r][random.IntN(n)] = float32(math.Inf(1))
			}
		}
		errs := w.each(func(r int, g *collective.Group) error {
			time.Sleep(time.Duration(r) * 50 * time.Microsecond)
			h := g.Start(ops[r], 0, collective.Of(dst[r]), collective.Of(src[r]))
			if r == gives {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				_ = h.Wait(ctx)
				cancel()
			}
			return g.Commit(t.Context(), g.Step())
		})
		for r, err := range errs {
			if fmt.Sprint(err) != fmt.Sprint(errs[0]) {
				t.Fatalf("seed %d, step %d: rank 0 has %v, rank %d %v", seed, step, errs[0], r, err)
			}
		}
		if errs[0] != nil {
			if b, ok := errors.AsType[*collective.Blame](errs[0]); !ok || b.Rank != max(bad, gives) {
				t.Fatalf("seed %d, step %d: %v", seed, step, errs[0])
			}
			void++
			continue
		}
		for i := range n {
			for r := range size {
				gave[i] += float64(src[r][i])
			}
			got[i] += float64(dst[0][i])
		}
	}
	for i := range n {
		kept := 0.0
		if k := i - op.Plain; k >= 0 {
			for r := range size {
				kept += float64(ops[r].Residual.Cells()[k]) + float64(ops[r].Owner.Cells()[k])
			}
		}
		if d := gave[i] - got[i] - kept; !(math.Abs(d) < 2e-3) {
			t.Fatalf("seed %d: %v, %d plain, by %v among %d ranks on %v: of element %d all gave %v and got %v, and keep %v: %v is lost",
				seed, codec, op.Plain, op.Plan, size, hosts, i, gave[i], got[i], kept, d)
		}
	}
	return void
}
