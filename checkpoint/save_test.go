package checkpoint_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
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
