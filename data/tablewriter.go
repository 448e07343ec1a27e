package data

import (
	"context"

	"github.com/trivium-ml/trivium"
)

// A tableWriter turns raw rows into a batch's, as a transform says.
type tableWriter struct {
	p       *plan
	schema  trivium.Schema // without labels, where the file has none
	labels  labelWriter
	numbers []*Column // by place among the numbers
	hots    []*Column // by place among the categories
	plain   bool      // numbers need nothing but a copy
}

func newTableWriter(tr *Transform, p *plan) *tableWriter {
	w := &tableWriter{p: p, schema: tr.Schema, numbers: make([]*Column, p.numbers), hots: make([]*Column, p.categories), plain: true}
	columns := columnsByName(p.names)
	for i := range tr.Columns {
		c := &tr.Columns[i]
		r := p.roles[columns[c.Name]]
		if c.Kind == Number {
			w.numbers[r.at] = c
			w.plain = w.plain && c.Mean == 0 && c.Scale == 1
		} else {
			w.hots[r.at] = c
		}
	}
	w.plain = w.plain && !p.missing
	if !p.hasLabel {
		w.schema.Labels = trivium.LabelSpec{}
	}
	w.labels = newLabelWriter(&w.schema.Labels)
	if p.labels != nil {
		w.labels.classes = &classIndex{dense: true, classes: len(p.labels.names)}
	}
	return w
}

func (w *tableWriter) rowBytes() int64 {
	if in := &w.schema.Inputs[0]; in.Form == trivium.Dense {
		return 4 * int64(in.Columns())
	}
	return 8 * int64(w.p.numbers+w.p.categories+2)
}

// all makes b the rows of raw, whose memory it takes over where it can. It returns the index of a label that is no class, or −1.
func (w *tableWriter) all(ctx context.Context, b *trivium.Batch, raw *rawRows) (bad int, err error) {
	if w.p.categories > 0 || !w.inPlace() {
		return w.append(b, raw), nil
	}
	const step = 256 // rows
	err = parallel(ctx, int64(raw.n), step, func(from, to int64) error {
		part := raw.slice(w.p, int(from), int(to))
		w.scale(part.numbers, &part)
		return nil
	})
	if err != nil {
		return -1, err
	}
	b.Rows = raw.n
	b.Inputs[0].Values = raw.numbers
	return w.appendRest(b, raw), nil
}

// inPlace reports whether the numbers stand in the file's order already.
func (w *tableWriter) inPlace() bool {
	for i, c := range w.numbers {
		if c.From != i {
			return false
		}
	}
	return true
}

func (w *tableWriter) appendRest(b *trivium.Batch, raw *rawRows) int {
	if w.p.hasWeight {
		b.Weights = append(b.Weights, raw.weight...)
	}
	if !w.p.hasLabel {
		return -1
	}
	return w.labels.append(&b.Labels, raw.label)
}

// scale writes the scaled numbers of raw to dst, which may be the same memory.
func (w *tableWriter) scale(dst []float32, raw *rawRows) {
	n := w.p.numbers
	if w.plain {
		if n > 0 && len(raw.numbers) > 0 && &dst[0] != &raw.numbers[0] {
			copy(dst, raw.numbers)
		}
		return
	}
	for row := range raw.n {
		out := dst[row*n : (row+1)*n]
		for i, v := range raw.numbers[row*n : (row+1)*n] {
			out[i] = w.numbers[i].apply(v)
		}
	}
}

// apply is what a number becomes; NaN stands for a missing one.
func (c *Column) apply(v float32) float32 {
	if v != v {
		v = c.Fill
	}
	return float32(v-c.Mean) * c.Scale
}

// append adds the rows of raw to b. It returns the index of a label that is no class, or −1.
func (w *tableWriter) append(b *trivium.Batch, raw *rawRows) int {
	b.Rows += raw.n
	in := &b.Inputs[0]
	switch {
	case in.Form == trivium.CSR:
		w.appendSparse(in, raw)
	case w.p.categories == 0 && w.inPlace():
		at := len(in.Values)
		in.Values = extend(in.Values, len(raw.numbers))
		w.scale(in.Values[at:], raw)
	default:
		w.appendDense(in, raw)
	}
	return w.appendRest(b, raw)
}

func (w *tableWriter) appendDense(in *trivium.Input, raw *rawRows) {
	width, at := in.RowLen(), len(in.Values)
	in.Values = extend(in.Values, raw.n*width)
	clear(in.Values[at:])
	n, k := w.p.numbers, w.p.categories
	for row := range raw.n {
		out := in.Values[at+row*width:][:width]
		for i, v := range raw.numbers[row*n : (row+1)*n] {
			out[w.numbers[i].From] = w.numbers[i].apply(v)
		}
		for i, code := range raw.codes[row*k : (row+1)*k] {
			if code >= 0 {
				out[w.hots[i].From+int(code)] = 1
			}
		}
	}
}

// appendSparse leaves out zeros. Hashed columns that share a bucket add up.
func (w *tableWriter) appendSparse(in *trivium.Input, raw *rawRows) {
	n, k := w.p.numbers, w.p.categories
	if len(in.Ptr) == 0 {
		in.Ptr = append(in.Ptr, 0)
	}
	for row := range raw.n {
		start := len(in.Index)
		for i, v := range raw.numbers[row*n : (row+1)*n] {
			if x := w.numbers[i].apply(v); x != 0 {
				in.Index, in.Values = append(in.Index, int32(w.numbers[i].From)), append(in.Values, x)
			}
		}
		for i, code := range raw.codes[row*k : (row+1)*k] {
			if code >= 0 {
				in.Index, in.Values = append(in.Index, int32(w.hots[i].From)+code), append(in.Values, 1)
			}
		}
		end := start + sortEntries(in.Index[start:], in.Values[start:])
		in.Index, in.Values = in.Index[:end], in.Values[:end]
		in.Ptr = append(in.Ptr, int64(end))
	}
}

// sortEntries sorts a row's few entries by index, adding up those that share one, and returns how many are left.
func sortEntries(index []int32, values []float32) int {
	for i := 1; i < len(index); i++ {
		for j := i; j > 0 && index[j] < index[j-1]; j-- {
			index[j], index[j-1] = index[j-1], index[j]
			values[j], values[j-1] = values[j-1], values[j]
		}
	}
	n := 0
	for i := range index {
		if n > 0 && index[n-1] == index[i] {
			values[n-1] += values[i]
			continue
		}
		index[n], values[n] = index[i], values[i]
		n++
	}
	return n
}
