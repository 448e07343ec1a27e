package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A Table is rows of cells under columns.
type Table struct {
	Name    string // its name in CSV and JSON, and its anchor; lower case, words joined by -. Empty: in HTML alone
	Caption []Span
	Columns []Column
	Rows    []Row
	Notes   []string // below the table, for all of it
	Compact bool     // smaller print, for data below a figure
}

// A Column is what its cells have in common.
type Column struct {
	Name  string
	Group string // columns of one group beside each other get a heading above theirs
	Unit  string // under the name; in CSV and JSON, with it
	Right bool   // its words stand right too, as numbers do, aligned by their digits
	Best  Best   // which of the ranked rows' values is marked
	Bars  bool   // a quiet bar behind each value, as long as its share of the largest
}

// A Best says what is best in a column.
type Best uint8

const (
	NoBest Best = iota
	Highest
	Lowest
)

// A Row is one line of a table.
type Row struct {
	Cells    []Cell
	Heading  string // a line of its own above the row: the rows below it belong together
	Unranked bool   // shown, not ranked: never marked as best
	Muted    bool   // set back: published figures, oversubscribed rows. Never ranked
	Total    bool   // a rule above it
}

// A Cell is a value with how it is written. Use the functions below to make one; the zero Cell is empty.
type Cell struct {
	Spans   []Span   // what is written, for words; for numbers, what follows the number
	Value   *float64 // nil: not a number
	Lo, Hi  *float64 // its interval
	Text    string   // the number as written
	Range   string   // the interval as written
	Missing string   // why there is none: "not measured: no permission for namespaces"
	Notes   []string // footnotes; equal ones in a table share their letter
	Best    bool     // marked as best, whatever the column says
	Rank    int      // place, written before the value; 0: none
}

// A Format writes a number: Digits(0), or whatever suits it. nil: in three significant digits, 21.1k.
type Format func(v float64) string

// Digits writes numbers with so many digits after the point, and commas between thousands.
func Digits(after int) Format {
	return func(v float64) string { return quantity.Grouped(v, after) }
}

// Words is a Cell of text.
func Words(spans ...Span) Cell { return Cell{Spans: spans} }

// Name is a Cell of plain text.
func Name(s string) Cell { return Cell{Spans: []Span{Text(s)}} }

// Number is a Cell of a value. One that is not finite is missing.
func Number(v float64, f Format) Cell {
	if !finite.Is(v) {
		return Missing("not measured")
	}
	return Cell{Value: &v, Text: write(f, v)}
}

// Interval is a Cell of a value between two others: a median with minimum and maximum.
func Interval(v, lo, hi float64, f Format) Cell {
	c := Number(v, f)
	if c.Value == nil || !finite.Is(lo) || !finite.Is(hi) {
		return c
	}
	c.Lo, c.Hi, c.Range = &lo, &hi, between(write(f, lo), write(f, hi))
	return c
}

// between joins two formatted numbers, with their unit once where it is the same.
func between(lo, hi string) string {
	a, unit, found := strings.Cut(lo, " ")
	if b, other, ok := strings.Cut(hi, " "); found && ok && unit == other && !strings.Contains(unit, " ") {
		return a + "–" + b + " " + unit
	}
	if strings.Contains(lo+hi, " ") {
		return lo + " – " + hi
	}
	return lo + "–" + hi
}

func write(f Format, v float64) string {
	if f == nil {
		f = quantity.Short
	}
	return f(v)
}

// Missing is a Cell without a value, and why. Of a long "not installed: looked for spark-submit on PATH" the reason becomes a footnote.
func Missing(why string) Cell { return Cell{Missing: why} }

// Verdict is a Cell with a badge. Of a long "head: reason" the reason becomes a footnote, as of Missing.
func Verdict(t Tone, s string) Cell { return Cell{Spans: []Span{Badge(t, s)}} }

// With returns the cell with a footnote.
func (c Cell) With(note string) Cell {
	c.Notes = append(slices.Clone(c.Notes), note)
	return c
}

// validate says what is wrong with the table's shape.
func (t Table) validate() error {
	for i, r := range t.Rows {
		if len(r.Cells) > len(t.Columns) {
			return fmt.Errorf("report: table %q: row %d has %d cells for %d columns", t.Name, i+1, len(r.Cells), len(t.Columns))
		}
	}
	return nil
}

// best returns, by row, whether the cell of a column is marked. Equal values are all best; a single one is not marked, since it is
// compared with nothing.
func (t Table) best(column int) []bool {
	out := make([]bool, len(t.Rows))
	want := t.Columns[column].Best
	var values []float64
	var at []int
	for i, r := range t.Rows {
		if column >= len(r.Cells) {
			continue
		}
		out[i] = r.Cells[column].Best
		if v := r.Cells[column].Value; v != nil && !math.IsNaN(*v) && !r.Unranked && !r.Muted {
			values, at = append(values, *v), append(at, i)
		}
	}
	if want == NoBest || len(values) < 2 {
		return out
	}
	best := slices.Max(values)
	if want == Lowest {
		best = slices.Min(values)
	}
	for i, v := range values {
		if v == best {
			out[at[i]] = true
		}
	}
	return out
}

// withoutZeros leaves out the columns in which every number is zero, and says which.
func (t Table) withoutZeros() Table {
	drop := make([]bool, len(t.Columns))
	var names []string
	for i, c := range t.Columns {
		numbers := 0
		drop[i] = true
		for _, r := range t.Rows {
			if i >= len(r.Cells) {
				continue
			}
			v := r.Cells[i].Value
			if v == nil || *v != 0 {
				drop[i] = false
			}
			numbers++
		}
		if drop[i] = drop[i] && numbers > 0; drop[i] {
			names = append(names, c.full())
		}
	}
	if len(names) == 0 {
		return t
	}
	out := t
	out.Columns, out.Rows = nil, nil
	for i, c := range t.Columns {
		if !drop[i] {
			out.Columns = append(out.Columns, c)
		}
	}
	for _, r := range t.Rows {
		cells := r.Cells
		r.Cells = nil
		for i, c := range cells {
			if !drop[i] {
				r.Cells = append(r.Cells, c)
			}
		}
		out.Rows = append(out.Rows, r)
	}
	out.Notes = append(slices.Clone(t.Notes), "Zero throughout, and left out: "+strings.Join(names, ", ")+".")
	return out
}

// numeric tells whether a column holds numbers, or would if they were not all missing.
func (t Table) numeric(column int) bool {
	missing := false
	for _, r := range t.Rows {
		if column >= len(r.Cells) {
			continue
		}
		switch c := r.Cells[column]; {
		case c.Value != nil:
			return true
		case len(c.Spans) > 0:
			return false // words first: a column of words
		case c.Missing != "":
			missing = true
		}
	}
	return missing && column > 0
}
