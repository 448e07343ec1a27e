package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// dataVerb describes a source.
type dataVerb struct {
	Source string `arg:"" optional:"" help:"A file, a folder, or a generator by name; without it, generated digits."`
	dataFlags
	All  bool `help:"List every column, not only the first 30."`
	JSON bool `name:"json" help:"Print one JSON object."`
}

func (dataVerb) Help() string {
	return "Reads all rows, and lists the first mistakes in them with their places, so that a file can be mended in one go. The figures are of the training file; in the files of other splits, such as a folder's test file, it finds what training would stop at. Exits with 2 if there are any mistakes."
}

func (v *dataVerb) Run(ctx context.Context, s *session) error {
	d := trivium.Data{}
	v.apply(&d, given{})
	if v.Source != "" {
		if v.Data != nil && d.Source != v.Source {
			return misusedf("data: two sources are named, %q and %q", v.Source, d.Source)
		}
		d.Source = v.Source
	}
	rest := trivium.Job{Version: trivium.JobVersion, Model: "any", Batch: 1} // of a job that has this data
	rest.Data = d
	if err := rest.Validate(); err != nil {
		return misused(err)
	}
	about, err := data.Describe(ctx, d, data.Options{Sources: s.sources, Budget: s.memoryForRows()})
	if err != nil {
		return s.asInputOf(d.Source, err)
	}
	if v.JSON {
		err = json.NewEncoder(s.out).Encode(about)
	} else {
		err = s.printDescription(about, v.All, d.Missing)
	}
	if err != nil {
		return err
	}
	if about.ProblemCount > 0 {
		return misusedf("data: %s: %s", about.Source, quantity.Count(about.ProblemCount, "mistake"))
	}
	return nil
}

// listedColumns are described one by one where not all are asked for.
const listedColumns = 30

func (s *session) printDescription(d *data.Description, all bool, missing string) error {
	fmt.Fprintf(s.out, "%s: %s, %s rows of %v, %.1f %% of the cells are 0 or missing, checksum %s\n", cmp.Or(d.Source, "digits"), d.Kind,
		thousands(d.Rows), d.Shape, 100*d.Sparsity(), d.Checksum)
	for _, n := range d.Notes {
		fmt.Fprintf(s.out, "note: %s\n", n)
	}
	if len(d.Columns) > 0 {
		shown := d.Columns
		if !all {
			shown = shown[:min(len(shown), listedColumns)]
		}
		fmt.Fprintln(s.out)
		w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "COLUMN\tKIND\tVALUES\tMISSING\tMIN\tMEAN\tMAX\tDISTINCT")
		for _, c := range shown {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", plain(c.Name), c.Kind, thousands(c.Count), thousands(c.Missing), columnFigures(&c))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if len(shown) < len(d.Columns) {
			fmt.Fprintf(s.out, "and %s more columns (--all lists them)\n", thousands(int64(len(d.Columns)-len(shown))))
		}
	}
	fmt.Fprintln(s.out)
	switch d.Labels.Kind {
	case trivium.Class:
		fmt.Fprintf(s.out, "labels: %s: %s\n", quantity.Count(d.Labels.Width, "class"), balance(d))
	case trivium.Real:
		fmt.Fprintln(s.out, "labels: numbers")
	default:
		fmt.Fprintf(s.out, "labels: %v\n", d.Labels.Kind)
	}
	for _, problem := range d.Problems {
		fmt.Fprintf(s.out, "mistake: %v\n", problem)
	}
	other := ""
	if d.Incomplete > 0 {
		fmt.Fprintln(s.out, missingCells(d, missing))
		other = "other "
	}
	if d.Mistaken > 0 {
		fmt.Fprintln(s.out, mistakenCells(d))
	}
	if d.ProblemCount == 0 {
		fmt.Fprintf(s.out, "no %smistakes found\n", other)
	}
	return nil
}

// missingCells says where cells are missing, and what training makes of them under that --missing.
func missingCells(d *data.Description, how string) string {
	label, text := false, false
	for _, c := range d.Columns {
		label = label || c.Missing > 0 && (c.Kind == "label" || c.Kind == "weight")
		text = text || c.Missing > 0 && c.Kind == "text"
	}
	becomes := map[string]string{
		"mean": "--missing mean makes each the mean of its column",
		"zero": "--missing zero makes each 0",
		"drop": "--missing drop leaves these rows out",
	}[how]
	if becomes == "" {
		becomes = "training stops at one, unless --missing says mean, zero, or drop to leave these rows out"
	} else if text && how != "drop" {
		becomes += ", or in a column of text none of its categories"
	}
	if label && how != "drop" {
		becomes += "; but a row without label or weight stops training, unless it is left out by drop"
	}
	return fmt.Sprintf("missing: %s; %s", countCells(d, d.Incomplete, func(c *data.ColumnDescription) int64 { return c.Missing }), becomes)
}

// mistakenCells says where cells are mistaken.
func mistakenCells(d *data.Description) string {
	return fmt.Sprintf("mistaken: %s; training stops at one, whatever --missing says",
		countCells(d, d.Mistaken, func(c *data.ColumnDescription) int64 { return c.Mistaken }))
}

// countCells counts those of a table, in that many rows, that count finds in a column.
func countCells(d *data.Description, rows int64, count func(*data.ColumnDescription) int64) string {
	var all int64
	var columns []string
	for i := range d.Columns {
		c := &d.Columns[i]
		if n := count(c); n > 0 {
			all += n
			columns = append(columns, plain(c.Name)+" "+thousands(n))
		}
	}
	if n := len(columns); n > listedColumns {
		columns = append(columns[:listedColumns], fmt.Sprintf("and %d more columns", n-listedColumns))
	}
	return fmt.Sprintf("%s in %s of %s rows: %s", quantity.Count(all, "cell"), thousands(rows), thousands(d.Rows), strings.Join(columns, ", "))
}

// plain is a name from a file as a line of output can have it: of bounded length, and quoted if it holds line ends or other control characters.
func plain(name string) string {
	const most = 60
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most]) + "…"
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// columnFigures are the cells of the last four columns: numbers have a spread, text the number of its values.
func columnFigures(c *data.ColumnDescription) string {
	if c.Distinct > 0 || c.Kind == "text" {
		return "\t\t\t" + strconv.Itoa(c.Distinct)
	}
	if c.Count == 0 {
		return "\t\t\t"
	}
	return fmt.Sprintf("%s\t%s\t%s\t", figure(c.Min), figure(c.Mean), figure(c.Max))
}

// balance lists the classes' shares of the rows that have one, at most 20, the most frequent ones.
func balance(d *data.Description) string {
	classes := slices.Clone(d.Balance)
	rows := int64(0)
	for _, c := range classes {
		rows += c.Rows
	}
	const most = 20
	rest := ""
	if len(classes) > most {
		slices.SortStableFunc(classes, func(a, b data.ClassCount) int { return cmp.Compare(b.Rows, a.Rows) })
		rest = fmt.Sprintf(", and %d more", len(classes)-most)
		classes = classes[:most]
	}
	words := make([]string, len(classes))
	for i, c := range classes {
		words[i] = fmt.Sprintf("%s %.1f %%", plain(c.Name), 100*float64(c.Rows)/float64(max(rows, 1)))
	}
	return strings.Join(words, ", ") + rest
}

// A namedSet is one of a job's data sets.
type namedSet struct {
	name string
	rows data.Dataset
}

// parts lists the data sets that there are.
func parts(s *data.Splits) (out []namedSet) {
	for _, p := range []namedSet{{"train", s.Measured()}, {"valid", s.Valid}, {"test", s.Test}} {
		if p.rows != nil {
			out = append(out, p)
		}
	}
	return out
}

// className is what the source calls class c.
func className(spec trivium.LabelSpec, c int) string {
	if c < len(spec.Names) {
		return spec.Names[c]
	}
	return strconv.Itoa(c)
}
