package data

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
)

// A rowRange is the rows [from, to).
type rowRange struct{ from, to int64 }

// oneRange is the rows [from, to) where several ranges may be.
func oneRange(from, to int64) iter.Seq[rowRange] {
	return func(yield func(rowRange) bool) { yield(rowRange{from, to}) }
}

// A cutPiece is one split: rows of the main file, a file of its own, or what the source's convention gives it.
type cutPiece struct {
	rows *rowRange
	file string
}

type cuts struct {
	train, valid, test cutPiece
	notes              []string
}

func (c *cuts) files() string { return cmp.Or(c.train.file, c.valid.file, c.test.file) }

// Shares of a single file without a convention of its own. Of the 10,000 test images of MNIST they make the customary 8,000 and 2,000.
const trainShare = 0.8

var rangeSyntax = regexp.MustCompile(`^(\d*):(\d*)$`)

// namesFile reports whether a split's text is a file, not a range or a fraction.
func namesFile(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return text != "" && err != nil && !rangeSyntax.MatchString(text)
}

// namesRows reports whether a split's text is a range or a fraction, of the main file.
func namesRows(text string) bool { return text != "" && !namesFile(text) }

// cut decides which rows each split gets. others says that the source has validation or test rows of its own, whole that nothing is trained.
func cut(d *trivium.Data, rows int64, others, whole bool) (cuts, error) {
	var c cuts
	pieces := []struct {
		field, text string
		piece       *cutPiece
	}{{"train", d.Train, &c.train}, {"valid", d.Valid, &c.valid}, {"test", d.Test, &c.test}}
	named, share := 0, 0.0
	var fractions, ranges int
	for _, p := range pieces {
		if p.text == "" {
			continue
		}
		named++
		if m := rangeSyntax.FindStringSubmatch(p.text); m != nil {
			r, err := parseRange(p.field, p.text, m[1], m[2], rows)
			if err != nil {
				return c, err
			}
			p.piece.rows = &r
			ranges++
			continue
		}
		f, err := strconv.ParseFloat(p.text, 64)
		if err != nil {
			p.piece.file = p.text
			continue
		}
		if !(f > 0 && f <= 1) {
			return c, setting(p.field, "want a fraction of more than 0 and at most 1, a range such as 0:8000, or a file; found %q", p.text)
		}
		fractions++
		share += f
	}
	if fractions > 0 && ranges > 0 {
		return c, setting("split", "give either fractions or ranges of rows, not both: %s", describeCut(d))
	}
	if share > 1+1e-9 {
		return c, setting("split", "the fractions add up to %.6g, more than 1: %s", share, describeCut(d))
	}
	if named == 0 {
		if others {
			c.train.rows = &rowRange{0, rows}
		} else {
			at := portion(trainShare, rows)
			c.train.rows, c.test.rows = &rowRange{0, at}, &rowRange{at, rows}
			if at == rows {
				c.test.rows = nil // what is measured on none is no number
				c.notes = append(c.notes, fmt.Sprintf("with %d rows in all there is none left to test on: name some with --test", rows))
			}
		}
		return c, nil
	}
	// Fractions follow one another from the start; what training is not told goes before the others.
	done := 0.0
	if d.Train == "" && fractions > 0 {
		done = 1 - share
	}
	for _, p := range pieces {
		f, err := strconv.ParseFloat(p.text, 64)
		if err != nil || p.piece.rows != nil {
			continue
		}
		p.piece.rows = &rowRange{portion(done, rows), portion(done+f, rows)}
		if p.piece.rows.from == p.piece.rows.to {
			return c, setting(p.field, "the fraction %s of %d rows is none of them", p.text, rows)
		}
		done += f
	}
	if d.Train == "" {
		if err := c.rest(rows); err != nil && !whole {
			return c, err
		}
	}
	if r := c.train.rows; r != nil && r.to-r.from < rows && d.Valid == "" && d.Test == "" && !others && !whole {
		c.notes = append(c.notes, fmt.Sprintf("of %d rows, %d:%d are trained on, and the others not used at all: name some with --test", rows, r.from, r.to))
	}
	return c, nil
}

// portion is the row at a fraction of the rows.
func portion(f float64, rows int64) int64 {
	return min(rows, int64(math.Round(float64(f*float64(rows)))))
}

func parseRange(field, text, from, to string, rows int64) (r rowRange, err error) {
	r.to = rows
	if from != "" {
		if r.from, err = strconv.ParseInt(from, 10, 64); err != nil {
			return r, setting(field, "row %q is no number that a file can have", from)
		}
	}
	if to != "" {
		if r.to, err = strconv.ParseInt(to, 10, 64); err != nil {
			return r, setting(field, "row %q is no number that a file can have", to)
		}
	}
	if r.from >= r.to || r.to > rows {
		return r, setting(field, "the range %q is empty or goes beyond the %d rows there are", text, rows)
	}
	return r, nil
}

// rest gives training the rows that no other split has, if they are one piece.
func (c *cuts) rest(rows int64) error {
	var taken []rowRange
	for _, p := range []cutPiece{c.valid, c.test} {
		if p.rows != nil {
			taken = append(taken, *p.rows)
		}
	}
	slices.SortFunc(taken, func(a, b rowRange) int { return cmp.Compare(a.from, b.from) })
	var free []rowRange
	at := int64(0)
	for _, t := range append(taken, rowRange{rows, rows}) {
		if t.from > at {
			free = append(free, rowRange{at, t.from})
		}
		at = max(at, t.to)
	}
	switch len(free) {
	case 0:
		return nil // nothing is trained on: Open refuses that unless a transform is given
	case 1:
		c.train.rows = &free[0]
		return nil
	}
	return setting("train", "valid and test leave %d pieces of the %d rows; name the rows to train on", len(free), rows)
}

// shared says which splits have rows in common: what is measured on those is no measure of other rows.
func (c *cuts) shared() (notes []string) {
	pieces := []struct {
		name string
		rows *rowRange
	}{{"train", c.train.rows}, {"valid", c.valid.rows}, {"test", c.test.rows}}
	for i, a := range pieces {
		for _, b := range pieces[i+1:] {
			if a.rows == nil || b.rows == nil {
				continue
			}
			if from, to := max(a.rows.from, b.rows.from), min(a.rows.to, b.rows.to); from < to {
				notes = append(notes, fmt.Sprintf("rows %d:%d are both in %s and in %s", from, to, a.name, b.name))
			}
		}
	}
	return notes
}

// copies says which splits are whole files that have the rows of an earlier one's file: the same file given twice, or a copy of it.
func (c *cuts) copies(main rowFile, others map[string]rowFile) (notes []string) {
	pieces := []struct {
		name string
		f    rowFile
	}{{"train", main}, {"valid", others[c.valid.file]}, {"test", others[c.test.file]}}
	if r := c.train.rows; r == nil || r.from == r.to {
		pieces = pieces[1:]
	}
	for i, a := range pieces {
		for _, b := range pieces[i+1:] {
			if a.f != nil && b.f != nil && a.f.sum() == b.f.sum() && a.f.numRows() == b.f.numRows() {
				notes = append(notes, fmt.Sprintf("the rows in %s are in %s too: %s has them", a.name, b.name, b.f.fileName()))
			}
		}
	}
	return notes
}

func describeCut(d *trivium.Data) string {
	var parts []string
	for _, p := range []struct{ name, text string }{{"train", d.Train}, {"valid", d.Valid}, {"test", d.Test}} {
		if p.text != "" {
			parts = append(parts, p.name+" "+p.text)
		}
	}
	return strings.Join(parts, ", ")
}
