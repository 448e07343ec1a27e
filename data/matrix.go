package data

// A matrixFile is a matrix as a table whose columns are called 0, 1, …: one without a file of labels; or with one, whose labels are the last column
// then, for a model that was trained on such a table.
type matrixFile struct {
	*array
	crc    uint32
	labels []float32 // nil: they are no column of their own
}

func (m *matrixFile) fileName() string { return m.f.name }
func (m *matrixFile) numRows() int64   { return m.rows }
func (m *matrixFile) sum() uint32      { return m.crc }
func (m *matrixFile) close() error     { return m.f.close() }

func (m *matrixFile) columns() []string {
	names := classNumbers(m.rowLen())
	if m.labels != nil {
		names = append(names, "label")
	}
	return names
}

func (m *matrixFile) textColumns() ([]bool, error) { return make([]bool, len(m.columns())), nil }

func (m *matrixFile) locate(e *Error, row int64) {
	e.Row, e.Offset = row, m.at(row, 0)
}

func (m *matrixFile) decode(p *plan, dst *rawRows, from, to int64, bad func(*Error) error) error {
	n := m.rowLen()
	first := from
	bits := 64
	if m.elem.name == "f4" {
		bits = 32
	}
	if m.labels != nil {
		for row, v := range m.labels[from:to] {
			if e := p.putNumber(dst, row, n, float64(v), 32); e != nil {
				e.File, e.Row = m.f.name, from+int64(row)
				if err := bad(e); err != nil {
					return err
				}
			}
		}
	}
	return m.pieces(from, to, func(raw []byte, from, to int64) error {
		at := int(from - first)
		for i := range int(to-from) * n {
			if e := p.putNumber(dst, at+i/n, i%n, m.elem.get(raw[i*m.elem.size:]), bits); e != nil {
				e.File = m.f.name
				e.Row = from + int64(i/n)
				e.Offset = m.at(e.Row, i%n)
				if err := bad(e); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
