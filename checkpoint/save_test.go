package checkpoint_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
)

// A deaf store writes a manifest and does not hear that it did, as where a link breaks before the answer. It notes what is deleted.
type deaf struct {
	blob.Store
	deleted []string
}

func (d *deaf) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	err := d.Store.PutIfAbsent(ctx, key, r)
	if err == nil && strings.HasSuffix(key, "/manifest.json") {
		err = errors.New("the link broke")
	}
	return err
}

func (d *deaf) Delete(ctx context.Context, key string) error {
	d.deleted = append(d.deleted, key)
	return d.Store.Delete(ctx, key)
}

// TestLostAnswer: a checkpoint that Save failed to write is not there, though its manifest was written after all. The manifest goes first,
// so that nobody reads what is half there, and the claim last, so that nobody writes under the name meanwhile.
func TestLostAnswer(t *testing.T) {
	s := &deaf{Store: blob.Dir(t.TempDir())}
	if name, err := checkpoint.Save(ctx, s, example(t)); err == nil || !strings.Contains(err.Error(), "the link broke") {
		t.Fatalf("saved as %q, %v", name, err)
	}
	if _, name, err := checkpoint.Latest(ctx, s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the latest is %q, %v; want none", name, err)
	}
	var want []string
	for _, file := range []string{"manifest.json", "codecs.safetensors", "optimizer.safetensors", "params.safetensors", "claim"} {
		want = append(want, "step-000000000120/"+file)
	}
	if !slices.Equal(s.deleted, want) {
		t.Errorf("deleted %v, want %v", s.deleted, want)
	}
	if objects, err := s.List(ctx, ""); err != nil || len(objects) != 0 {
		t.Errorf("left: %v, %v", objects, err)
	}
}

// TestWhatCannotBeSaved is an error, and leaves nothing behind: not what of it could be written, nor the claim of the name.
func TestWhatCannotBeSaved(t *testing.T) {
	for want, spoil := range map[string]func(c *checkpoint.Checkpoint){
		"the parameters do not fill their layout": func(c *checkpoint.Checkpoint) { c.Params.Flat = c.Params.Flat[1:] },
		"do not fill their layout":                func(c *checkpoint.Checkpoint) { c.Params.Layout = nil },
		"2 names for 1 state vectors":             func(c *checkpoint.Checkpoint) { c.Optimizer.Names = []string{"a", "b"} },
		`state vector "velocity" has`:             func(c *checkpoint.Checkpoint) { c.Optimizer.Slots[0] = c.Optimizer.Slots[0][1:] },
		"unsupported value: +Inf":                 func(c *checkpoint.Checkpoint) { c.Progress.LossSum = math.Inf(1) },
		"the name is taken":                       func(c *checkpoint.Checkpoint) { c.Optimizer.Names = []string{"steps"} }, // as those of rows
	} {
		s, c := blob.Dir(t.TempDir()), example(t)
		spoil(c)
		name, err := checkpoint.Save(ctx, s, c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("saved as %q, %v, want %q", name, err, want)
		}
		if left, err := s.List(ctx, ""); err != nil || len(left) != 0 {
			t.Errorf("%s: %v stays behind, %v", want, left, err)
		}
		if name := save(t, s, example(t)); name != "step-000000000120" {
			t.Errorf("%s: the next one is called %q", want, name)
		}
	}
}
