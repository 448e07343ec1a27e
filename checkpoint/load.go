package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
)

// A CorruptError says that a checkpoint cannot be trusted, which file of it, and which one can be instead.
type CorruptError struct {
	Name     string // of the checkpoint
	File     string
	Err      error
	Previous string // the newest one before it that is whole; empty: none
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("checkpoint: %s/%s: %v", e.Name, e.File, e.Err)
	if e.Previous != "" {
		s += "; the one before it, " + e.Previous + ", is whole"
	}
	return s
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Latest returns the newest checkpoint in s. An unfinished one does not count; one that is damaged is an error, a CorruptError that
// names the newest whole one. Where there is none, the error wraps fs.ErrNotExist.
func Latest(ctx context.Context, s blob.Store) (*Checkpoint, string, error) {
	names, err := List(ctx, s)
	if err != nil {
		return nil, "", fmt.Errorf("checkpoint: %w", err)
	}
	if len(names) == 0 {
		return nil, "", fmt.Errorf("checkpoint: none is there: %w", fs.ErrNotExist)
	}
	name := names[len(names)-1]
	c, err := Load(ctx, s, name)
	return c, name, err
}

// Load reads the checkpoint of that name, and trusts nothing whose checksum it has not compared.
func Load(ctx context.Context, s blob.Store, name string) (*Checkpoint, error) {
	c, err := load(ctx, s, name)
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		corrupt.Previous = previous(ctx, s, name)
	}
	return c, err
}

// previous returns the newest whole checkpoint before name, or "".
func previous(ctx context.Context, s blob.Store, name string) string {
	names, err := List(ctx, s)
	if err != nil {
		return ""
	}
	for _, n := range slices.Backward(names) {
		if compareNames(n, name) < 0 {
			if _, err := load(ctx, s, n); err == nil {
				return n
			}
		}
	}
	return ""
}

func load(ctx context.Context, s blob.Store, name string) (*Checkpoint, error) {
	fail := func(file string, err error) error { return &CorruptError{Name: name, File: file, Err: err} }
	p, err := blob.Read(ctx, s, name+"/"+manifestName, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		if objects, e := s.List(ctx, name+"/"); e == nil && len(objects) > 0 {
			return nil, fail(manifestName, errors.New("is not there: the checkpoint was never finished"))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", name, err)
	}
	m, layout, err := DecodeManifest(p)
	if err != nil {
		return nil, fail(manifestName, err)
	}
	c := &Checkpoint{
		Job: m.Job, Schema: m.Schema, Transform: m.Transform, Data: m.Data, Params: trivium.NewParams(layout), Progress: m.Progress, Notes: m.Notes,
	}
	for _, f := range m.Files {
		if err := c.read(ctx, s, name, f, m.OptimizerIDs); err != nil {
			return nil, fail(f.Name, err)
		}
	}
	return c, nil
}

// read reads one file of c, to its end. It holds none of it but what becomes c's, which is not to be in memory twice. What is wrong with all
// of it, its size or its sum, goes before what is wrong in it.
func (c *Checkpoint) read(ctx context.Context, s blob.Store, name string, f File, slots []string) error {
	key := name + "/" + f.Name
	r, err := s.Get(ctx, key, 0, f.Size+1)
	if errors.Is(err, fs.ErrNotExist) { // which of a checkpoint's says that there is none
		return errors.New("is not there, and the manifest says that it is")
	}
	if err != nil {
		return err
	}
	sum, size := sha256.New(), counter(0)
	in := io.TeeReader(r, io.MultiWriter(sum, &size))
	inside := c.decode(in, f, slots)
	_, err = io.Copy(io.Discard, in)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if int64(size) > f.Size {
		return fmt.Errorf("is larger than the %d bytes that the manifest says", f.Size)
	}
	if int64(size) != f.Size {
		return fmt.Errorf("has %d bytes, the manifest says %d", size, f.Size)
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != f.SHA256 {
		return fmt.Errorf("its SHA-256 is %s, the manifest says %s", found, f.SHA256)
	}
	return inside
}

// decode takes from r what c has in file f.
func (c *Checkpoint) decode(r io.Reader, f File, slots []string) error {
	l := c.Params.Layout
	switch f.Name {
	case paramsName:
		_, err := fill(r, f.Size, l, []string{""}, func(int) []float32 { return c.Params.Flat })
		return err
	case optimizerName:
		return c.restore(r, f.Size, slots)
	}
	tensors, _, err := readSafetensors(r, f.Size, func(*Tensor) ([]float32, error) { return nil, nil })
	if err != nil {
		return err
	}
	c.Codecs, err = restoreCodecs(tensors)
	return err
}

// DecodeManifest reads a manifest and the layout that it describes, and checks all that does not need the other files.
func DecodeManifest(p []byte) (*Manifest, *trivium.Layout, error) {
	if err := checkSum(p); err != nil {
		return nil, nil, err
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(p))
	if err := d.Decode(&m); err != nil {
		return nil, nil, err
	}
	if m.Format != format || m.Version != Version {
		return nil, nil, fmt.Errorf("this program reads %q version %d, found %q version %d", format, Version, m.Format, m.Version)
	}
	specs := make([]trivium.Spec, len(m.Layout))
	for i, t := range m.Layout {
		specs[i] = trivium.Spec{Name: t.Name, Shape: t.Shape, Buffer: t.Buffer, Decay: t.Decay, Rate: t.Rate, Tie: t.Tie, RowSparse: t.RowSparse}
	}
	// The cells have to be in a file: compare before they are allocated.
	var cells int64
	for _, t := range m.Layout {
		n, err := shapeCells(t.Shape)
		if err != nil {
			return nil, nil, fmt.Errorf("layout: tensor %q: %w", t.Name, err)
		}
		if t.Tie == "" {
			cells += int64(n)
		}
	}
	seen := false
	for _, f := range m.Files {
		if f.Name != paramsName && f.Name != optimizerName && f.Name != codecsName {
			return nil, nil, fmt.Errorf("file %q is none of a checkpoint's", f.Name)
		}
		if f.Size < 0 || f.Size > 1<<46 || len(f.SHA256) != len(zeros) {
			return nil, nil, fmt.Errorf("file %q: size %d, SHA-256 %q", f.Name, f.Size, f.SHA256)
		}
		if f.Name == paramsName {
			if seen = true; cells > f.Size/4 {
				return nil, nil, fmt.Errorf("the layout has %d cells, more than fit the %d bytes of %s", cells, f.Size, f.Name)
			}
		}
	}
	if !seen {
		return nil, nil, errors.New("names no " + paramsName)
	}
	l, err := trivium.NewLayout(specs...)
	if err != nil {
		return nil, nil, err
	}
	if l.Hash() != m.LayoutHash {
		return nil, nil, fmt.Errorf("layout_hash is %s, the layout has %s", m.LayoutHash, l.Hash())
	}
	return &m, l, nil
}

func named(tensors []Tensor) map[string]*Tensor {
	byName := make(map[string]*Tensor, len(tensors))
	for i := range tensors {
		byName[tensors[i].Name] = &tensors[i]
	}
	return byName
}

// fill reads tensors, by name after the prefix of a vector, into vectors of the layout l. All tensors of each (less buffers, behind a prefix)
// have to be there. It returns all that the file has.
func fill(r io.Reader, size int64, l *trivium.Layout, prefixes []string, vector func(k int) []float32) (map[string]*Tensor, error) {
	type place struct{ vector, tensor int }
	places := map[string]place{}
	for k, prefix := range prefixes {
		for i := range l.Tensors() {
			if spec := l.Spec(i); spec.Tie == "" && !(spec.Buffer && prefix != "") {
				places[prefix+spec.Name] = place{k, i}
			}
		}
	}
	mismatch := func(t *Tensor, want []int) error {
		return fmt.Errorf("tensor %q: want F32 of shape %v, found %s of shape %v", t.Name, want, t.DType, t.Shape)
	}
	tensors, _, err := readSafetensors(r, size, func(t *Tensor) ([]float32, error) {
		at, ok := places[t.Name]
		if !ok {
			return nil, nil
		}
		if want := l.Spec(at.tensor).Shape; !slices.Equal(t.Shape, want) {
			return nil, mismatch(t, want)
		}
		from, to := l.Range(at.tensor)
		return vector(at.vector)[from:to], nil
	})
	if err != nil {
		return nil, err
	}
	byName := named(tensors)
	for _, prefix := range prefixes {
		for i := range l.Tensors() {
			spec := l.Spec(i)
			if _, wanted := places[prefix+spec.Name]; !wanted {
				continue
			}
			if t, ok := byName[prefix+spec.Name]; !ok {
				return nil, fmt.Errorf("tensor %q is missing", prefix+spec.Name)
			} else if t.DType != "F32" {
				return nil, mismatch(t, spec.Shape)
			}
		}
	}
	return byName, nil
}

// restore reads the state of an optimizer with vectors of those names.
func (c *Checkpoint) restore(r io.Reader, size int64, names []string) error {
	if len(names) > 1+2*1000 { // L-BFGS with the longest history
		return fmt.Errorf("%d state vectors", len(names))
	}
	l := c.Params.Layout
	o := &OptimizerState{Names: names, RowSteps: make([][]uint32, l.Tensors())}
	var prefixes []string
	for _, name := range names {
		prefixes, o.Slots = append(prefixes, name+"/"), append(o.Slots, nil)
	}
	vector := func(k int) []float32 { // made when the file has the first of it
		if o.Slots[k] == nil {
			o.Slots[k] = make([]float32, l.Len())
		}
		return o.Slots[k]
	}
	byName, err := fill(r, size, l, prefixes, vector)
	if err != nil {
		return err
	}
	for k := range o.Slots {
		vector(k) // also of a layout of buffers alone
	}
	for i := range l.Tensors() {
		t, ok := byName[rowSteps+"/"+l.Spec(i).Name]
		if !ok || t.DType != "I64" {
			continue
		}
		if len(t.Int64) != l.Rows(i) {
			return fmt.Errorf("tensor %q: want %d rows, found %d", t.Name, l.Rows(i), len(t.Int64))
		}
		o.RowSteps[i] = make([]uint32, len(t.Int64))
		for r, n := range t.Int64 {
			if n < 0 || n > math.MaxUint32 {
				return fmt.Errorf("tensor %q: row %d has %d updates", t.Name, r, n)
			}
			o.RowSteps[i][r] = uint32(n)
		}
	}
	c.Optimizer = o
	return nil
}

func restoreCodecs(tensors []Tensor) (codecs [][]byte, err error) {
	byName := named(tensors) // by their place in the file, those that are empty come in any order
	for i := range tensors {
		name := fmt.Sprintf("worker/%d", i)
		t, ok := byName[name]
		if !ok || t.DType != "U8" {
			return nil, fmt.Errorf("%d tensors, and %q of U8 is not among them", len(tensors), name)
		}
		codecs = append(codecs, t.Raw)
	}
	return codecs, nil
}

// A MismatchError says that a checkpoint is of another model.
type MismatchError struct{ Err error }

func (e *MismatchError) Error() string { return "checkpoint: of another model: " + e.Err.Error() }

func (e *MismatchError) Unwrap() error { return e.Err }

// Fits returns a MismatchError with every tensor in which c's model differs from one with layout l.
func (c *Checkpoint) Fits(l *trivium.Layout) error {
	saved := c.Params.Layout
	if saved.Hash() == l.Hash() {
		return nil
	}
	var errs []error
	for i := range l.Tensors() {
		want := l.Spec(i)
		j := saved.Index(want.Name)
		if j < 0 {
			errs = append(errs, fmt.Errorf("the model has tensor %q of shape %v, the checkpoint does not", want.Name, want.Shape))
			continue
		}
		found := saved.Spec(j)
		if !slices.Equal(found.Shape, want.Shape) {
			errs = append(errs, fmt.Errorf("tensor %q: the model has shape %v, the checkpoint %v", want.Name, want.Shape, found.Shape))
		} else if i != j || found.Buffer != want.Buffer || found.Decay != want.Decay || found.Rate != want.Rate || found.Tie != want.Tie || found.RowSparse != want.RowSparse {
			errs = append(errs, fmt.Errorf("tensor %q: the model has %+v at place %d, the checkpoint %+v at place %d", want.Name, want, i, found, j))
		}
	}
	for j := range saved.Tensors() {
		if t := saved.Spec(j); l.Index(t.Name) < 0 {
			errs = append(errs, fmt.Errorf("the checkpoint has tensor %q of shape %v, the model does not", t.Name, t.Shape))
		}
	}
	return &MismatchError{errors.Join(errs...)}
}
