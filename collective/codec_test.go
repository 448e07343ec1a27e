package collective_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
)

// A brokenCodec panics where it encodes.
type brokenCodec struct{ compress.F16 }

func (brokenCodec) Encode([]byte, []float32, *compress.Residual) ([]byte, error) {
	panic("index out of range")
}

// A codec that panics, which may be a caller's own, fails the operation at all ranks; nobody waits for a lock that it left.
func TestCodecPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, inMemory, 3, collective.Options{})
		errs := w.each(func(r int, g *collective.Group) error {
			op := collective.Op{Codec: compress.F16{}}
			if r == 1 {
				op.Codec = brokenCodec{}
			}
			return run(t.Context(), g, op, collective.Of(make([]float32, 6)), collective.Of(make([]float32, 6)))
		})
		for r, err := range errs {
			var b *collective.Blame
			if !errors.As(err, &b) || b.Rank != 1 || b.Cause != collective.Refused || err.Error() != errs[0].Error() || !strings.Contains(err.Error(), "codec f16 panicked: index out of range") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// A step that is skipped leaves the residuals as they were: of the operation whose contribution is not finite, which the others have encoded, and
// of the one beside it, which is complete.
func TestSkipKeepsResiduals(t *testing.T) {
	for _, name := range []string{"topk:0.1", "f16", "powersgd:2", "randomk:0.1"} {
		t.Run(name, func(t *testing.T) { skipKeepsResiduals(t, name, 3, nil, collective.Auto) })
		t.Run(name+" by hosts", func(t *testing.T) { skipKeepsResiduals(t, name, 4, [][]int{{0, 1}, {2, 3}}, collective.Hierarchy) })
	}
}

func skipKeepsResiduals(t *testing.T, name string, size int, hosts [][]int, plan collective.Algorithm) {
	synctest.Test(t, func(t *testing.T) {
		codec, err := compress.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		const n = 3000
		w := openHosts(t, inMemory, size, collective.Options{NotFinite: collective.Skip}, hosts)
		defer w.close()
		w.must(func(r int, g *collective.Group) error {
			var list []*compress.Residual // of two operations, and their owners'
			for range 4 {
				list = append(list, compress.NewResidual(n))
			}
			list[0].Take(slices.Repeat([]float32{0.25}, n)) // of a checkpoint, say: what is this rank's own part is released
			cells := func() (c [][]float32) {
				for _, e := range list {
					c = append(c, slices.Clone(e.Cells()))
				}
				return c
			}
			for step := range uint64(4) {
				before, states := cells(), compress.AppendStates(nil, list)
				bad := step%2 == 0
				var handles []*collective.Handle
				for tag := range 2 {
					src := make([]float32, n)
					for i := range src {
						src[i] = float32(math.Sin(float64(i*(r+2)*(tag+1)))) / 3
					}
					if bad && tag == 1 && r == 2 {
						src[5] = float32(math.NaN())
					}
					op := collective.Op{Codec: codec, Residual: list[tag], Owner: list[2+tag], Plan: plan}
					handles = append(handles, g.Start(op, uint32(tag), collective.Of(make([]float32, n)), collective.Of(src)))
				}
				if err := handles[0].Wait(t.Context()); err != nil {
					return err
				}
				err := g.Commit(t.Context(), step)
				if b, ok := errors.AsType[*collective.Blame](err); ok != bad || ok && !b.Skip() || !ok && err != nil {
					return fmt.Errorf("rank %d, step %d: %w", r, step, err)
				}
				if same := reflect.DeepEqual(before, cells()); same != bad {
					return fmt.Errorf("%s: rank %d, step %d, skipped %v: the residuals are as before: %v", codec, r, step, bad, same)
				}
				// Also what is not in the cells; in the first step there are no parts yet.
				if same := slices.Equal(states, compress.AppendStates(nil, list)); step > 0 && same != bad {
					return fmt.Errorf("%s: rank %d, step %d, skipped %v: the states are as before: %v", codec, r, step, bad, same)
				}
			}
			return nil
		})
	})
}

// A rottenCodec encodes what nobody can decode.
type rottenCodec struct{ compress.Codec }

func (rottenCodec) Encode(dst []byte, _ []float32, _ *compress.Residual) ([]byte, error) {
	return append(dst, 0xff), nil
}

// TestRottenPart: whoever sent what cannot be decoded is to blame, not who found out.
func TestRottenPart(t *testing.T) {
	topk, err := compress.Parse("topk:0.5")
	if err != nil {
		t.Fatal(err)
	}
	for bad := range 4 {
		for _, plan := range []collective.Algorithm{collective.Pairwise, collective.GatherCast, collective.Hierarchy} {
			synctest.Test(t, func(t *testing.T) {
				w := openHosts(t, inMemory, 4, collective.Options{}, [][]int{{1, 3}, {0, 2}})
				defer w.close()
				errs := w.each(func(r int, g *collective.Group) error {
					op := collective.Op{Codec: topk, Plan: plan}
					if r == bad {
						op.Codec = rottenCodec{topk}
					}
					return run(t.Context(), g, op, collective.Of(make([]float32, 300)), collective.Of(make([]float32, 300)))
				})
				for r, err := range errs {
					if b, ok := errors.AsType[*collective.Blame](err); !ok || b.Rank != bad || b.Cause != collective.Refused || err.Error() != errs[0].Error() {
						t.Errorf("rank %d sends rotten parts, %v: rank %d has %v", bad, plan, r, err)
					}
				}
			})
		}
	}
}

// TestCodecByHosts: where ranks share hosts, those of a host sum as they are, and what is encoded is the hosts' sums: all ranks have the same bits,
// nothing of the gradients is lost but what the residuals keep, each where Encoded and Owned say, and less travels between hosts.
func TestCodecByHosts(t *testing.T) {
	const n, plain, steps = 30_000, 3, 4
	for _, hosts := range [][][]int{{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}, {{0, 1, 2}, {3}}, {{0, 3}, {1, 4}, {2, 5}}, {{4}, {0, 1}, {2, 3}}} {
		size := 0
		for _, h := range hosts {
			size += len(h)
		}
		for _, name := range []string{"f16", "bf16", "int8", "1bit", "topk:0.05", "randomk:0.1", "qsgd:7", "powersgd:2"} {
			if testing.Short() && name != "topk:0.05" {
				continue // all in the full run
			}
			codec, err := compress.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			sums, kept := make([][]float32, size), make([][]float64, size) // by rank
			synctest.Test(t, func(t *testing.T) {
				w := openHosts(t, inMemory, size, collective.Options{Record: func(m collective.Measurement) {
					if m.Kind == collective.AllReduce && m.Algorithm != collective.Hierarchy {
						t.Errorf("%s on %v: the sums are made by %v", name, hosts, m.Algorithm)
					}
				}}, hosts)
				defer w.close()
				w.must(func(r int, g *collective.Group) error {
					op := collective.Op{Codec: codec, Plain: plain, Residual: compress.NewResidual(n), Owner: compress.NewResidual(n)}
					all, src, dst := make([]float32, n), make([]float32, plain+n), make([]float32, plain+n)
					for step := range steps {
						for i := range n {
							src[plain+i] = gradient(step, r, i)
						}
						src[0] = 1<<20 + 1 // which no codec here leaves as it is
						if err := run(t.Context(), g, op, collective.Of(dst), collective.Of(src)); err != nil {
							return err
						}
						if dst[0] != float32(size<<20+size) || dst[1] != 0 || dst[2] != 0 {
							return fmt.Errorf("the sums of what is plain are %v", dst[:plain])
						}
						for i, v := range dst[plain:] {
							all[i] += v
						}
					}
					sums[r], kept[r] = all, make([]float64, n)
					for _, e := range []struct {
						cells []float32
						where func(collective.Op, int) (int, int)
					}{{op.Residual.Cells(), g.Encoded}, {op.Owner.Cells(), g.Owned}} {
						from, to := e.where(op, plain+n)
						for i, v := range e.cells {
							if kept[r][i] += float64(v); v != 0 && (i < from || i >= to) {
								return fmt.Errorf("rank %d keeps %v of value %d, and not of [%d, %d) alone", r, v, i, from, to)
							}
						}
					}
					return nil
				})
			})
			for i := range n {
				var want, got float64
				for r := range size {
					for step := range steps {
						want += float64(gradient(step, r, i))
					}
					got += kept[r][i]
					if sums[r][i] != sums[0][i] {
						t.Fatalf("%s on %v: rank %d has the sum %v of value %d, rank 0 has %v", name, hosts, r, sums[r][i], i, sums[0][i])
					}
				}
				if got += float64(sums[0][i]); !(math.Abs(got-want) <= 1e-4) {
					t.Fatalf("%s on %v: of value %d the sums and what was kept of them are %v, the gradients' sum is %v", name, hosts, i, got, want)
				}
			}
		}
	}
}

// TestPlain: what is plain is summed as it is by every plan, also where it is all there is, or a rank's share is shorter, and everything behind
// it as without it.
func TestPlain(t *testing.T) {
	for _, plan := range []collective.Algorithm{collective.Pairwise, collective.GatherCast, collective.Hierarchy} {
		for _, n := range []int{0, 1, 2, 5, 1000, 40_000} {
			w := openHosts(t, inMemory, 4, collective.Options{Segment: 1 << 10, MaxFrame: 4 << 10}, [][]int{{1, 3}, {0, 2}})
			w.must(func(r int, g *collective.Group) error {
				for plain := range 9 {
					src, dst := make([]float32, plain+n), make([]float32, plain+n)
					for i := range plain {
						src[i] = float32(i + 1<<20 + r)
					}
					for i := range n {
						src[plain+i] = float32(1 + i%5)
					}
					op := collective.Op{Codec: compress.Int8{}, Plain: plain, Plan: plan, Residual: compress.NewResidual(n), Owner: compress.NewResidual(n)}
					if err := run(t.Context(), g, op, collective.Of(dst), collective.Of(src)); err != nil {
						return err
					}
					for i, v := range dst {
						if want := float32(4*(i+1<<20) + 6); i < plain && v != want {
							return fmt.Errorf("%v of %d values after %d plain ones: %v of number %d, want %v", plan, n, plain, v, i, want)
						}
						if want := float64(4 * (1 + (i-plain)%5)); i >= plain && !(math.Abs(float64(v)-want) <= 0.2) {
							return fmt.Errorf("%v of %d values after %d plain ones: %v of number %d, want %v", plan, n, plain, v, i, want)
						}
					}
				}
				return nil
			})
			w.close()
		}
	}
}

// TestPlainDiffers: ranks that leave another number plain are told, as of everything else in which they differ; and so is who asks for what
// there is not.
func TestPlainDiffers(t *testing.T) {
	w := open(t, inMemory, 2, collective.Options{})
	defer w.close()
	x := func() collective.Buffer { return collective.Of(make([]float32, 6)) }
	errs := w.each(func(r int, g *collective.Group) error {
		return run(t.Context(), g, collective.Op{Codec: compress.F16{}, Plain: r}, x(), x())
	})
	for r, err := range errs {
		if _, ok := errors.AsType[*collective.Mismatch](err); !ok || !strings.Contains(err.Error(), "after 1 plain") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for _, op := range []collective.Op{{Codec: compress.F16{}, Plain: 7}, {Codec: compress.F16{}, Plain: -1}, {Plain: 1}} {
		for r, err := range w.each(func(_ int, g *collective.Group) error { return run(t.Context(), g, op, x(), x()) }) {
			if err == nil || !strings.Contains(err.Error(), "plain") {
				t.Errorf("%d plain of 6, rank %d: %v", op.Plain, r, err)
			}
		}
	}
	for _, op := range []collective.Op{
		{Codec: compress.F16{}, Residual: compress.NewResidual(5)}, {Codec: compress.F16{}, Plain: 1, Owner: compress.NewResidual(6)}, {Residual: compress.NewResidual(6)},
	} {
		for r, err := range w.each(func(_ int, g *collective.Group) error { return run(t.Context(), g, op, x(), x()) }) {
			if err == nil || !strings.Contains(err.Error(), "a residual") {
				t.Errorf("%+v of 6, rank %d: %v", op, r, err)
			}
		}
	}
}

// gradient is a value of a rank's gradient in a step.
func gradient(step, rank, i int) float32 {
	return float32(math.Sin(float64(i*(rank+2)+7*step))) / 3
}
