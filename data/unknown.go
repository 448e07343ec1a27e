package data

import "fmt"

// unknown are the categories of a file that no training row had: a model learnt nothing of them, and where all are unknown, such as in a file that
// writes them in other letters, its predictions are about another table.
type unknown struct {
	p     *plan
	next  int64   // row of the file
	rows  []int64 // by category column
	first []int64 // row, by category column
}

func newUnknown(p *plan) *unknown {
	return &unknown{p: p, rows: make([]int64, p.categories), first: make([]int64, p.categories)}
}

// look counts in the next rows.
func (u *unknown) look(r *rawRows) {
	for i, code := range r.codes {
		if code != codeUnknown {
			continue
		}
		column := i % u.p.categories
		if u.rows[column]++; u.rows[column] == 1 {
			u.first[column] = u.next + int64(i/u.p.categories)
		}
	}
	u.next += int64(r.n)
}

// notes say of which columns of t there were some.
func (u *unknown) notes(t *tableFile) (notes []string) {
	for i, r := range u.p.roles {
		if r.kind != roleCategory || u.rows[r.at] == 0 {
			continue
		}
		var place Error
		t.locate(&place, u.first[r.at])
		where := fmt.Sprintf("line %d", place.Line)
		if place.Line == 0 {
			where = fmt.Sprintf("row %d", place.Row)
		}
		notes = append(notes, fmt.Sprintf("%s: column %q has categories that no training row had, in %d of %d rows, first in %s: they count as none",
			t.fileName(), u.p.names[i], u.rows[r.at], u.next, where))
	}
	return notes
}
