package checkpoint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
)

var ctx = context.Background()

func layout(t testing.TB, specs ...trivium.Spec) *trivium.Layout {
	t.Helper()
	l, err := trivium.NewLayout(specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func example(t testing.TB) *checkpoint.Checkpoint {
	l := layout(t,
		trivium.Spec{Name: "embedding", Shape: []int{3, 2}, Decay: 1, RowSparse: true},
		trivium.Spec{Name: "dense/bias", Shape: []int{2}, Rate: 2},
		trivium.Spec{Name: "mean", Shape: []int{2}, Buffer: true},
		trivium.Spec{Name: "scalar"},
		trivium.Spec{Name: "again", Shape: []int{2}, Tie: "dense/bias"})
	p := trivium.NewParams(l)
	slot := make([]float32, l.Len())
	for i := range p.Flat {
		p.Flat[i], slot[i] = float32(i)+0.5, -float32(i)
	}
	p.Flat[0], p.Flat[1] = float32(math.Inf(-1)), float32(math.Copysign(0, -1))
	clear(slot[8:10]) // of the buffer: not kept
	best := 0.1 + 0.2
	return &checkpoint.Checkpoint{
		Job:       &trivium.Job{Version: 1, Model: "fm:2", Batch: 100, Epochs: 3, Seed: 1<<64 - 1},
		Schema:    trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{3}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2, Names: []string{"<=50K", ">50K"}}},
		Transform: json.RawMessage(`{"scale":{"mean":[1,2.5]},"b":"<&>"}`),
		Data:      "d41d8cd98f00b204",
		Params:    p,
		Optimizer: &checkpoint.OptimizerState{Names: []string{"velocity"}, Slots: [][]float32{slot}, RowSteps: [][]uint32{{1, 0, math.MaxUint32}, nil, nil, nil, nil}},
		Codecs:    [][]byte{{1, 2, 3}, {}, {0xff}},
		Progress: checkpoint.Progress{
			Step: 120, Samples: 12000, Epoch: 1, Row: 4000, LossSum: math.Pi, WeightSum: 100, Best: &best, BestStep: 100, Bad: 2,
			Metrics: map[string]float64{"valid.auc": best},
		},
		Notes: map[string]string{"kernels": "avx512"},
	}
}

func same(t *testing.T, got, want *checkpoint.Checkpoint) {
	t.Helper()
	for i := range want.Params.Flat {
		if math.Float32bits(got.Params.Flat[i]) != math.Float32bits(want.Params.Flat[i]) {
			t.Errorf("cell %d: %v, want %v", i, got.Params.Flat[i], want.Params.Flat[i])
		}
	}
	if got.Params.Layout.Hash() != want.Params.Layout.Hash() {
		t.Error("the layout changed")
	}
	if !reflect.DeepEqual(got.Optimizer, want.Optimizer) {
		t.Errorf("optimizer state %+v, want %+v", got.Optimizer, want.Optimizer)
	}
	if !slices.EqualFunc(got.Codecs, want.Codecs, bytes.Equal) {
		t.Errorf("codecs keep %v, want %v", got.Codecs, want.Codecs)
	}
	if !reflect.DeepEqual(got.Progress, want.Progress) {
		t.Errorf("progress %+v, want %+v", got.Progress, want.Progress)
	}
	if !reflect.DeepEqual(got.Job, want.Job) || !reflect.DeepEqual(got.Schema, want.Schema) || got.Data != want.Data || !reflect.DeepEqual(got.Notes, want.Notes) {
		t.Errorf("job %+v, schema %+v, data %q, notes %v", got.Job, got.Schema, got.Data, got.Notes)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(got.Transform, &a), json.Unmarshal(want.Transform, &b)); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("transform %s, want %s; %v", got.Transform, want.Transform, err)
	}
}

func save(t testing.TB, s blob.Store, c *checkpoint.Checkpoint) string {
	t.Helper()
	name, err := checkpoint.Save(ctx, s, c)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSaveAndLoad(t *testing.T) {
	s, want := blob.Dir(t.TempDir()), example(t)
	if name := save(t, s, want); name != "step-000000000120" {
		t.Errorf("saved as %q", name)
	}
	got, name, err := checkpoint.Latest(ctx, s)
	if err != nil || name != "step-000000000120" {
		t.Fatal(name, err)
	}
	same(t, got, want)

	// The same again is equal too, and changes nothing that is there.
	if name := save(t, s, got); name != "step-000000000120.2" {
		t.Errorf("saved again as %q", name)
	}
	again, err := checkpoint.Load(ctx, s, "step-000000000120.2")
	if err != nil {
		t.Fatal(err)
	}
	same(t, again, want)

	want.Optimizer, want.Progress.Step = nil, 99
	save(t, s, want)
	model, err := checkpoint.Load(ctx, s, "step-000000000099")
	if err != nil {
		t.Fatal(err)
	}
	same(t, model, want)
	if _, name, _ := checkpoint.Latest(ctx, s); name != "step-000000000120.2" {
		t.Errorf("the latest is %q", name)
	}
}

// TestManyCodecs: what more than ten workers keep comes back in their order, where several keep nothing too.
func TestManyCodecs(t *testing.T) {
	s, want := blob.Dir(t.TempDir()), example(t)
	want.Codecs = make([][]byte, 12)
	want.Codecs[3], want.Codecs[10] = []byte{3}, []byte{10}
	got, err := checkpoint.Load(ctx, s, save(t, s, want))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
	want.Codecs = make([][]byte, 12)
	if got, err = checkpoint.Load(ctx, s, save(t, s, want)); err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
}

// TestSaversAtOnce: several processes that take themselves for the one that saves do not write into one another's checkpoints.
func TestSaversAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := blob.Dir(dir)
	const n = 8
	var wg sync.WaitGroup
	names := make([]string, n)
	for i := range n {
		wg.Go(func() {
			c := example(t)
			c.Params.Flat[2] = float32(i)
			var err error
			if names[i], err = checkpoint.Save(ctx, s, c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, name := range names {
		if c, err := checkpoint.Load(ctx, s, name); err != nil || c.Params.Flat[2] != float32(i) {
			t.Errorf("saver %d, %s: %v", i, name, err)
		}
	}
	objects, err := s.List(ctx, "")
	if err != nil || len(objects) != 4*n {
		t.Errorf("%d checkpoints left %d objects, want %d; %v", n, len(objects), 4*n, err)
	}
	// The claim of a saver that was killed takes its name with it, and no more.
	c := example(t)
	c.Progress.Step = 7
	if err := s.Put(ctx, "step-000000000007/claim", strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if name := save(t, s, c); name != "step-000000000007.2" {
		t.Errorf("saved as %q", name)
	}
}

func TestNoCheckpoint(t *testing.T) {
	s := blob.Dir(t.TempDir())
	if _, _, err := checkpoint.Latest(ctx, s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if _, err := checkpoint.Load(ctx, s, "step-000000000001"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

// TestEveryByteCounts flips each byte of each file, and cuts each file short, and wants an error that names checkpoint, file and the
// one to use instead.
func TestEveryByteCounts(t *testing.T) {
	dir := t.TempDir()
	s, c := blob.Dir(dir), example(t)
	c.Progress.Step = 100
	save(t, s, c)
	c.Progress.Step = 120
	name := save(t, s, c)
	refused := func(file, what string) {
		t.Helper()
		_, found, err := checkpoint.Latest(ctx, s)
		corrupt, ok := errors.AsType[*checkpoint.CorruptError](err)
		if !ok || found != name || corrupt.File != file || corrupt.Name != name || corrupt.Previous != "step-000000000100" {
			t.Fatalf("%s %s: error %v", file, what, err)
		}
		if msg := err.Error(); !strings.Contains(msg, name+"/"+file) || !strings.Contains(msg, "step-000000000100, is whole") {
			t.Fatalf("%s %s: the error says %q", file, what, msg)
		}
	}
	for _, file := range []string{"params.safetensors", "optimizer.safetensors", "codecs.safetensors", "manifest.json"} {
		path := filepath.Join(dir, name, file)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(p []byte) {
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stride := 1 + len(whole)/150 // every byte of it takes a second and more
		for i := 0; i < len(whole); i += stride {
			p := slices.Clone(whole)
			p[i] ^= 0x10
			write(p)
			refused(file, "flipped")
			write(whole[:i])
			refused(file, "cut")
		}
		write(append(slices.Clone(whole), ' '))
		refused(file, "longer")
		write(whole)
		if _, _, err := checkpoint.Latest(ctx, s); err != nil {
			t.Fatalf("%s restored: %v", file, err)
		}
		if file == "manifest.json" { // without it, the checkpoint was never finished: the one before is the latest
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if _, found, err := checkpoint.Latest(ctx, s); err != nil || found != "step-000000000100" {
				t.Errorf("latest without a manifest: %q, %v", found, err)
			}
			if _, err := checkpoint.Load(ctx, s, name); err == nil || !strings.Contains(err.Error(), "never finished") {
				t.Errorf("error %v, want one that says it was never finished", err)
			}
		}
	}
}

// A full store fails once so many bytes are written.
type full struct {
	blob.Store
	left int
}

func (f *full) Put(ctx context.Context, key string, r io.Reader) error {
	return f.Store.Put(ctx, key, &limited{f, r})
}

func (f *full) PutIfAbsent(ctx context.Context, key string, r io.Reader) error {
	return f.Store.PutIfAbsent(ctx, key, &limited{f, r})
}

type limited struct {
	f *full
	r io.Reader
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.f.left -= n; l.f.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return n, err
}

// TestDiskFull lets the disk fill up at every so many bytes of a checkpoint: the previous one stays, and nothing is left of the new.
func TestDiskFull(t *testing.T) {
	s, c := blob.Dir(t.TempDir()), example(t)
	save(t, s, c)
	before, err := s.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	c.Progress.Step++
	for space := 0; ; space += 97 {
		name, err := checkpoint.Save(ctx, &full{s, space}, c)
		if err == nil {
			if space < 97*10 {
				t.Errorf("saved in %d bytes", space)
			}
			break
		}
		if !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "save step-000000000121") {
			t.Fatalf("%s: error %v", name, err)
		}
		after, err := s.List(ctx, "")
		if err != nil || !slices.Equal(before, after) {
			t.Fatalf("with space for %d bytes: %v, want %v; %v", space, after, before, err)
		}
		if _, name, err := checkpoint.Latest(ctx, s); err != nil || name != "step-000000000120" {
			t.Fatalf("latest %q, %v", name, err)
		}
	}
}

func TestDelete(t *testing.T) {
	s, c := blob.Dir(t.TempDir()), example(t)
	for _, step := range []int64{5, 1, 3, 2, 4, 10} {
		c.Progress.Step = step
		save(t, s, c)
	}
	for _, name := range []string{"step-000000000001", "step-000000000004", "step-000000000003"} {
		if err := checkpoint.Delete(ctx, s, name); err != nil {
			t.Fatal(err)
		}
	}
	names, err := checkpoint.List(ctx, s)
	if want := []string{"step-000000000002", "step-000000000005", "step-000000000010"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("left: %v, %v; want %v", names, err, want)
	}
	objects, err := s.List(ctx, "")
	if err != nil || len(objects) != 12 {
		t.Errorf("left: %v, %v", objects, err)
	}
}

func TestListOrder(t *testing.T) {
	s, c := blob.Dir(t.TempDir()), example(t)
	for range 11 {
		save(t, s, c)
	}
	names, err := checkpoint.List(ctx, s)
	if err != nil || len(names) != 11 || names[10] != "step-000000000120.11" || names[1] != "step-000000000120.2" {
		t.Errorf("%v, %v", names, err)
	}
	for c.Progress.Step = 999_999_999_999; c.Progress.Step <= 1_000_000_000_000; c.Progress.Step++ { // a digit more than names have room for
		last := save(t, s, c)
		if names, err = checkpoint.List(ctx, s); err != nil || names[len(names)-1] != last {
			t.Errorf("%v, %v: want %s at the end", names, err, last)
		}
	}
	last := names[len(names)-1]
	for _, name := range []string{"archive/step-000000000001", "before-the-rate-was-lowered"} {
		if err := s.Put(ctx, name+"/manifest.json", strings.NewReader("{}")); err != nil {
			t.Fatal(err)
		}
		if names, err = checkpoint.List(ctx, s); err != nil || names[len(names)-1] != last {
			t.Errorf("%v, %v: want %s at the end", names, err, last)
		}
	}
}

func TestFits(t *testing.T) {
	c := example(t)
	if err := c.Fits(c.Params.Layout); err != nil {
		t.Error(err)
	}
	err := c.Fits(layout(t,
		trivium.Spec{Name: "embedding", Shape: []int{3, 4}, Decay: 1, RowSparse: true},
		trivium.Spec{Name: "dense/bias", Shape: []int{2}, Rate: 1},
		trivium.Spec{Name: "hidden", Shape: []int{2}}))
	if _, ok := errors.AsType[*checkpoint.MismatchError](err); !ok {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{
		`tensor "embedding": the model has shape [3 4], the checkpoint [3 2]`, `tensor "dense/bias"`,
		`the model has tensor "hidden" of shape [2], the checkpoint does not`, `the checkpoint has tensor "mean" of shape [2], the model does not`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
}

// FuzzManifest decodes any bytes as a manifest, with their checksum put right where there is room for one.
func FuzzManifest(f *testing.F) {
	s, c := blob.Dir(f.TempDir()), example(f)
	p, err := blob.Read(ctx, s, save(f, s, c)+"/manifest.json", 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add([]byte(`{"format":"trivium checkpoint","version":1,"layout":[{"name":"a","shape":[1000000000]}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		if m, l, err := checkpoint.DecodeManifest(checkpoint.Reseal(p)); err == nil && len(m.Layout) != l.Tensors() {
			t.Fatalf("%d tensors became %d", len(m.Layout), l.Tensors())
		}
	})
}

// A late store lists nothing, as one that was asked before another saver came to its end, and counts the readers that are open.
type late struct {
	blob.Store
	open int
}

func (*late) List(context.Context, string) ([]blob.Object, error) { return nil, nil }

func (s *late) Get(ctx context.Context, key string, from, length int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, key, from, length)
	if err != nil {
		return nil, err
	}
	s.open++
	return &lateReader{r, s}, nil
}

type lateReader struct {
	io.ReadCloser
	s *late
}

func (r *lateReader) Close() error { r.s.open--; return r.ReadCloser.Close() }

// TestSaveCloses: a saver that finds its name taken leaves nothing open.
func TestSaveCloses(t *testing.T) {
	s, c := &late{Store: blob.Dir(t.TempDir())}, example(t)
	save(t, s.Store, c)
	if name := save(t, s, c); name != "step-000000000120.2" || s.open != 0 {
		t.Errorf("saved as %s, with %d readers open", name, s.open)
	}
}
