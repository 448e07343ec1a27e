package app

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// dataVerb describes a source.
type dataVerb struct {
	Source string `arg:"" optional:"" help:"A file, a folder, or a generator by name; without it, generated digits."`
	dataFlags
	splitFlags
	JSON bool `name:"json" help:"Print one JSON object."`
}

func (v *dataVerb) Run(ctx context.Context, s *session) error {
	d := trivium.Data{}
	v.dataFlags.apply(&d, given{})
	v.splitFlags.apply(&d, given{})
	if v.Source != "" {
		if v.Data != nil && d.Source != v.Source {
			return misusedf("data: two sources are named, %q and %q", v.Source, d.Source)
		}
		d.Source = v.Source
	}
	splits, err := s.open(ctx, d, nil)
	if err != nil {
		return err
	}
	about := description{Source: d.Source, Checksum: splits.Checksum, Notes: splits.Notes, Problems: []string{}}
	if about.Source == "" {
		about.Source = "digits"
	}
	for _, part := range parts(splits) {
		about.Splits = append(about.Splits, describe(ctx, part.name, part.rows, &about))
	}
	if v.JSON {
		if err := json.NewEncoder(s.out).Encode(about); err != nil {
			return err
		}
	} else if err := about.print(s); err != nil {
		return err
	}
	if n := len(about.Problems); n > 0 {
		return misusedf("data: %d problems", n)
	}
	return nil
}

// A namedSet is one of a job's data sets.
type namedSet struct {
	name string
	rows data.Dataset
}

// parts lists the data sets that there are.
func parts(s *data.Splits) (out []namedSet) {
	for _, p := range []namedSet{{"train", s.Train}, {"valid", s.Valid}, {"test", s.Test}} {
		if p.rows != nil {
			out = append(out, p)
		}
	}
	return out
}

// A description is what there is to say of a source.
type description struct {
	Source   string             `json:"source"`
	Checksum string             `json:"checksum"`
	Notes    []string           `json:"notes,omitempty"`
	Splits   []splitDescription `json:"splits"`
	Problems []string           `json:"problems"`
}

type splitDescription struct {
	Name   string             `json:"name"`
	Rows   int64              `json:"rows"`
	Inputs []inputDescription `json:"inputs"`
	Labels labelDescription   `json:"labels"`
}

type inputDescription struct {
	Name    string  `json:"name"`
	Form    string  `json:"form"`
	Shape   []int   `json:"shape"`
	Columns int     `json:"columns"`
	Filled  float64 `json:"nonzero"` // share of the cells that are not 0
	Min     float64 `json:"min"`
	Mean    float64 `json:"mean"`
	Max     float64 `json:"max"`
}

type labelDescription struct {
	Kind    string             `json:"kind"`
	Width   int                `json:"width"`
	Balance map[string]float64 `json:"balance,omitempty"` // share of the rows by class
	Min     float64            `json:"min,omitempty"`
	Mean    float64            `json:"mean,omitempty"`
	Max     float64            `json:"max,omitempty"`

	names []string
}

// blockRows are read at a time.
const blockRows = 1024

// describe reads all rows of a data set. What goes wrong on the way becomes a problem of about.
func describe(ctx context.Context, name string, ds data.Dataset, about *description) splitDescription {
	schema := ds.Schema()
	out := splitDescription{Name: name, Rows: ds.Rows(), Labels: labelDescription{Kind: schema.Labels.Kind.String(), Width: schema.Labels.Width}}
	inputs := make([]spread, len(schema.Inputs))
	var labels spread
	classes := make([]int64, max(0, schema.Labels.Width))
	var b trivium.Batch
	var rows int64
	for rows < ds.Rows() {
		to := min(rows+blockRows, ds.Rows())
		if err := ds.Read(ctx, &b, rows, to); err != nil {
			about.Problems = append(about.Problems, fmt.Sprintf("%s: %v", name, err))
			break
		}
		rows = to
		for i := range min(len(inputs), len(b.Inputs)) {
			in := &b.Inputs[i]
			if in.Form == trivium.Dense {
				inputs[i].add(in.Values)
			} else {
				inputs[i].add(in.Values[in.Ptr[0]:in.Ptr[b.Rows]])
			}
		}
		for _, c := range b.Labels.Class {
			classes[c]++
		}
		labels.add(b.Labels.Real)
	}
	for i, spec := range schema.Inputs {
		cells := rows * int64(spec.Columns())
		out.Inputs = append(out.Inputs, inputs[i].describe(spec, cells))
	}
	out.Labels.fill(schema.Labels, classes, rows, labels)
	return out
}

func (l *labelDescription) fill(spec trivium.LabelSpec, classes []int64, rows int64, values spread) {
	switch spec.Kind {
	case trivium.Class:
		l.Balance = map[string]float64{}
		for c, n := range classes {
			name := className(spec, c)
			l.names = append(l.names, name)
			l.Balance[name] = float64(n) / float64(max(rows, 1))
		}
	case trivium.Real:
		if values.n > 0 {
			l.Min, l.Mean, l.Max = values.min, values.sum/float64(values.n), values.max
		}
	}
}

// className is what the source calls class c.
func className(spec trivium.LabelSpec, c int) string {
	if c < len(spec.Names) {
		return spec.Names[c]
	}
	return fmt.Sprint(c)
}

// A spread sums up numbers.
type spread struct {
	n, nonzero    int64
	sum, min, max float64
}

func (s *spread) add(values []float32) {
	for _, v := range values {
		x := float64(v)
		if s.n == 0 {
			s.min, s.max = x, x
		}
		s.n++
		s.sum += x
		s.min, s.max = math.Min(s.min, x), math.Max(s.max, x)
		if x != 0 {
			s.nonzero++
		}
	}
}

// describe sums up an input with that many cells; those that a sparse one leaves out are 0.
func (s *spread) describe(spec trivium.InputSpec, cells int64) inputDescription {
	d := inputDescription{Name: spec.Name, Form: spec.Form.String(), Shape: spec.Shape, Columns: spec.Columns()}
	if spec.Form == trivium.Ragged {
		cells = s.n
	}
	if s.n < cells {
		s.min, s.max = math.Min(s.min, 0), math.Max(s.max, 0)
	}
	if cells > 0 {
		d.Filled, d.Mean, d.Min, d.Max = float64(s.nonzero)/float64(cells), s.sum/float64(cells), s.min, s.max
	}
	return d
}

func (d *description) print(s *session) error {
	fmt.Fprintf(s.out, "source %s, checksum %s\n", d.Source, d.Checksum)
	for _, n := range d.Notes {
		fmt.Fprintf(s.out, "note: %s\n", n)
	}
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\nSPLIT\tROWS\tINPUT\tSHAPE\tNOT 0\tMIN\tMEAN\tMAX")
	for _, p := range d.Splits {
		for _, in := range p.Inputs {
			fmt.Fprintf(w, "%s\t%s\t%s (%s)\t%v\t%.1f %%\t%s\t%s\t%s\n", p.Name, thousands(p.Rows), in.Name, in.Form, in.Shape, 100*in.Filled,
				figure(in.Min), figure(in.Mean), figure(in.Max))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(s.out)
	for _, p := range d.Splits {
		switch {
		case p.Labels.Balance != nil:
			fmt.Fprintf(s.out, "%s labels: %d classes: %s\n", p.Name, p.Labels.Width, p.Labels.shares())
		case p.Labels.Kind == trivium.Real.String():
			fmt.Fprintf(s.out, "%s labels: numbers from %s to %s, mean %s\n", p.Name, figure(p.Labels.Min), figure(p.Labels.Max), figure(p.Labels.Mean))
		default:
			fmt.Fprintf(s.out, "%s labels: %s\n", p.Name, p.Labels.Kind)
		}
	}
	for _, problem := range d.Problems {
		fmt.Fprintf(s.out, "problem: %s\n", problem)
	}
	if len(d.Problems) == 0 {
		fmt.Fprintln(s.out, "no problems found")
	}
	return nil
}

// shares lists the classes' shares of the rows, at most 20, the most frequent ones.
func (l *labelDescription) shares() string {
	names := slices.Clone(l.names)
	const most = 20
	rest := ""
	if len(names) > most {
		slices.SortStableFunc(names, func(a, b string) int {
			switch {
			case l.Balance[a] > l.Balance[b]:
				return -1
			case l.Balance[a] < l.Balance[b]:
				return 1
			}
			return 0
		})
		rest = fmt.Sprintf(", and %d more", len(names)-most)
		names = names[:most]
	}
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = fmt.Sprintf("%s %.1f %%", n, 100*l.Balance[n])
	}
	return strings.Join(words, ", ") + rest
}
