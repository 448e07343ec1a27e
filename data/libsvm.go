package data

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"

	"github.com/trivium-ml/trivium"
)

// A sparseFile is a libsvm file: lines of a label and index:value pairs, indices from 1 and ascending.
type sparseFile struct {
	x          *lineIndex
	unlabelled bool

	seen   bool // the fields below are known
	max    int32
	labels labelSet
	rows   *sparseRows // all, once they are in memory
}

// sparseRows are decoded rows. ptr has one more element than label.
type sparseRows struct {
	ptr    []int64
	index  []int32 // from 0
	values []float32
	label  []float32
	max    int32 // the highest index + 1
}

func openLibsvm(f *file) (*sparseFile, error) {
	start, err := textStart(f)
	if err != nil {
		return nil, err
	}
	x, err := indexLines(f, lineSyntax{comment: '#', count: ':'}, start, 1)
	if err != nil {
		return nil, err
	}
	if x.rows == 0 {
		return nil, fault(f.name, "there are no rows in it")
	}
	s := &sparseFile{x: x}
	r, err := x.read(nil, 0, 1)
	if err != nil {
		return nil, err
	}
	line, _ := r.row()
	first, _ := nextToken(trim(line))
	s.unlabelled = bytes.IndexByte(first, ':') >= 0
	return s, nil
}

func (s *sparseFile) fileName() string { return s.x.f.name }
func (s *sparseFile) numRows() int64   { return s.x.rows }
func (s *sparseFile) sum() uint32      { return s.x.crc }
func (s *sparseFile) close() error     { return s.x.f.close() }

// bytes returns the memory that all rows take.
func (s *sparseFile) bytes() int64 { return 8*s.x.end.marks + 16*s.x.rows }

// decode appends the rows [from, to) to dst. Mistakes go to bad, which says whether to go on with the next row.
func (s *sparseFile) decode(buf []byte, dst *sparseRows, from, to int64, width int, bad func(*Error) error) ([]byte, error) {
	r, err := s.x.read(buf, from, to)
	if err != nil {
		return buf, err
	}
	if len(dst.ptr) == 0 {
		dst.ptr = append(dst.ptr, int64(len(dst.index)))
	}
	for range to - from {
		line, ok := r.row()
		if !ok {
			return r.buf, r.failure()
		}
		if e := s.decodeRow(dst, line, width); e != nil {
			e.File, e.Line = s.x.f.name, r.line
			if err := bad(e); err != nil {
				return r.buf, err
			}
		}
		dst.ptr = append(dst.ptr, int64(len(dst.index)))
	}
	return r.buf, nil
}

func (s *sparseFile) decodeRow(dst *sparseRows, p []byte, width int) *Error {
	label := float32(math.NaN())
	p = trim(p)
	if !s.unlabelled {
		token, rest := nextToken(p)
		v, ok := parseNumber(token)
		if !ok || !finite32(v) {
			dst.label = append(dst.label, label)
			if bytes.IndexByte(token, ':') >= 0 {
				return fault("", "want a label first, found %q", token)
			}
			return fault("", "want one finite number as label, found %q", token)
		}
		label, p = float32(v), rest
	}
	dst.label = append(dst.label, label)
	last := int64(0)
	for len(p) > 0 && p[0] != '#' {
		i, index := 0, int64(0)
		for i < len(p) && p[i]-'0' <= 9 && i < 12 {
			index = index*10 + int64(p[i]-'0')
			i++
		}
		if i == 0 || i >= len(p) || p[i] != ':' {
			if token, rest := nextToken(p); bytes.HasPrefix(token, []byte("qid:")) {
				p = rest
				continue
			} else {
				return fault("", "want index:value, found %q", token)
			}
		}
		var token []byte
		token, p = nextToken(p[i+1:])
		var v float64
		if len(token) == 1 && token[0]-'0' <= 9 {
			v = float64(token[0] - '0')
		} else {
			var ok bool
			if v, ok = parseNumber(token); !ok {
				return fault("", "index %d: want a number after the colon, found %q", index, token)
			}
			if !finite32(v) {
				return fault("", "index %d: %s is not a finite number of 32 bits", index, token)
			}
		}
		switch {
		case index == 0:
			return fault("", "index 0: the indices of libsvm files start at 1; scikit-learn writes such with dump_svmlight_file(..., zero_based=False)")
		case index <= last:
			return fault("", "index %d follows %d: want ascending indices", index, last)
		case width > 0 && index > int64(width):
			return fault("", "index %d is beyond the width of %d columns", index, width)
		case index > math.MaxInt32:
			return fault("", "index %d is beyond the largest, %d", index, math.MaxInt32)
		}
		last = index
		dst.index = append(dst.index, int32(index-1))
		dst.values = append(dst.values, float32(v))
	}
	dst.max = max(dst.max, int32(last))
	return nil
}

// nextToken cuts p at its first blank and returns what follows, without leading blanks.
func nextToken(p []byte) (token, rest []byte) {
	i := 0
	for i < len(p) && !blank(p[i]) {
		i++
	}
	token = p[:i]
	for i < len(p) && blank(p[i]) {
		i++
	}
	return token, p[i:]
}

// stop ends decoding at the first mistake.
func stop(e *Error) error { return e }

// scan decodes every row once: into memory, if that is within the budget.
func (s *sparseFile) scan(ctx context.Context, width int, budget int64) error {
	resident := s.bytes() <= budget
	if s.seen && (s.rows != nil || !resident) {
		return nil
	}
	var all *sparseRows
	blocks := int64(len(s.x.starts))
	if resident {
		all = &sparseRows{
			ptr: make([]int64, s.x.rows+1), index: make([]int32, s.x.end.marks), values: make([]float32, s.x.end.marks),
			label: make([]float32, s.x.rows),
		}
	}
	counts := make([]int64, blocks) // entries of each block, if resident
	var mu sync.Mutex
	err := parallel(ctx, blocks, 4, func(lo, hi int64) error {
		var scratch sparseRows
		var buf []byte
		var set labelSet
		for b := lo; b < hi; b++ {
			from, to := b*blockRows, min((b+1)*blockRows, s.x.rows)
			dst := &scratch
			*dst = sparseRows{ptr: dst.ptr[:0], index: dst.index[:0], values: dst.values[:0], label: dst.label[:0], max: dst.max}
			if resident { // the colons before a block are at least as many as its entries' places
				m0, m1 := s.x.starts[b].marks, s.blockEnd(b).marks
				dst.index, dst.values, dst.label = all.index[m0:m0:m1], all.values[m0:m0:m1], all.label[from:from:to]
			}
			var err error
			if buf, err = s.decode(buf, dst, from, to, width, stop); err != nil {
				return err
			}
			if resident {
				copy(all.ptr[from+1:to+1], dst.ptr[1:])
				counts[b] = int64(len(dst.index))
			}
			if !s.unlabelled {
				for i, v := range dst.label {
					set.add(v, from+int64(i))
				}
			}
			scratch.max = dst.max
		}
		mu.Lock()
		defer mu.Unlock()
		s.max = max(s.max, scratch.max)
		s.labels.merge(&set)
		return nil
	})
	if err != nil {
		return err
	}
	s.seen = true
	if resident {
		s.compact(all, counts)
		s.rows = all
	}
	return nil
}

func (s *sparseFile) blockEnd(b int64) lineMark {
	if b+1 < int64(len(s.x.starts)) {
		return s.x.starts[b+1]
	}
	return s.x.end
}

// compact closes the gaps that blocks with fewer entries than colons left, and makes offsets count from the start.
func (s *sparseFile) compact(all *sparseRows, counts []int64) {
	at := int64(0)
	for b, n := range counts {
		m := s.x.starts[b].marks
		if m != at {
			copy(all.index[at:at+n], all.index[m:m+n])
			copy(all.values[at:at+n], all.values[m:m+n])
		}
		for r := int64(b) * blockRows; r < min(int64(b+1)*blockRows, s.x.rows); r++ {
			all.ptr[r+1] += at
		}
		at += n
	}
	all.index, all.values = all.index[:at], all.values[:at]
}

func (s *sparseFile) fit(ctx context.Context, f fitting) (*Transform, error) {
	width := f.desc.Columns
	if err := s.scan(ctx, width, f.budget); err != nil {
		return nil, err
	}
	seen := s.max
	for _, o := range f.others {
		if o, ok := o.(*sparseFile); ok {
			if err := o.scan(ctx, width, f.budget); err != nil {
				return nil, err
			}
			seen = max(seen, o.max)
		}
	}
	if width == 0 {
		width = int(seen)
	}
	if width == 0 {
		return nil, fault(s.x.f.name, "no row has an index:value, so that there is no column to learn from")
	}
	t := &Transform{Version: TransformVersion, Kind: KindSparse, Schema: trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{width}}},
	}}
	if !s.unlabelled {
		spec, bad, err := s.labels.spec(f.labels, f.desc.Classes)
		if err != nil {
			return nil, s.at(err, bad)
		}
		t.Schema.Labels = spec
	}
	return t, nil
}

// at adds the place of a row to an error about it.
func (s *sparseFile) at(err error, row int64) error {
	var e *Error
	if row >= 0 && errors.As(err, &e) {
		e.File, e.Line = s.x.f.name, s.x.lineOf(row)
	}
	return err
}

func (s *sparseFile) dataset(ctx context.Context, t *Transform, budget int64) (Dataset, func(int64) int64, error) {
	if t.Kind != KindSparse {
		return nil, nil, fault(s.x.f.name, "it holds libsvm rows, and the model was trained on %s", t.rows())
	}
	schema := t.Schema
	if s.unlabelled {
		schema.Labels = trivium.LabelSpec{}
	}
	width := schema.Inputs[0].Columns()
	labels := newLabelWriter(&schema.Labels)
	if s.bytes() > budget {
		return &stream{
			schema: schema, rows: s.x.rows, rowBytes: max(1, s.bytes()/s.x.rows), budget: budget,
			read: s.reader(width, labels),
		}, nil, nil
	}
	if err := s.scan(ctx, width, budget); err != nil {
		return nil, nil, err
	}
	if int(s.max) > width {
		return nil, nil, s.tooWide(ctx, width)
	}
	all := s.rows
	s.rows = nil // the data set's from here on
	b := trivium.Batch{Rows: int(s.x.rows), Inputs: []trivium.Input{{
		Name: schema.Inputs[0].Name, Form: trivium.CSR,
		Shape: schema.Inputs[0].Shape, Values: all.values, Index: all.index, Ptr: all.ptr,
	}}}
	if bad := labels.append(&b.Labels, all.label); bad >= 0 {
		return nil, nil, s.at(labels.refuse("", all.label[bad]), int64(bad))
	}
	return newMemory(schema, b), nil, nil
}

// tooWide finds the first row with an index beyond the width.
func (s *sparseFile) tooWide(ctx context.Context, width int) error {
	for from := int64(0); from < s.x.rows; from += blockRows {
		var rows sparseRows
		if _, err := s.decode(nil, &rows, from, min(from+blockRows, s.x.rows), width, stop); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return fault(s.x.f.name, "the file changed while it was read")
}

// reader returns the Read of the file's stream.
func (s *sparseFile) reader(width int, labels labelWriter) func(context.Context, *trivium.Batch, int64, int64) error {
	var pool sync.Pool // of *scratch
	type scratch struct {
		buf  []byte
		rows sparseRows
	}
	return func(_ context.Context, dst *trivium.Batch, from, to int64) error {
		w, ok := pool.Get().(*scratch)
		if !ok {
			w = new(scratch)
		}
		defer pool.Put(w)
		in := &dst.Inputs[0]
		rows := sparseRows{ptr: in.Ptr[:0], index: in.Index[:0], values: in.Values[:0], label: w.rows.label[:0]}
		var err error
		w.buf, err = s.decode(w.buf, &rows, from, to, width, stop)
		in.Ptr, in.Index, in.Values, w.rows.label = rows.ptr, rows.index, rows.values, rows.label
		if err != nil {
			return err
		}
		dst.Rows = int(to - from)
		if bad := labels.append(&dst.Labels, rows.label); bad >= 0 {
			return s.at(labels.refuse("", rows.label[bad]), from+int64(bad))
		}
		return nil
	}
}
