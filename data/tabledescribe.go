package data

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
)

func (t *tableFile) describe(ctx context.Context, d *Description, f fitting) error {
	d.Kind = KindTable
	text, err := t.textColumns()
	if err != nil {
		return err
	}
	f.desc.Hash = 0
	if err := t.layOut(&f.desc, true); err != nil {
		return err
	}
	p := t.p
	var unlisted []string // columns of text that training would refuse: a look at the data does not ask for flags first
	for i := range p.roles {
		if text[i] && p.roles[i].kind == roleNumber {
			p.roles[i].kind = roleCategory
			unlisted = append(unlisted, listed(p.names[i]))
		}
	}
	t.number()
	p.missing, p.drop, p.apart = true, true, true
	p.rounded = &roundings{columns: map[int]rounding{}}
	counts := make([]columnStats, len(p.roles)) // of all but number columns
	for i := range counts {
		counts[i] = columnStats{min: math.Inf(1), max: math.Inf(-1)}
	}
	texts := map[int32]int64{} // rows by text label
	drops, left, next := f.desc.Missing == "drop", &t.set, int64(0)
	if drops { // classes are those of the rows that stay
		left = new(labelSet)
	}
	mistaken := make([]int64, len(p.roles))
	t.watch = func(r *rawRows) {
		for row := range r.n {
			absent, wrong := false, false
			for i, role := range p.roles {
				switch v := r.value(p, role, row); {
				case role.kind == roleSkip || v == v:
				case r.absent[row*len(p.roles)+i]:
					absent = true
				default:
					wrong = true
					mistaken[i]++
				}
			}
			if absent {
				d.Incomplete++
			}
			if wrong {
				d.Mistaken++
			}
		}
		for _, v := range r.numbers {
			if v == v && v != 0 {
				d.Nonzero++
			}
		}
		for i, role := range p.roles {
			if role.kind == roleSkip || role.kind == roleNumber {
				continue
			}
			for row := range r.n {
				counts[i].raw(r.value(p, role, row))
				if role.kind == roleCategory && r.codes[row*p.categories+role.at] >= 0 {
					d.Nonzero++
				}
			}
		}
		for row, v := range r.label {
			switch {
			case v != v || drops && r.incomplete(p, row):
			case p.labels != nil:
				texts[int32(v)]++
			case drops:
				left.add(v, next+int64(row))
			}
		}
		next += int64(r.n)
	}
	if err := t.scan(ctx, 0, t.numRows(), true, false, -1, d.problem); err != nil {
		return err
	}
	if p.numbers+p.categories == 0 {
		d.Notes = append(d.Notes, t.noInputs().Msg)
	}
	if c, ok := t.tableReader.(*csvFile); ok {
		d.Notes = append(d.Notes, c.firstLineNotes()...)
	}
	d.Notes = slices.Concat(d.Notes, t.indexNotes(), t.labelNote(), textNote(unlisted), p.roundingNotes(t.numRows()))
	d.Shape, d.Cells = []int{p.numbers + p.categories}, t.numRows()*int64(p.numbers+p.categories)
	var empty []string
	for i, role := range p.roles {
		name := p.names[i]
		var c ColumnDescription
		switch role.kind {
		case roleNumber:
			c = t.stats[role.at].describe(name, "number")
		case roleCategory:
			c = ColumnDescription{Name: name, Kind: "text", Count: counts[i].n, Missing: counts[i].missing, Distinct: len(p.dicts[role.at].names)}
		case roleLabel:
			c = counts[i].describe(name, "label")
			d.Label = name
			if p.labels != nil {
				c.Min, c.Max, c.Mean, c.Distinct = 0, 0, 0, len(p.labels.names)
			}
		case roleWeight:
			c = counts[i].describe(name, "weight")
		case roleSkip:
			c = ColumnDescription{Name: name, Kind: "dropped"}
		}
		c.Missing, c.Mistaken = c.Missing-mistaken[i], mistaken[i]
		d.Columns = append(d.Columns, c)
		if c.Count == 0 && (role.kind == roleNumber || role.kind == roleCategory) {
			empty = append(empty, listed(name))
		}
	}
	if len(empty) > 0 && d.ProblemCount == 0 { // else mistakes may be all that a column has
		d.Notes = append(d.Notes, fmt.Sprintf("no row has a value in some columns: --drop %s leaves them out", flagList(empty)))
	}
	if p.hasLabel && p.labels == nil {
		d.balance(left, f, t.at)
	}
	if p.labels != nil {
		d.Labels.Kind = trivium.Class
		for code, name := range p.labels.names {
			if n := texts[int32(code)]; n > 0 {
				d.Balance = append(d.Balance, ClassCount{name, n})
			}
		}
		slices.SortFunc(d.Balance, func(a, b ClassCount) int { return cmp.Compare(a.Name, b.Name) })
		for _, b := range d.Balance {
			d.Labels.Names = append(d.Labels.Names, b.Name)
		}
		d.Labels.Width = len(d.Balance)
		if n := f.desc.Classes; n > 0 && n != d.Labels.Width {
			_ = d.problem(t.declared(n, d.Labels.Names))
		}
	}
	return nil
}

// roundingNotes say of which columns whole numbers lose digits: those of many digits, such as account numbers and seconds since 1970.
func (p *plan) roundingNotes(rows int64) (notes []string) {
	for column, name := range p.names {
		r, ok := p.rounded.columns[column]
		if !ok {
			continue
		}
		note := fmt.Sprintf("column %q: whole numbers of more digits than a number's 32 bits hold, in %d of %d rows: %.0f is read as %.0f, for one", name,
			r.rows, rows, r.least, float32(r.least))
		if p.roles[column].kind == roleNumber {
			note += fmt.Sprintf("; if they name things, list it with --categorical %s, or leave it out with --drop %[1]s", listed(name))
		}
		notes = append(notes, note)
	}
	return notes
}

// value is what a column holds in a row; NaN: nothing.
func (r *rawRows) value(p *plan, role role, row int) float32 {
	switch role.kind {
	case roleNumber:
		return r.numbers[row*p.numbers+role.at]
	case roleCategory:
		if c := r.codes[row*p.categories+role.at]; c >= 0 {
			return float32(c)
		}
	case roleLabel:
		return r.label[row]
	case roleWeight:
		return r.weight[row]
	}
	return nan
}

// raw adds a value that may be missing.
func (s *columnStats) raw(v float32) {
	if v != v {
		s.missing++
		return
	}
	s.one(float64(v))
}
