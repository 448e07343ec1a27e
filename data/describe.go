package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/trivium-ml/trivium"
)

// A Description is what a look at all rows of a source finds.
type Description struct {
	Source     string              `json:"source"`
	Kind       string              `json:"kind"` // table, sparse, array
	Rows       int64               `json:"rows"`
	Shape      []int               `json:"shape"`             // of a row: columns, or an array's extents
	Cells      int64               `json:"cells"`             // rows × columns; of ragged rows the numbers that there are, and no ids
	Nonzero    int64               `json:"nonzero"`           // cells that are neither zero nor missing; text counts
	Incomplete int64               `json:"incomplete_rows"`   // rows of a table in which a cell is missing, the label's and the weight's too
	Mistaken   int64               `json:"mistaken_rows"`     // rows of a table in which a cell has no value by a mistake, or is not there
	Columns    []ColumnDescription `json:"columns,omitempty"` // of a table all, of sparse rows those that occur, of arrays one for all numbers
	Label      string              `json:"label,omitempty"`   // the column
	Labels     trivium.LabelSpec   `json:"labels"`            // what they are taken for
	Balance    []ClassCount        `json:"balance,omitempty"` // rows of each class, of those that --missing drop leaves if it is given
	Checksum   string              `json:"checksum"`
	Notes      []string            `json:"notes,omitempty"`

	// The first mistakes found, at most MaxProblems, and how many there are in all.
	Problems     []*Error `json:"first_problems,omitempty"`
	ProblemCount int64    `json:"problems"`
}

// MaxProblems bounds the mistakes that a Description lists.
const MaxProblems = 20

// maxSparseColumns bounds the columns of sparse rows that a Description describes one by one.
const maxSparseColumns = 1 << 20

// A ColumnDescription has the figures of one column. What is missing or mistaken is in no other of them.
type ColumnDescription struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"` // number, text, label, weight, dropped
	Count    int64   `json:"count"`
	Missing  int64   `json:"missing"`
	Mistaken int64   `json:"mistaken,omitempty"` // of a table
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Mean     float64 `json:"mean"`
	Distinct int     `json:"distinct,omitempty"` // of text
}

// A ClassCount is how many rows have a label.
type ClassCount struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

// Sparsity is the share of cells that are zero or missing.
func (d *Description) Sparsity() float64 {
	if d.Cells == 0 {
		return 0
	}
	return 1 - float64(d.Nonzero)/float64(d.Cells)
}

// Describe reads all rows of the source of d and says what is there. Mistakes in rows are collected, with their places, so that a file
// can be mended in one go; an error means that the source cannot be read as a whole. The figures are those of the training file; of the files of other
// splits the mistakes are found that training would stop at.
func Describe(ctx context.Context, d trivium.Data, o Options) (*Description, error) {
	if err := errors.Join(checkCounts(&d), o.validate()); err != nil {
		return nil, err
	}
	if _, own := o.Sources[d.Source]; own || d.Source == "" || Generators()[d.Source] != nil {
		d.Train, d.Valid, d.Test = "", "", ""
		s, err := Open(ctx, d, o)
		if err != nil {
			return nil, err
		}
		out, err := describeSplits(ctx, s)
		out.Source = d.Source
		return out, errors.Join(err, s.Close())
	}
	here, err := fetchURLs(ctx, &d)
	if err != nil {
		return nil, err
	}
	out, err := describeFile(ctx, d, o)
	if out != nil {
		out.Source, out.Label = here.words(out.Source), here.words(out.Label)
		here.rename(out.Notes)
		for _, e := range out.Problems {
			_ = here.name(e)
		}
	}
	return out, here.name(errors.Join(err, here.close()))
}

func describeFile(ctx context.Context, d trivium.Data, o Options) (*Description, error) {
	where, err := locate(d.Source, d.Format)
	if err != nil {
		return nil, err
	}
	f, err := openRowFile(where.train, &d)
	if err != nil {
		return nil, err
	}
	out := &Description{Source: f.fileName(), Rows: f.numRows(), Checksum: fmt.Sprintf("crc32c:%08x", f.sum()), Notes: where.notes}
	for _, e := range uselessSettings(f, &d, false) {
		_ = out.problem(e) // describing goes on
	}
	err = f.describe(ctx, out, fitting{desc: d, labels: o.Labels})
	out.weigh(d.ClassWeight)
	sortByPlace(out.Problems)
	if err = errors.Join(err, f.close()); err == nil {
		err = out.describeOthers(ctx, where, d, o)
	}
	out.Problems = out.Problems[:min(len(out.Problems), MaxProblems)]
	return out, err
}

func sortByPlace(problems []*Error) {
	slices.SortStableFunc(problems, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Row, b.Row)) })
}

// problem notes a mistake and goes on.
func (d *Description) problem(e *Error) error {
	d.ProblemCount++
	if len(d.Problems) < 100*MaxProblems { // more than are kept, since several goroutines find them in no order
		d.Problems = append(d.Problems, e)
	}
	return nil
}

// balance fills in what the labels are, and how many rows each class has.
func (d *Description) balance(set *labelSet, f fitting, at func(error, int64) error) {
	spec, bad, err := set.spec(f.labels, f.desc.Classes)
	d.Labels = spec
	var e *Error
	if errors.As(at(err, bad), &e) {
		_ = d.problem(e) // describing goes on
	}
	if spec.Kind != trivium.Class {
		return
	}
	rows := make(map[string]int64, len(set.seen))
	for v, c := range set.seen {
		rows[labelName(v)] = c.rows
	}
	for _, name := range spec.Names {
		d.Balance = append(d.Balance, ClassCount{name, rows[name]})
	}
}

func (s *sparseFile) describe(ctx context.Context, d *Description, f fitting) error {
	d.Kind = KindSparse
	var mu sync.Mutex
	report := func(e *Error) error {
		mu.Lock()
		defer mu.Unlock()
		return d.problem(e)
	}
	var columns []columnStats
	err := parallel(ctx, int64(len(s.x.starts)), 16, func(lo, hi int64) error {
		var rows sparseRows
		if _, err := s.decode(nil, &rows, lo*blockRows, min(hi*blockRows, s.x.rows), f.desc.Columns, report); err != nil {
			return err
		}
		var set labelSet
		for i, v := range rows.label {
			if v == v {
				set.add(v, lo*blockRows+int64(i))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		s.labels.merge(&set)
		s.max = max(s.max, rows.max)
		for i, c := range rows.index {
			v := float64(rows.values[i])
			if v != 0 {
				d.Nonzero++
			}
			if c >= maxSparseColumns {
				continue
			}
			for int(c) >= len(columns) {
				columns = append(columns, columnStats{min: math.Inf(1), max: math.Inf(-1)})
			}
			columns[c].one(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	width := max(f.desc.Columns, int(s.max))
	d.Shape, d.Cells = []int{width}, int64(width)*s.x.rows
	for c := range columns {
		if columns[c].n > 0 {
			d.Columns = append(d.Columns, columns[c].describe(fmt.Sprint(c+1), string(Number)))
		}
	}
	if int(s.max) > maxSparseColumns {
		d.Notes = append(d.Notes, fmt.Sprintf("columns beyond %d are counted and not listed", maxSparseColumns))
	}
	if !s.unlabelled {
		d.balance(&s.labels, f, s.at)
	}
	return nil
}

// one adds a single value.
func (s *columnStats) one(v float64) {
	s.n++
	s.mean += (v - s.mean) / float64(s.n)
	s.min, s.max = min(s.min, v), max(s.max, v)
}

func (s *columnStats) describe(name, kind string) ColumnDescription {
	c := ColumnDescription{Name: name, Kind: kind, Count: s.n, Missing: s.missing}
	if s.n > 0 {
		c.Min, c.Max, c.Mean = s.min, s.max, s.mean
	}
	return c
}

func (a *arrayFile) describe(ctx context.Context, d *Description, f fitting) error {
	d.Kind, d.Shape, d.Cells = KindArray, a.x.shape, a.x.rows*int64(a.x.rowLen())
	all := columnStats{min: math.Inf(1), max: math.Inf(-1)}
	var mu sync.Mutex
	report := func(e *Error) error {
		mu.Lock()
		defer mu.Unlock()
		return d.problem(e)
	}
	err := parallel(ctx, a.x.rows, a.x.chunk(), func(from, to int64) error {
		x := make([]float32, (to-from)*int64(a.x.rowLen()))
		if err := a.x.readInto(x, from, to, 1, report); err != nil {
			return err
		}
		part := columnStats{min: math.Inf(1), max: math.Inf(-1)}
		var nonzero int64
		for _, v := range x {
			if finite32(float64(v)) {
				part.n++
				part.mean += float64(v) // a sum for now
				part.min, part.max = min(part.min, float64(v)), max(part.max, float64(v))
			}
			if v != 0 {
				nonzero++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		d.Nonzero += nonzero
		all.n += part.n
		all.mean += part.mean
		all.min, all.max = min(all.min, part.min), max(all.max, part.max)
		return nil
	})
	if err != nil {
		return err
	}
	if all.n > 0 {
		all.mean /= float64(all.n)
	}
	d.Columns = []ColumnDescription{all.describe("x", string(Number))}
	if a.y == nil {
		return nil
	}
	d.Label = a.y.f.name
	var set labelSet
	for i, v := range a.labels {
		set.add(v, int64(i))
	}
	d.balance(&set, f, a.labelError)
	return nil
}

// describeSplits describes data that has no file by its rows.
func describeSplits(ctx context.Context, s *Splits) (*Description, error) {
	schema := s.Schema()
	d := &Description{Kind: s.Transform.Kind, Labels: schema.Labels, Checksum: s.Checksum, Notes: s.Notes}
	all := columnStats{min: math.Inf(1), max: math.Inf(-1)}
	classes := make([]int64, schema.Labels.Width)
	for _, ds := range []Dataset{s.Train, s.Valid, s.Test} {
		if ds == nil {
			continue
		}
		d.Rows += ds.Rows()
		row := int64(0)
		for b, err := range Batches(ctx, ds, BatchOptions{Batch: blockRows}) {
			if err != nil {
				return d, err
			}
			for i := range b.Inputs {
				in := &b.Inputs[i]
				values, cells := in.Values, int64(b.Rows)*int64(in.RowLen())
				switch {
				case in.Form == trivium.CSR:
					values = values[in.Ptr[0]:in.Ptr[b.Rows]]
				case in.Form == trivium.Ragged && values == nil: // ids, of which none is a number
					cells = 0
				case in.Form == trivium.Ragged:
					n := int64(in.RowLen())
					values = values[in.Ptr[0]*n : in.Ptr[b.Rows]*n]
					cells = int64(len(values))
				}
				for _, v := range values {
					all.one(float64(v))
					if v != 0 {
						d.Nonzero++
					}
				}
				d.Cells += cells
			}
			if schema.Labels.Kind == trivium.Class {
				if err := checkClasses(b, row, len(classes)); err != nil {
					return d, err
				}
				for _, c := range b.Labels.Class {
					classes[c]++
				}
			}
			row += int64(b.Rows)
		}
	}
	for i := range schema.Inputs {
		if in := &schema.Inputs[i]; len(schema.Inputs) == 1 {
			d.Shape = in.Shape
			d.Columns = append(d.Columns, all.describe(in.Name, string(Number)))
		}
	}
	if schema.Labels.Kind == trivium.Class {
		for i, n := range classes {
			name := fmt.Sprint(i)
			if i < len(schema.Labels.Names) {
				name = schema.Labels.Names[i]
			}
			d.Balance = append(d.Balance, ClassCount{name, n})
		}
	}
	return d, nil
}
