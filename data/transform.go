package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// TransformVersion is the version of Transform that this package writes and reads.
const TransformVersion = 1

// A Transform is how the rows of a file become the numbers that a model sees, as fitted on the training rows. It is saved with the
// model and applied unchanged to every later file, and says enough for another program, or an ONNX graph, to do the same.
//
// Rows of Kind "table" have named columns. A number x becomes (x − Mean)·Scale, in float32; a missing one is first replaced by Fill. A
// one-hot column sets output From + i to 1 for its i-th category, and nothing for a category that training did not have; a value that is
// written otherwise than all categories is the one that is the same number or truth value, as 1.0 is 1 and True is true. A hashed
// column adds 1 to output From + Bucket(name, value, Buckets): all hashed columns share the same buckets. Columns of a later file are
// matched by name: those that are not listed are passed over, a listed one that is absent is an error. Where names are only numbers, a file of
// one column less than Numbered is one without the label's.
//
// Rows of Kind "sparse" are the columns 1 to the width of a libsvm file, as 0 to the width − 1. Rows of Kind "array" are arrays of a
// fixed shape, each number divided by Divisor: 255 for images of bytes. Rows of Kind "ready" came from a program's own Source and are
// used as they are.
type Transform struct {
	Version int            `json:"version"`
	Kind    string         `json:"kind"` // table, sparse, array, ready
	Schema  trivium.Schema `json:"schema"`
	Missing string         `json:"missing,omitempty"` // of a table: error, mean, zero, drop
	Scale   string         `json:"scale,omitempty"`   // as the job said: none, standard, minmax. Column.Scale has the numbers
	Columns []Column       `json:"columns,omitempty"` // of a table, in the order of their outputs
	Divisor float32        `json:"divisor,omitempty"` // of arrays
	Label   LabelTransform `json:"label"`
	Weight  string         `json:"weight,omitempty"` // the column of sample weights

	Numbered int `json:"numbered,omitempty"` // how many columns the table had, where their names are their numbers; else 0
}

// The kinds of Transform.
const (
	KindTable  = "table"
	KindSparse = "sparse"
	KindArray  = "array"
	KindReady  = "ready"
)

// A Column is one column of a table that a model uses.
type Column struct {
	Name string     `json:"name"`
	Kind ColumnKind `json:"kind"`
	From int        `json:"from"` // the first of its outputs

	Mean  float32 `json:"mean,omitempty"`  // number: x becomes (x − Mean)·Scale
	Scale float32 `json:"scale,omitempty"` // number: 1 where nothing is scaled, 0 where training saw one value only
	Fill  float32 `json:"fill,omitempty"`  // number: what a missing one is taken for, before Mean and Scale

	Categories []string `json:"categories,omitempty"` // one-hot: in the order of their outputs
	Buckets    int      `json:"buckets,omitempty"`    // hashed
}

// A ColumnKind says how a column's values become numbers.
type ColumnKind string

const (
	Number ColumnKind = "number"
	OneHot ColumnKind = "one-hot"
	Hashed ColumnKind = "hashed"
)

// A LabelTransform is how labels become classes or numbers.
type LabelTransform struct {
	Column  string    `json:"column,omitempty"`  // of a table
	Text    bool      `json:"text,omitempty"`    // classes are compared as text; else as numbers
	Weights []float32 `json:"weights,omitempty"` // of the classes, in training only: each row's weight is multiplied by its class's
}

// Bucket returns the bucket of [0, buckets) that a value of a hashed column falls into: FNV-1a (64 bits) over the column's name, a zero
// byte and the value, finished with SplitMix64's mixer, modulo buckets. A number is hashed without needless zeros or an exponent (1 for 1.0,
// 1000 for 1e3), a truth value in small letters (true for True), so that a table in another format falls into the same buckets.
func Bucket[S string | []byte](column string, value S, buckets int) int {
	var buf [32]byte
	plain := plainName(buf[:], []byte(value))
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(column) {
		h = (h ^ uint64(column[i])) * prime
	}
	h *= prime // the zero byte
	for _, b := range plain {
		h = (h ^ uint64(b)) * prime
	}
	return int(draw.Mix(h) % uint64(buckets))
}

// rows says what rows t is of.
func (t *Transform) rows() string {
	if t.Kind == KindReady {
		return "rows of a generator, or of a source of a program's own"
	}
	return t.Kind + " rows"
}

// Input returns the one input that rows become.
func (t *Transform) input() *trivium.InputSpec { return &t.Schema.Inputs[0] }

// maxTransform bounds the encoding: it stands in a checkpoint's manifest, and before rows that are sent.
const maxTransform = 64 << 20

// Encode returns t as JSON, or an *Error if its categories and names take more than 64 MiB.
func (t *Transform) Encode() ([]byte, error) {
	p, err := json.Marshal(t)
	if err == nil && len(p) > maxTransform {
		return nil, setting("categorical", "the names of categories and classes take %s, of which at most %s are saved with a model; hash them with --hash 2^20",
			quantity.Bytes(len(p)), quantity.Bytes(maxTransform))
	}
	return p, err
}

// maxWidth bounds the outputs of a transform: indices of sparse rows are int32.
const maxWidth = math.MaxInt32

// DecodeTransform reads what Encode wrote, and checks that it can be applied.
func DecodeTransform(p []byte) (*Transform, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	t := new(Transform)
	if err := d.Decode(t); err != nil {
		return nil, fault("", "transform: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fault("", "transform: something follows it at byte %d", d.InputOffset())
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// Validate reports every way in which t contradicts itself.
func (t *Transform) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) bool {
		if !ok {
			errs = append(errs, fault("", "transform: "+format, args...))
		}
		return ok
	}
	check(t.Version == TransformVersion, "this program reads version %d, found %d", TransformVersion, t.Version)
	if t.Kind == KindReady {
		return errors.Join(errs...)
	}
	if !check(len(t.Schema.Inputs) == 1, "want one input, found %d", len(t.Schema.Inputs)) {
		return errors.Join(errs...)
	}
	in := t.input()
	width, ok := 1, len(in.Shape) > 0
	for _, n := range in.Shape {
		ok = ok && n >= 0 && (n == 0 || width <= maxWidth/n)
		width *= max(n, 0)
	}
	check(ok, "want a shape of at least one extent and at most %d numbers, found %v", maxWidth, in.Shape)
	check(in.Form == trivium.Dense || in.Form == trivium.CSR && len(in.Shape) == 1, "rows cannot be %v of shape %v", in.Form, in.Shape)
	switch t.Kind {
	case KindTable:
		check(slices.Contains(missingPolicies, t.Missing), "missing: want one of %v, found %q", missingPolicies, t.Missing)
		errs = append(errs, t.validateColumns(width)...)
	case KindSparse:
		check(in.Form == trivium.CSR, "sparse rows are %v", in.Form)
	case KindArray:
		check(in.Form == trivium.Dense, "arrays are %v", in.Form)
		check(finite32(float64(t.Divisor)) && t.Divisor != 0, "want a finite divisor other than 0, found %v", t.Divisor)
	default:
		check(false, "unknown kind %q", t.Kind)
	}
	l := t.Schema.Labels
	switch l.Kind {
	case trivium.NoLabel:
	case trivium.Class:
		check(l.Width >= 1 && len(l.Names) == l.Width, "%d names for %d classes", len(l.Names), l.Width)
		check(t.Label.Weights == nil || len(t.Label.Weights) == l.Width, "%d class weights for %d classes", len(t.Label.Weights), l.Width)
		for _, w := range t.Label.Weights {
			check(w >= 0 && finite32(float64(w)), "class weight %v", w)
		}
	case trivium.Real:
		check(l.Width == 1, "want one real label a row, found %d", l.Width)
	default:
		check(false, "labels cannot be %v", l.Kind)
	}
	return errors.Join(errs...)
}

func (t *Transform) validateColumns(width int) (errs []error) {
	next, buckets := 0, 0
	names := map[string]bool{}
	for i := range t.Columns {
		c := &t.Columns[i]
		fail := func(format string, args ...any) {
			errs = append(errs, fault("", "transform: column %q: %s", c.Name, fmt.Sprintf(format, args...)))
		}
		if names[c.Name] {
			fail("it is listed twice")
		}
		names[c.Name] = true
		n := 1
		switch c.Kind {
		case Number:
			if !finite32(float64(c.Mean)) || !finite32(float64(c.Scale)) || !finite32(float64(c.Fill)) {
				fail("mean %v, scale %v or fill %v is not finite", c.Mean, c.Scale, c.Fill)
			}
		case OneHot:
			n = len(c.Categories)
		case Hashed:
			if c.Buckets < 1 || buckets != 0 && c.Buckets != buckets {
				fail("%d buckets, others have %d", c.Buckets, buckets)
			}
			buckets = c.Buckets
			if c.From != t.hashedFrom() {
				fail("its buckets start at %d, want %d", c.From, t.hashedFrom())
			}
			continue
		default:
			fail("unknown kind %q", c.Kind)
		}
		if c.From != next {
			fail("its outputs start at %d, want %d", c.From, next)
		}
		next += n
	}
	if next+buckets != width {
		errs = append(errs, fault("", "transform: the columns have %d outputs, the input %d", next+buckets, width))
	}
	if buckets > 0 && t.input().Form != trivium.CSR {
		errs = append(errs, fault("", "transform: hashed columns make sparse rows, found %v", t.input().Form))
	}
	return errs
}

// hashedFrom returns the first output of the hashed columns: they follow all others.
func (t *Transform) hashedFrom() int {
	n := 0
	for i := range t.Columns {
		switch c := &t.Columns[i]; c.Kind {
		case Number:
			n++
		case OneHot:
			n += len(c.Categories)
		}
	}
	return n
}

var missingPolicies = []string{"error", "mean", "zero", "drop"}
