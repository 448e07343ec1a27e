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
		synctest.Test(t, func(t *testing.T) {
			codec, err := compress.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			const n, size = 3000, 3
			w := open(t, inMemory, size, collective.Options{NotFinite: collective.Skip})
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
						op := collective.Op{Codec: codec, Residual: list[tag], Owner: list[2+tag]}
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
	for bad := range 3 {
		for _, plan := range []collective.Algorithm{collective.Pairwise, collective.GatherCast} {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, inMemory, 3, collective.Options{})
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
