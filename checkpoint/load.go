package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
		p, err := blob.Read(ctx, s, name+"/"+f.Name, f.Size)
		if err != nil {
			return nil, fail(f.Name, err)
		}
		if int64(len(p)) != f.Size {
			return nil, fail(f.Name, fmt.Errorf("has %d bytes, the manifest says %d", len(p), f.Size))
		}
		if sum := sha256.Sum256(p); hex.EncodeToString(sum[:]) != f.SHA256 {
			return nil, fail(f.Name, fmt.Errorf("its SHA-256 is %x, the manifest says %s", sum, f.SHA256))
		}
		tensors, _, err := ReadSafetensors(p)
		if err != nil {
			return nil, fail(f.Name, err)
		}
		switch f.Name {
		case paramsName:
			err = fill(c.Params, "", named(tensors))
		case optimizerName:
			c.Optimizer, err = restore(layout, m.OptimizerIDs, tensors)
		case codecsName:
			c.Codecs, err = restoreCodecs(tensors)
		}
		if err != nil {
			return nil, fail(f.Name, err)
		}
	}
	return c, nil
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

// fill copies tensors, by name after prefix, into p, all of whose tensors (less buffers, behind a prefix) have to be there.
func fill(p trivium.Params, prefix string, byName map[string]*Tensor) error {
	for i := range p.Layout.Tensors() {
		spec := p.Layout.Spec(i)
		if spec.Tie != "" || spec.Buffer && prefix != "" {
			continue
		}
		t, ok := byName[prefix+spec.Name]
		if !ok {
			return fmt.Errorf("tensor %q is missing", prefix+spec.Name)
		}
		if t.DType != "F32" || !slices.Equal(t.Shape, spec.Shape) {
			return fmt.Errorf("tensor %q: want F32 of shape %v, found %s of shape %v", t.Name, spec.Shape, t.DType, t.Shape)
		}
		copy(p.Tensor(i), t.Float32)
	}
	return nil
}

func restore(l *trivium.Layout, names []string, tensors []Tensor) (*OptimizerState, error) {
	o := &OptimizerState{Names: names, RowSteps: make([][]uint32, l.Tensors())}
	if len(names) > 1+2*1000 { // L-BFGS with the longest history
		return nil, fmt.Errorf("%d state vectors", len(names))
	}
	byName := named(tensors)
	for _, name := range names {
		slot := trivium.NewParams(l)
		if err := fill(slot, name+"/", byName); err != nil {
			return nil, err
		}
		o.Slots = append(o.Slots, slot.Flat)
	}
	for i := range l.Tensors() {
		t, ok := byName[rowSteps+"/"+l.Spec(i).Name]
		if !ok || t.DType != "I64" {
			continue
		}
		if len(t.Int64) != l.Rows(i) {
			return nil, fmt.Errorf("tensor %q: want %d rows, found %d", t.Name, l.Rows(i), len(t.Int64))
		}
		o.RowSteps[i] = make([]uint32, len(t.Int64))
		for r, n := range t.Int64 {
			if n < 0 || n > math.MaxUint32 {
				return nil, fmt.Errorf("tensor %q: row %d has %d updates", t.Name, r, n)
			}
			o.RowSteps[i][r] = uint32(n)
		}
	}
	return o, nil
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
