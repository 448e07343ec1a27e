package data

import (
	"cmp"
	"context"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/quantity"
)

func (t *tableFile) fit(ctx context.Context, f fitting) (*Transform, error) {
	d := &f.desc
	if err := t.layOut(d, f.unlabelled); err != nil {
		return nil, err
	}
	drop := d.Missing == "drop"
	if drop && t.bytes() > f.budget {
		return nil, setting("missing", "dropping rows needs the table in memory, which takes %s of the %s allowed; use mean or zero, or a machine with more memory; in a program, a larger data.Options.Budget",
			quantity.Bytes(t.bytes()), quantity.Bytes(f.budget))
	}
	scaled := d.Scale != "" && d.Scale != "none"
	if err := t.scan(ctx, f.from, f.to, scaled || d.Missing == "mean", drop, f.budget, stop); err != nil {
		return nil, err
	}
	tr := &Transform{Version: TransformVersion, Kind: KindTable, Missing: cmp.Or(d.Missing, "error"), Scale: d.Scale}
	if i := slices.IndexFunc(t.p.roles, func(r role) bool { return r.kind == roleWeight }); i >= 0 {
		tr.Weight = t.p.names[i] // the job may have its number, and later files are matched by name
	}
	if t.numbered() {
		tr.Numbered = len(t.p.names)
	}
	t.freeze(drop)
	if err := t.fitColumns(tr, d); err != nil {
		return nil, err
	}
	if err := t.fitLabels(tr, f); err != nil {
		return nil, err
	}
	_, err := tr.Encode() // before training, not at its first checkpoint
	return tr, err
}

// freeze gives categories and text labels their final codes. Where incomplete rows are dropped, what only they hold has none.
func (t *tableFile) freeze(drop bool) {
	p := t.p
	if p.buckets == 0 && p.categories > 0 {
		final := make([][]int32, p.categories)
		for c, d := range p.dicts {
			final[c] = d.freeze(append(t.used[c], false)) // never nil, which would keep all
		}
		if t.raw != nil {
			for i, code := range t.raw.codes {
				if code >= 0 {
					t.raw.codes[i] = final[i%p.categories][code]
				}
			}
		}
	}
	if p.labels != nil {
		var keep []bool
		if drop { // then all rows are in memory
			keep = make([]bool, len(p.labels.names))
			for row, v := range t.raw.label {
				if v == v && !t.raw.incomplete(p, row) {
					keep[int32(v)] = true
				}
			}
		}
		final := p.labels.freeze(keep)
		if t.raw != nil {
			for i, v := range t.raw.label {
				if v == v {
					t.raw.label[i] = float32(final[int32(v)])
				}
			}
		}
	}
}

// fitColumns lists the columns: numbers and one-hot columns in the order of the file, then hashed ones.
func (t *tableFile) fitColumns(tr *Transform, d *trivium.Data) error {
	p, next := t.p, 0
	hashed := 0
	for i, r := range p.roles {
		c := Column{Name: p.names[i], From: next}
		switch r.kind {
		case roleNumber:
			c.Kind, c.Scale = Number, 1
			t.fitNumber(&c, r.at, d)
			next++
		case roleCategory:
			if p.buckets > 0 {
				hashed++
				continue
			}
			c.Kind, c.Categories = OneHot, p.dicts[r.at].names
			next += len(c.Categories)
		default:
			continue
		}
		tr.Columns = append(tr.Columns, c)
	}
	for i, r := range p.roles {
		if r.kind == roleCategory && p.buckets > 0 {
			tr.Columns = append(tr.Columns, Column{Name: p.names[i], From: next, Kind: Hashed, Buckets: p.buckets})
		}
	}
	width := int64(next)
	form := trivium.Dense
	if hashed > 0 {
		width += int64(p.buckets)
		form = trivium.CSR
	} else if p.categories > 0 && next > maxDense {
		form = trivium.CSR
	}
	if width > maxWidth {
		return setting("hash", "%d outputs are more than %d", width, maxWidth)
	}
	if width == 0 {
		return t.noInputs()
	}
	tr.Schema.Inputs = []trivium.InputSpec{{Name: "x", Form: form, Shape: []int{int(width)}}}
	return nil
}

// noInputs says that the label has no column beside it.
func (t *tableFile) noInputs() *Error {
	e := fault(t.fileName(), "no column is left to learn from")
	if t.oneColumn() {
		e.Msg = "there is one column alone, and none to learn from: " + separators
	}
	return e
}

const separators = "a comma, a tab or a semicolon separates columns"

// oneColumn reports whether a file of text has one column alone, as others are separated by something that is none.
func (t *tableFile) oneColumn() bool {
	c, ok := t.tableReader.(*csvFile)
	return ok && len(c.names) == 1
}

func (t *tableFile) fitNumber(c *Column, at int, d *trivium.Data) {
	if t.stats == nil {
		return
	}
	s := &t.stats[at]
	if d.Missing == "mean" && s.n > 0 {
		c.Fill = float32(s.mean)
	}
	var spread float64
	switch d.Scale {
	case "standard":
		c.Mean, spread = float32(s.mean), s.deviation()
	case "minmax":
		if s.n > 0 {
			c.Mean, spread = float32(s.min), s.max-s.min
		}
	default:
		return
	}
	c.Scale = 0
	if inv := 1 / spread; spread > 0 && finite32(inv) {
		c.Scale = float32(inv)
	}
}

// noLabels says that nothing tells the classes.
func (t *tableFile) noLabels(column string) error {
	if t.raw != nil && slices.ContainsFunc(t.raw.label, func(v float32) bool { return v == v }) {
		return setting("train", "no rows are left to train on: each lacks a value, and --missing drop leaves such rows out")
	}
	return fault(t.fileName(), "column %q has no label in the rows to train on: in each it is missing, or the row is dropped", column)
}

func (t *tableFile) fitLabels(tr *Transform, f fitting) error {
	p := t.p
	if !p.hasLabel {
		return nil
	}
	for i, r := range p.roles {
		if r.kind == roleLabel {
			tr.Label.Column = p.names[i]
		}
	}
	if p.labels == nil {
		spec, bad, err := t.set.spec(f.labels, f.desc.Classes)
		if err != nil {
			return t.at(err, bad)
		}
		if spec.Kind == trivium.Class && spec.Width == 0 {
			return t.noLabels(tr.Label.Column)
		}
		tr.Schema.Labels = spec
		return nil
	}
	names := p.labels.names
	if len(names) == 0 {
		return t.noLabels(tr.Label.Column)
	}
	if n := f.desc.Classes; n > 0 && len(names) != n {
		return t.declared(n, names)
	}
	if f.labels == LabelsReal {
		return fault(t.fileName(), "column %q holds names, and the model wants numbers as labels", tr.Label.Column)
	}
	tr.Label.Text = true
	tr.Schema.Labels = trivium.LabelSpec{Kind: trivium.Class, Width: len(names), Names: names}
	return nil
}

// declared refuses n classes where labels are other names: what the others would be called nobody knows.
func (t *tableFile) declared(n int, names []string) *Error {
	return fault(t.fileName(), "%d classes are declared, and the labels have %s: %s; leave --classes out, or write the labels as the numbers 0 to %d",
		n, quantity.Count(len(names), "value"), listNames(names), n-1)
}
