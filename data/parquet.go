package data

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/trivium-ml/trivium/tensor"
)

// A parquetFile is a Parquet file, of which flat columns are read. Its pages cannot be entered in the middle, and shuffling needs that; so the file is
// unpacked when it is opened, to 8 bytes a cell: in memory up to 16 MiB, then in a temporary file.
type parquetFile struct {
	f     *file
	cells *file // rows of one float64 a column, little-endian: a number, or the number of a text
	rows  int64
	names []string
	kinds []parquet.Kind // by column
	dates []bool         // by column: its numbers are days since 1970
	texts [][]string     // by column: its distinct texts; nil: numbers
	other []string       // by column: why it is not read; empty: it is
	index []bool         // by column: pandas wrote it as an index, which names the rows; nil: none is known
	crc   uint32
}

// Cells that are not numbers. NaN has room for them.
var (
	cellNull    = math.Float64frombits(0x7ff8_0000_0000_0a11)
	cellTooMany = math.Float64frombits(0x7ff8_0000_0000_0a12)
)

const (
	parquetRows    = 1024    // unpacked at a time
	maxParquetCols = 1 << 16 // a reader with a page is held for each
)

func openParquet(f *file) (p *parquetFile, err error) {
	// The library checks what it reads, but not all of it: what it makes of a damaged file may be a panic.
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fault(f.name, "the Parquet file is damaged: %v", r)
		}
	}()
	pf, err := parquet.OpenFile(f, f.size, parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fault(f.name, "not a readable Parquet file: %v", err)
	}
	p = &parquetFile{f: f, rows: pf.NumRows()}
	columns := pf.Root().Columns()
	if p.rows <= 0 || len(columns) == 0 {
		return nil, fault(f.name, "there are no rows in it")
	}
	if len(columns) > maxParquetCols {
		return nil, fault(f.name, "%d columns are more than %d", len(columns), maxParquetCols)
	}
	p.kinds, p.dates = make([]parquet.Kind, len(columns)), make([]bool, len(columns))
	inRuns := truthInRuns(pf)
	for i, c := range columns {
		p.names, p.other = append(p.names, c.Name()), append(p.other, notRead(c))
		if p.other[i] == "" { // a group has none
			p.kinds[i] = c.Type().Kind()
			if inRuns[c.Index()] {
				p.other[i] = "its truth values are packed in runs (RLE), which are not read: leave it out with --drop, or write the file with data pages of version 1"
			}
			if l := c.Type().LogicalType(); l != nil {
				_, p.dates[i] = l.Value.(*format.DateType)
			}
		}
	}
	if why := notUnpacked(pf); why != "" {
		return nil, fault(f.name, "its pages are packed with %s, which is not read; write the file with another compression, such as zstd or snappy", why)
	}
	p.texts, p.index = make([][]string, len(columns)), indexColumns(pf, p.names)
	if p.crc, err = f.checksum(); err != nil {
		return nil, err
	}
	w := newSpool(f.name)
	if err := p.unpack(pf, columns, w); err != nil {
		return nil, errors.Join(err, w.discard())
	}
	p.cells = w.file()
	if want := p.rows * int64(len(columns)) * 8; p.cells.size != want {
		return nil, errors.Join(fault(f.name, "it promises %d rows and has %d", p.rows, p.cells.size/int64(len(columns)*8)), p.cells.close())
	}
	return p, nil
}

// indexColumns reports which columns are of the index of the data frame that pandas wrote: it says so in the file's metadata, under a key of its
// own. An index that is a range of numbers has no column.
func indexColumns(pf *parquet.File, names []string) []bool {
	text, _ := pf.Lookup("pandas")
	var frame struct {
		Columns []any `json:"index_columns"` // names, and what describes a range
	}
	if json.Unmarshal([]byte(text), &frame) != nil { // another program's; or there is none
		return nil
	}
	index := make([]bool, len(names))
	for i, name := range names {
		index[i] = slices.Contains(frame.Columns, any(name))
	}
	return index
}

// notUnpacked says of what packing pages are not read; empty: they are. Of LZ4 the library may read what its memory held before in place of the
// numbers: it throws away an output of the right size that its codec had to allocate (parquet-go issue 608, in version 0.32 still). And its codec
// takes more and more memory for a damaged page, without end. All of a column it unpacks by the codec of the first row group: packed pages behind
// others that are not may be taken for numbers.
func notUnpacked(pf *parquet.File) string {
	var first []format.ColumnChunk
	for _, g := range pf.Metadata().RowGroups {
		if first == nil {
			first = g.Columns
		}
		for i, c := range g.Columns {
			switch codec := c.MetaData.Codec; {
			case codec == format.Lz4Raw:
				return "LZ4"
			case i < len(first) && codec != first[i].MetaData.Codec:
				return fmt.Sprintf("%v in one row group and %v in another", first[i].MetaData.Codec, codec)
			}
		}
	}
	return ""
}

// truthInRuns reports which leaves have truth values in pages that are packed in runs, as writers of data pages of version 2 do. The library makes others
// of them: of eight in a run of true it takes seven for false (version 0.32). Where the file does not say how its pages are packed, those with plain ones
// beside the runs are taken for plain, since all pages may have runs of what is missing. A row group without rows has no pages, and may list runs
// all the same.
func truthInRuns(pf *parquet.File) map[int]bool {
	in := map[int]bool{}
	for _, g := range pf.Metadata().RowGroups {
		for i, c := range g.Columns {
			m := &c.MetaData
			if m.Type != format.Boolean || g.NumRows == 0 {
				continue
			}
			runs := slices.Contains(m.Encoding, format.RLE) && !slices.Contains(m.Encoding, format.Plain)
			for _, s := range m.EncodingStats {
				runs = runs || s.Encoding == format.RLE && (s.PageType == format.DataPage || s.PageType == format.DataPageV2)
			}
			in[i] = in[i] || runs
		}
	}
	return in
}

// notRead says why a column is not read; empty: it is.
func notRead(c *parquet.Column) string {
	if !c.Leaf() || c.Repeated() {
		return "it holds lists or groups, which are not read: leave it out with --drop"
	}
	if c.Type().Kind() == parquet.Int96 {
		return fmt.Sprintf("values of type %v are not read: leave it out with --drop", c.Type())
	}
	// As milliseconds since 1970, times of this century that are less than two minutes apart are the same number of 32 bits.
	if l := c.Type().LogicalType(); l != nil {
		if _, ok := l.Value.(*format.TimestampType); ok {
			return "it holds timestamps, which numbers of 32 bits do not tell apart: leave it out with --drop, or write what a model can learn from, " +
				"such as the hour of the day or the days since the first"
		}
	}
	return ""
}

// unpack writes all rows to w.
func (p *parquetFile) unpack(pf *parquet.File, columns []*parquet.Column, w *spool) error {
	dicts, kinds, half := make([]*dictionary, len(columns)), make([]numberKind, len(columns)), halves(pf)
	for i, c := range columns {
		if p.other[i] != "" {
			continue
		}
		kinds[i] = numberKindOf(c.Type())
		if half[c.Index()] {
			kinds[i].form = halfNumber
		}
		if k := c.Type().Kind(); kinds[i].form == plainNumber && (k == parquet.ByteArray || k == parquet.FixedLenByteArray) {
			dicts[i] = newDictionary(nil)
		}
	}
	values := make([]parquet.Value, parquetRows)
	chunk := make([]byte, parquetRows*len(columns)*8)
	for _, g := range pf.RowGroups() {
		readers := map[int]*columnReader{} // by column
		chunks := g.ColumnChunks()         // of the leaves
		for i, c := range columns {
			if p.other[i] == "" {
				readers[i] = &columnReader{pages: chunks[c.Index()].Pages()}
			}
		}
		err := func() error {
			for left := g.NumRows(); left > 0; {
				n := int(min(left, parquetRows))
				for i, r := range readers {
					if err := r.read(values[:n]); err != nil {
						e := fault(p.f.name, "the pages are damaged: %v", err)
						e.Field = columnField(p.names[i])
						return e
					}
					for row, v := range values[:n] {
						at := (row*len(columns) + i) * 8
						binary.LittleEndian.PutUint64(chunk[at:], math.Float64bits(cell(v, dicts[i], kinds[i])))
					}
				}
				if _, err := w.Write(chunk[:n*len(columns)*8]); err != nil {
					return err
				}
				left -= int64(n)
			}
			return nil
		}()
		for _, r := range readers {
			err = errors.Join(err, r.pages.Close())
		}
		if err != nil {
			return err
		}
	}
	for i, d := range dicts {
		if d != nil {
			p.texts[i] = d.names
			if d.names == nil {
				p.texts[i] = []string{}
			}
		}
	}
	return nil
}

// A numberKind is what a column's logical type makes of its values.
type numberKind struct {
	form numberForm
	unit float64 // of decimalNumber: what the value is divided by
}

type numberForm uint8

const (
	plainNumber    numberForm = iota
	unsignedNumber            // integers
	decimalNumber             // integers, or their bytes from the highest on, as two's complement
	halfNumber                // the two bytes of a float16
)

func numberKindOf(t parquet.Type) numberKind {
	l := t.LogicalType()
	if l == nil {
		return numberKind{}
	}
	switch l := l.Value.(type) {
	case *format.IntType:
		if !l.IsSigned {
			return numberKind{form: unsignedNumber}
		}
	case *format.DecimalType:
		return numberKind{decimalNumber, math.Pow10(int(l.Scale))}
	}
	return numberKind{}
}

// halves reports which leaves of the schema, in their order, hold numbers of half precision: the library's types do not say.
func halves(pf *parquet.File) (half []bool) {
	for _, e := range pf.Metadata().Schema {
		if e.Type.Valid { // a group has none
			_, is := e.LogicalType.Value.(*format.Float16Type)
			half = append(half, is)
		}
	}
	return half
}

// cell is a value as a float64.
func cell(v parquet.Value, d *dictionary, kind numberKind) float64 {
	switch {
	case v.IsNull():
		return cellNull
	case d != nil:
		if c := d.of(v.ByteArray()); c >= 0 {
			return float64(c)
		}
		return cellTooMany
	}
	switch kind.form {
	case unsignedNumber:
		if v.Kind() == parquet.Int32 {
			return float64(uint32(v.Int32()))
		}
		return float64(uint64(v.Int64()))
	case decimalNumber:
		switch v.Kind() {
		case parquet.Int32:
			return float64(v.Int32()) / kind.unit
		case parquet.Int64:
			return float64(v.Int64()) / kind.unit
		}
		return twosComplement(v.ByteArray()) / kind.unit
	case halfNumber:
		if b := v.ByteArray(); len(b) == 2 {
			return float64(tensor.Float16(binary.LittleEndian.Uint16(b)).Float32())
		}
		return math.NaN()
	}
	switch v.Kind() {
	case parquet.Boolean:
		if v.Boolean() {
			return 1
		}
		return 0
	case parquet.Int32:
		return float64(v.Int32())
	case parquet.Int64:
		return float64(v.Int64())
	case parquet.Float:
		return float64(v.Float())
	}
	return v.Double()
}

// twosComplement is the integer that b is from its highest byte on.
func twosComplement(b []byte) float64 {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	f, _ := new(big.Float).SetInt(x).Float64()
	return f
}

// A columnReader reads the values of one column of a row group in turn.
type columnReader struct {
	pages  parquet.Pages
	values parquet.ValueReader // of the current page
}

func (r *columnReader) read(dst []parquet.Value) error {
	for len(dst) > 0 {
		if r.values == nil {
			page, err := r.pages.ReadPage()
			if err != nil {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
			if moreTexts(page) {
				return errors.New("a page holds more texts than it counts")
			}
			r.values = page.Values()
		}
		n, err := r.values.ReadValues(dst)
		dst = dst[n:]
		if err == io.EOF || n == 0 && err == nil {
			r.values = nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// moreTexts reports whether texts are left behind those that a page counts. The library passes over them, and says so on standard error
// alone, past any logger: that line of its cannot be held back.
func moreTexts(page parquet.Page) bool {
	if page.Type().Kind() != parquet.ByteArray || page.Dictionary() != nil {
		return false
	}
	data := page.Data()
	texts, ends := data.ByteArray()
	return len(ends) > 0 && int(ends[len(ends)-1]) < len(texts)
}

func (p *parquetFile) fileName() string  { return p.f.name }
func (p *parquetFile) numRows() int64    { return p.rows }
func (p *parquetFile) sum() uint32       { return p.crc }
func (p *parquetFile) columns() []string { return p.names }
func (p *parquetFile) close() error      { return errors.Join(p.cells.close(), p.f.close()) }

func (p *parquetFile) locate(e *Error, row int64) { e.Row = row }

func (p *parquetFile) textColumns() ([]bool, error) {
	text := make([]bool, len(p.names))
	for i := range text {
		text[i] = p.texts[i] != nil
	}
	return text, nil
}

func (p *parquetFile) decode(pl *plan, dst *rawRows, from, to int64, bad func(*Error) error) error {
	n := int64(len(p.names)) * 8
	buf, err := p.cells.read(nil, from*n, to*n)
	if err != nil {
		return err
	}
	for row := range int(to - from) {
		for column := range p.names {
			v := math.Float64frombits(binary.LittleEndian.Uint64(buf))
			buf = buf[8:]
			e := p.put(pl, dst, row, column, v)
			switch {
			case e == nil:
				continue
			case p.other[column] == "":
				e.Row = from + int64(row)
			case from+int64(row) > 0: // all rows have it: it is said once
				continue
			}
			e.File = p.f.name
			if err := bad(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parquetFile) put(pl *plan, dst *rawRows, row, column int, v float64) *Error {
	switch {
	case p.other[column] != "":
		if pl.roles[column].kind == roleSkip {
			return nil
		}
		pl.store(dst, row, pl.roles[column], nan)
		return pl.fail(column, "%s", p.other[column])
	case math.Float64bits(v) == math.Float64bits(cellNull):
		return pl.putMissing(dst, row, column)
	case p.kinds[column] == parquet.Boolean:
		return pl.putTruth(dst, row, column, v != 0)
	case p.dates[column] && !pl.takesNumber(column): // a name, as a file of text has it
		return pl.putText(dst, row, column, time.Unix(int64(v)*24*60*60, 0).UTC().AppendFormat(nil, time.DateOnly))
	case p.texts[column] == nil && p.kinds[column] == parquet.Float:
		return pl.putNumber(dst, row, column, v, 32)
	case p.texts[column] == nil:
		return pl.putNumber(dst, row, column, v, 64)
	case v != v:
		if pl.roles[column].kind == roleSkip {
			return nil
		}
		pl.store(dst, row, pl.roles[column], nan) // else it would have what lay there
		return pl.fail(column, "it has more than %d distinct texts", maxClasses)
	}
	return pl.putText(dst, row, column, []byte(p.texts[column][int(v)]))
}
