package collective_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/tensor"
)

// TestLongWords: what ranks say of a failure fits any frame, however long the words of it are: nobody passes for lost because of what it could not
// say, all have the same words, soon, and the group is usable.
func TestLongWords(t *testing.T) {
	long := "of " + strings.Repeat("größé", 20_000)
	dims := slices.Repeat([]int{1}, 10_000)
	for _, frame := range []int{1 << 10, 4 << 10, 0} {
		for name, v := range map[string]struct {
			field string // empty: the odd rank is blamed
			odd   func(op *collective.Op, dst *collective.Buffer)
		}{
			"reduction": {"reduction", func(op *collective.Op, _ *collective.Buffer) { op.Reduce = collective.Max }},
			"shape":     {"shape", func(op *collective.Op, _ *collective.Buffer) { op.Shape = append([]int{2}, dims...) }},
			"refused":   {"", func(_ *collective.Op, dst *collective.Buffer) { dst.DType = tensor.F64 }},
		} {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, inMemory, 3, collective.Options{MaxFrame: frame})
				defer w.close()
				begin := time.Now()
				errs := w.each(func(r int, g *collective.Group) error {
					op := collective.Op{Label: long, Shape: dims}
					dst, src := collective.Of(make([]float32, 8)), collective.Of(make([]float32, 8))
					if r == 1 {
						v.odd(&op, &dst)
					}
					return run(t.Context(), g, op, dst, src)
				})
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("%s, frames of %d: it took %v", name, frame, took)
				}
				for r, err := range errs {
					m, mismatch := errors.AsType[*collective.Mismatch](err)
					b, blame := errors.AsType[*collective.Blame](err)
					if !utf8.ValidString(fmt.Sprint(err)) || fmt.Sprint(err) != fmt.Sprint(errs[0]) || mismatch && m.Field != v.field || blame && (v.field != "" || b.Rank != 1 || b.Cause != collective.Refused) || !mismatch && !blame {
						t.Errorf("%s, frames of %d: rank %d has %.300v\nrank 0 has %.300v", name, frame, r, err, errs[0])
					}
				}
				w.must(func(_ int, g *collective.Group) error { return g.Barrier(t.Context()) })
			})
		}
	}
	if _, err := collective.NewMachine(collective.View{}, collective.Options{MaxFrame: 1000}); err == nil || !strings.Contains(err.Error(), "a MaxFrame of 1000 bytes") {
		t.Error(err)
	}
}
