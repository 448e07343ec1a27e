// Package checkpoint saves and restores named parameters and progress, atomically, in a blob.Store.
//
// A [Checkpoint] is all that a run needs to go on under any strategy and size, and all that a model needs to be used: parameters and
// optimizer state by tensor name, job, schema and fitted transform, and how far training came. It holds no place where it was made but the
// layout, and, so that as many workers go on with the same bits, what the codec of each worker keeps. It lies in the store as
// NAME/params.safetensors, NAME/optimizer.safetensors, NAME/codecs.safetensors and NAME/manifest.json, which is written last and has the size
// and SHA-256 of the others and of itself: without its manifest a checkpoint does not exist.
//
//	name, err := checkpoint.Save(ctx, store, c)
//	c, name, err := checkpoint.Latest(ctx, store)
//	err = c.Fits(model.Layout())
//	err = checkpoint.Delete(ctx, store, name)
package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
)

// Version is the version of the format that this package reads and writes.
const Version = 1

// A Checkpoint is a model, and a run on its way.
type Checkpoint struct {
	Job       *trivium.Job
	Schema    trivium.Schema
	Transform json.RawMessage // fitted; nil if there is none
	Data      string          // checksum of the training data
	Params    trivium.Params
	Optimizer *OptimizerState // nil for a model alone
	Codecs    [][]byte        // what the codecs of each worker keep; nil: there are none
	Progress  Progress
	Notes     map[string]string // what else is good to know, such as the program's version and kernels
}

// OptimizerState is what an optimizer keeps, cell by cell of the layout.
type OptimizerState struct {
	Names    []string    // of the slots; they name the tensors in the file, as "velocity/dense/weight"
	Slots    [][]float32 // each of the layout's length
	RowSteps [][]uint32  // per tensor: updates of each row of a row-sparse one; nil where rows are not counted
}

// Progress says how far training came.
type Progress struct {
	Step    int64 `json:"step"`    // updates made
	Samples int64 `json:"samples"` // rows consumed
	Epoch   int   `json:"epoch"`   // under way, from 0
	Row     int64 `json:"row"`     // rows of this epoch that are consumed, in its order

	LossSum   float64 `json:"loss_sum"` // of this epoch so far: weight × loss, and weight
	WeightSum float64 `json:"weight_sum"`

	// Early stopping: the best value of its metric, the update that had it, and evaluations without progress since.
	Best     *float64 `json:"best,omitempty"`
	BestStep int64    `json:"best_step,omitempty"`
	Bad      int      `json:"bad,omitempty"`

	Evaluated int64              `json:"evaluated"`         // the update after which there was an evaluation, so that none is made twice or left out
	Metrics   map[string]float64 `json:"metrics,omitempty"` // the last evaluation, by split.metric; those that are finite
}

// A Manifest is what lies in manifest.json.
type Manifest struct {
	Format       string            `json:"format"`
	Version      int               `json:"version"`
	Job          *trivium.Job      `json:"job"`
	Schema       trivium.Schema    `json:"schema"`
	Transform    json.RawMessage   `json:"transform,omitempty"`
	Data         string            `json:"data,omitempty"`
	Layout       []Spec            `json:"layout"`
	LayoutHash   string            `json:"layout_hash"`
	Progress     Progress          `json:"progress"`
	OptimizerIDs []string          `json:"optimizer_slots,omitempty"`
	Notes        map[string]string `json:"notes,omitempty"`
	Files        []File            `json:"files"`
	Checksum     string            `json:"checksum"` // SHA-256 of the manifest with 64 zeros here
}

// A Spec is a trivium.Spec as it is written.
type Spec struct {
	Name      string  `json:"name"`
	Shape     []int   `json:"shape"`
	Buffer    bool    `json:"buffer,omitempty"`
	Decay     float32 `json:"decay,omitempty"`
	Rate      float32 `json:"rate,omitempty"`
	Tie       string  `json:"tie,omitempty"`
	RowSparse bool    `json:"row_sparse,omitempty"`
}

// A File is one of a checkpoint's files.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const (
	format        = "trivium checkpoint"
	manifestName  = "manifest.json"
	paramsName    = "params.safetensors"
	optimizerName = "optimizer.safetensors"
	codecsName    = "codecs.safetensors"
	claimName     = "claim"
	maxManifest   = 256 << 20
	zeros         = "0000000000000000000000000000000000000000000000000000000000000000"
)

// Save writes c to s under a name made of its step, "step-000000000120", and returns the name. If there is one of that name, or another
// process is writing it, a number is put behind it: what is there is never changed. After an error nothing of that name is there to be
// read.
func Save(ctx context.Context, s blob.Store, c *Checkpoint) (name string, err error) {
	base := fmt.Sprintf("step-%012d", c.Progress.Step)
	all, err := List(ctx, s)
	if err != nil {
		return "", fmt.Errorf("checkpoint: save %s: %w", base, err)
	}
	name = base
	for n := 2; ; n++ {
		if !slices.Contains(all, name) {
			if err = save(ctx, s, name, c); !errors.Is(err, fs.ErrExist) {
				break
			}
		}
		name = fmt.Sprintf("%s.%d", base, n)
	}
	if err != nil {
		return "", fmt.Errorf("checkpoint: save %s: %w", name, err)
	}
	return name, nil
}

// save writes c to s under that name. It is an error that wraps fs.ErrExist if the name is taken. Of several at once, one gets it, by a
// claim, which is deleted at the end. Where a process was killed the claim stays, and with it what garbage it left.
func save(ctx context.Context, s blob.Store, name string, c *Checkpoint) (err error) {
	m, err := manifest(c)
	if err != nil {
		return err
	}
	claim := name + "/" + claimName
	if err := s.PutIfAbsent(ctx, claim, strings.NewReader("")); err != nil {
		return err
	}
	written := []string{claim}
	defer func() {
		for _, key := range slices.Backward(written) { // the claim last: until then nobody else writes under this name
			if e := s.Delete(context.WithoutCancel(ctx), key); e != nil && err != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	// Who had the claim before may have come to its end.
	if r, err := s.Get(ctx, name+"/"+manifestName, 0, 0); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.Join(fs.ErrExist, r.Close())
		}
		return err
	}
	put := func(file string, tensors []Tensor) error {
		f, err := putFile(ctx, s, name+"/"+file, tensors, map[string]string{"format": "trivium", "checkpoint": name})
		written = append(written, name+"/"+file)
		f.Name = file
		m.Files = append(m.Files, f)
		return err
	}
	if err := put(paramsName, paramTensors(c.Params)); err != nil {
		return err
	}
	if c.Optimizer != nil {
		m.OptimizerIDs = c.Optimizer.Names
		tensors, err := stateTensors(c.Params.Layout, c.Optimizer)
		if err != nil {
			return err
		}
		if err := put(optimizerName, tensors); err != nil {
			return err
		}
	}
	if c.Codecs != nil {
		if err := put(codecsName, codecTensors(c.Codecs)); err != nil {
			return err
		}
	}
	p, err := m.encode()
	if err != nil {
		return err
	}
	if err := s.PutIfAbsent(ctx, name+"/"+manifestName, bytes.NewReader(p)); err != nil {
		if !errors.Is(err, fs.ErrExist) { // where an answer was lost it may be there all the same
			written = append(written, name+"/"+manifestName)
		}
		return err
	}
	written = written[:1] // the rest is no garbage now
	return nil
}

func manifest(c *Checkpoint) (*Manifest, error) {
	l := c.Params.Layout
	if l == nil || len(c.Params.Flat) != l.Len() {
		return nil, errors.New("the parameters do not fill their layout")
	}
	m := &Manifest{
		Format: format, Version: Version, Job: c.Job, Schema: c.Schema, Transform: c.Transform, Data: c.Data,
		LayoutHash: l.Hash(), Progress: c.Progress, Notes: c.Notes,
	}
	for i := range l.Tensors() {
		t := l.Spec(i)
		m.Layout = append(m.Layout, Spec{t.Name, t.Shape, t.Buffer, t.Decay, t.Rate, t.Tie, t.RowSparse})
	}
	return m, nil
}

// encode returns the manifest with its checksum in place.
func (m *Manifest) encode() ([]byte, error) {
	m.Checksum = zeros
	p, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return nil, err
	}
	p = append(p, '\n')
	if len(p) > maxManifest {
		return nil, fmt.Errorf("its manifest takes %d bytes, of which at most %d are read", len(p), maxManifest)
	}
	sum := sha256.Sum256(p)
	at := bytes.LastIndex(p, []byte(zeros))
	copy(p[at:], hex.EncodeToString(sum[:]))
	return p, nil
}

// checkSum compares the checksum in p, a manifest as it was read, with that of its bytes.
func checkSum(p []byte) error {
	const field = `"checksum": "`
	at := bytes.LastIndex(p, []byte(field))
	if at < 0 || len(p) < at+len(field)+len(zeros) {
		return errors.New("has no checksum: it was cut short, or is no manifest")
	}
	at += len(field)
	found := string(p[at : at+len(zeros)])
	q := bytes.Clone(p)
	copy(q[at:], zeros)
	sum := sha256.Sum256(q)
	if want := hex.EncodeToString(sum[:]); want != found {
		return fmt.Errorf("its checksum is %s, its bytes have %s", found, want)
	}
	return nil
}

// putFile writes tensors to key and returns its size and checksum.
func putFile(ctx context.Context, s blob.Store, key string, tensors []Tensor, metadata map[string]string) (File, error) {
	r, w := io.Pipe()
	sum, size := sha256.New(), counter(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(WriteSafetensors(w, tensors, metadata))
	}()
	err := s.Put(ctx, key, io.TeeReader(r, io.MultiWriter(sum, &size)))
	r.CloseWithError(err) // unblocks the writer where Put gave up
	<-done
	return File{Size: int64(size), SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// paramTensors lists the tensors of p: a tied one is its owner's and not written.
func paramTensors(p trivium.Params) (tensors []Tensor) {
	for i := range p.Layout.Tensors() {
		if t := p.Layout.Spec(i); t.Tie == "" {
			tensors = append(tensors, Tensor{Name: t.Name, DType: "F32", Shape: t.Shape, Float32: p.Tensor(i)})
		}
	}
	return tensors
}

// rowSteps is the name under which the number of updates of each row is saved, before the tensor's.
const rowSteps = "steps"

func stateTensors(l *trivium.Layout, o *OptimizerState) (tensors []Tensor, err error) {
	if len(o.Names) != len(o.Slots) {
		return nil, fmt.Errorf("%d names for %d state vectors", len(o.Names), len(o.Slots))
	}
	for k, slot := range o.Slots {
		if len(slot) != l.Len() {
			return nil, fmt.Errorf("state vector %q has %d cells, the layout %d", o.Names[k], len(slot), l.Len())
		}
		for _, t := range paramTensors(trivium.Params{Layout: l, Flat: slot}) {
			if !l.Spec(l.Index(t.Name)).Buffer {
				t.Name = o.Names[k] + "/" + t.Name
				tensors = append(tensors, t)
			}
		}
	}
	for i, steps := range o.RowSteps {
		if steps == nil {
			continue
		}
		t := Tensor{Name: rowSteps + "/" + l.Spec(i).Name, DType: "I64", Shape: []int{len(steps)}, Counts: steps}
		tensors = append(tensors, t)
	}
	return tensors, nil
}

// codecTensors are the bytes of each worker, in the order of the workers.
func codecTensors(codecs [][]byte) (tensors []Tensor) {
	for i, p := range codecs {
		tensors = append(tensors, Tensor{Name: fmt.Sprintf("worker/%d", i), DType: "U8", Shape: []int{len(p)}, Raw: p})
	}
	return tensors
}

// List returns the names of the checkpoints in s, oldest first: by step, then by the number behind it; before them what Save did not name.
func List(ctx context.Context, s blob.Store) ([]string, error) {
	objects, err := s.List(ctx, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, o := range objects {
		if name, ok := strings.CutSuffix(o.Key, "/"+manifestName); ok {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareNames)
	return names, nil
}

// compareNames orders "step-000000000120", "step-000000000120.2", "step-000000000120.10", "step-1000000000000". What Save did not name, a
// copy or what was moved to another folder, tells nothing of its age and comes before all of these.
func compareNames(a, b string) int {
	x, m := place(a)
	y, n := place(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(m, n), strings.Compare(a, b))
}

// place returns the step and the number in a name that Save gives, and -1 of any other.
func place(name string) (step, number int64) {
	text, behind, numbered := strings.Cut(name, ".")
	digits, ok := strings.CutPrefix(text, "step-")
	s, err := strconv.ParseUint(digits, 10, 63)
	var n uint64
	if numbered && err == nil {
		n, err = strconv.ParseUint(behind, 10, 63)
	}
	if !ok || err != nil {
		return -1, 0
	}
	return int64(s), int64(n)
}

// FromSave tells whether Save gives such names. Others are copies that somebody made, which no run may prune.
func FromSave(name string) bool {
	step, _ := place(name)
	return step >= 0
}

// Delete removes the checkpoint of that name, its manifest first.
func Delete(ctx context.Context, s blob.Store, name string) error {
	var errs []error
	for _, file := range []string{manifestName, paramsName, optimizerName, codecsName} {
		errs = append(errs, s.Delete(ctx, name+"/"+file))
	}
	return errors.Join(errs...)
}
