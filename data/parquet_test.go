package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/trivium-ml/trivium"
)

// joined is a Parquet file of the row groups of two, as programs make that merge files without unpacking them.
func joined(t testing.TB, a, b []byte) []byte {
	t.Helper()
	const tail = 8 // the footer's length, and what ends a file
	parts := func(p []byte) (m format.FileMetaData, pages []byte) {
		end := len(p) - tail
		begin := end - int(binary.LittleEndian.Uint32(p[end:]))
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), p[begin:end], &m); err != nil {
			t.Fatal(err)
		}
		return m, p[:begin]
	}
	m, pages := parts(a)
	other, more := parts(b)
	for _, g := range other.RowGroups {
		for i := range g.Columns {
			g.Columns[i].MetaData.DataPageOffset += int64(len(pages))
		}
		m.RowGroups = append(m.RowGroups, g)
	}
	for _, g := range m.RowGroups {
		for i := range g.Columns {
			c := &g.Columns[i]
			c.ColumnIndexOffset, c.ColumnIndexLength, c.OffsetIndexOffset, c.OffsetIndexLength = 0, 0, 0, 0 // there is none
		}
	}
	m.NumRows += other.NumRows
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &m)
	if err != nil {
		t.Fatal(err)
	}
	out := slices.Concat(pages, more, footer)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}

// TestParquetJoined: row groups that another program has put together are read one after the other.
func TestParquetJoined(t *testing.T) {
	type row struct{ Label, X int32 }
	pack := parquet.Compression(&parquet.Zstd)
	p := joined(t, parquetBytes(t, []row{{1, 5}, {0, 6}}, pack), parquetBytes(t, []row{{1, 7}, {1, 8}, {0, 9}}, pack))
	b := read(t, open(t, trivium.Data{Source: write(t, t.TempDir(), "a.parquet", p), Train: ":"}, Options{}).Train)
	if !slices.Equal(b.Inputs[0].Values, []float32{5, 6, 7, 8, 9}) || !slices.Equal(b.Labels.Class, []int32{1, 0, 1, 1, 0}) {
		t.Errorf("rows %v, labels %v", b.Inputs[0].Values, b.Labels.Class)
	}
}

// TestParquetColumnsNotRead: a column that is not read is one mistake, however many rows it has. Timestamps are not: what sets them apart is
// lost in 32 bits.
func TestParquetColumnsNotRead(t *testing.T) {
	type row struct {
		Label int32     `parquet:"label"`
		List  []float32 `parquet:"list"`
		At    int64     `parquet:"at,timestamp(microsecond)"`
		X     float64   `parquet:"x"`
	}
	var rows []row
	for i := range 1200 {
		rows = append(rows, row{int32(i % 2), []float32{1}, 1_700_000_000_000_000 + int64(i), float64(i)})
	}
	d := trivium.Data{Source: write(t, t.TempDir(), "a.parquet", parquetBytes(t, rows)), Train: ":"}
	found := describe(t, d)
	if found.ProblemCount != 2 || len(found.Problems) != 2 {
		t.Fatalf("%d mistakes, want one of each column: %v", found.ProblemCount, found.Problems)
	}
	for i, want := range []string{`a.parquet: column "list": it holds lists or groups`, `a.parquet: column "at": it holds timestamps`} {
		if got := found.Problems[i].Error(); !strings.Contains(got, want) {
			t.Errorf("mistake %d is %q, want %q", i, got, want)
		}
	}
	d.Drop = []string{"list"}
	if s, err := Open(t.Context(), d, Options{}); err == nil {
		b := read(t, s.Train)
		t.Errorf("timestamps are read: %v", b.Inputs[0].Values[:4])
	} else if want := `column "at": it holds timestamps`; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	d.Drop = []string{"list", "at"}
	if got := read(t, open(t, d, Options{}).Train).Inputs[0].Values[:3]; !slices.Equal(got, []float32{0, 1, 2}) {
		t.Errorf("without them the rows begin with %v", got)
	}
}

// TestPandasIndex: the columns of a data frame's index, which names its rows, are learnt from only where they are named, and it is said that they
// are left out; nor is one the label because it is the first.
func TestPandasIndex(t *testing.T) {
	type row struct {
		A    string  `parquet:"a"`
		At   int64   `parquet:"at,timestamp(nanosecond)"`
		Last int64   `parquet:"last"`
		Y    int32   `parquet:"m"`
		X    float64 `parquet:"x"`
	}
	rows := []row{{"p", 1, 7, 0, 0.5}, {"q", 2, 8, 1, 1.5}}
	source := func(metadata string) string {
		return write(t, t.TempDir(), "a.parquet", parquetBytes(t, rows, parquet.KeyValueMetadata("pandas", metadata)))
	}
	d := trivium.Data{Source: source(`{"index_columns": ["at", "a", {"kind": "range"}, "last"]}`), Train: ":"}
	s := open(t, d, Options{})
	if b := read(t, s.Train); !slices.Equal(b.Inputs[0].Values, []float32{0.5, 1.5}) || !slices.Equal(b.Labels.Class, []int32{0, 1}) {
		t.Errorf("rows %v, labels %v", b.Inputs[0].Values, b.Labels.Class)
	}
	found := describe(t, d)
	for i, name := range []string{"a", "at", "last", "m"} { // the last is the label
		if want := fmt.Sprintf("column %q", name); len(s.Notes) != 4 || len(found.Notes) != 4 || !strings.HasPrefix(s.Notes[i], want) || s.Notes[i] != found.Notes[i] {
			t.Errorf("notes %q and %q, want of %s", s.Notes, found.Notes, want)
		}
	}
	if found.ProblemCount != 0 || fmt.Sprint(found.Shape) != "[1]" || found.Columns[0].Kind != "dropped" {
		t.Errorf("described as %+v", found)
	}
	// Without any, a model reads the same from the file of another writer.
	d.Source = source(`{"index_columns": []}`)
	if got := read(t, open(t, d, Options{Transform: s.Transform}).Train).Inputs[0].Values; !slices.Equal(got, []float32{0.5, 1.5}) {
		t.Errorf("without an index: %v", got)
	}
	d = trivium.Data{Source: source(`{"index_columns": ["a", "at", "last"]}`), Label: "last", Categorical: []string{"a"}, Drop: []string{"at"}, Train: ":"}
	s = open(t, d, Options{})
	if b := read(t, s.Train); !slices.Equal(b.Inputs[0].Values, []float32{1, 0, 0, 0.5, 0, 1, 1, 1.5}) || !slices.Equal(b.Labels.Class, []int32{0, 1}) || s.Transform.Label.Column != "last" {
		t.Errorf("asked for: rows %v, labels %+v", b.Inputs[0].Values, s.Transform.Label)
	}
	for _, metadata := range []string{"", "null", "[]", `{"index_columns": "a"}`, `{"index_columns": [["a"]]}`} {
		d = trivium.Data{Source: source(metadata), Categorical: []string{"a"}, Drop: []string{"at"}, Label: "m", Train: ":"}
		if got := len(read(t, open(t, d, Options{}).Train).Inputs[0].Values); got != 8 {
			t.Errorf("metadata %s: %d values, want 8", metadata, got)
		}
	}
}

// TestNumbersAsNames: numbers of a column of names are named as in a file of text, so that a model trained on one kind of file knows the names
// of the other.
func TestNumbersAsNames(t *testing.T) {
	type row struct {
		Label int32   `parquet:"label"`
		ID    int64   `parquet:"id"`
		V     float64 `parquet:"v"`
	}
	rows := []row{{0, 1_000_000, 0.5}, {1, 123_456_789_012, 1e-7}}
	d := trivium.Data{Categorical: []string{"id", "v", "label"}, Train: ":"}
	d.Source = write(t, t.TempDir(), "a.parquet", parquetBytes(t, rows))
	s := open(t, d, Options{})
	for i, want := range []string{"[1000000 123456789012]", "[0.5 1e-07]"} {
		if got := fmt.Sprint(s.Transform.Columns[i].Categories); got != want {
			t.Errorf("names %s, want %s", got, want)
		}
	}
	text, err := openText(t, "a.csv", "label,id,v\n0,1000000,0.5\n1,123456789012,0.5\n", trivium.Data{Train: ":"}, Options{Transform: s.Transform})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, text.Train).Inputs[0].Values; !slices.Equal(got, []float32{1, 0, 1, 0, 0, 1, 1, 0}) {
		t.Errorf("rows of text under the transform of Parquet: %v", got)
	}
	for want, last := range map[string]row{
		`row 1, column "id": 9.007199254740992e+15 is too large for a name`: {1, 1<<53 + 1, 1},
		`row 1, column "v": the value is missing`:                           {1, 5, math.NaN()},
	} {
		d.Source = write(t, t.TempDir(), "a.parquet", parquetBytes(t, []row{rows[0], last}))
		if _, err := Open(t.Context(), d, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestParquetHalves: numbers of half precision are numbers. The file is one that Apache Arrow wrote.
func TestParquetHalves(t *testing.T) {
	s := open(t, trivium.Data{Source: "testdata/half.parquet", Missing: "zero", Train: ":"}, Options{})
	if got := read(t, s.Train); !slices.Equal(got.Inputs[0].Values, []float32{0.5, -2, 65504, 0, 12}) {
		t.Errorf("%v", got.Inputs[0].Values)
	}
	if found := describe(t, trivium.Data{Source: "testdata/half.parquet"}); found.Columns[0].Kind != "number" || found.ProblemCount != 0 {
		t.Errorf("%+v, mistakes %v", found.Columns[0], found.Problems)
	}
}

// TestParquetEmptyGroup: a row group without rows, as a writer makes that was given none, says nothing of how truth values are packed: a chunk without
// pages lists but the runs of its levels. The file is one that Apache Arrow wrote, of 2, 0 and 1 rows.
func TestParquetEmptyGroup(t *testing.T) {
	b := read(t, open(t, trivium.Data{Source: "testdata/empty-group.parquet", Train: ":"}, Options{}).Train)
	if !slices.Equal(b.Inputs[0].Values, []float32{1, 2, 3}) || !slices.Equal(b.Labels.Class, []int32{1, 0, 1}) {
		t.Errorf("rows %v, labels %v", b.Inputs[0].Values, b.Labels.Class)
	}
}

// TestNumbersOf32BitsAsNames: a number of 32 bits is named as it is written, 0.1, and not as the 64 bits that it becomes.
func TestNumbersOf32BitsAsNames(t *testing.T) {
	type row struct {
		Size  float32 `parquet:"0"`
		Label int32   `parquet:"1"`
	}
	var rows []row
	var matrix []float32
	zero := float32(0)
	for i, v := range []float32{0.1, 16777216, 2.3e-7, zero, -zero} { // both zeros are one name
		rows = append(rows, row{v, int32(i % 2)})
		matrix = append(matrix, v, float32(i%2))
	}
	for name, contents := range map[string][]byte{"a.parquet": parquetBytes(t, rows), "a.npy": npyFile("<f4", "5, 2", float32s(matrix...))} {
		s := open(t, trivium.Data{Source: write(t, t.TempDir(), name, contents), Label: "1", Categorical: []string{"0"}, Train: ":"}, Options{})
		if got, want := fmt.Sprint(s.Transform.Columns[0].Categories), "[0 0.1 16777216 2.3e-07]"; got != want {
			t.Errorf("%s: names %s, want %s", name, got, want)
		}
	}
}

// TestTruthAsName: true and false in a column of names are these words, as in JSON lines, whose rows a model trained on Parquet then knows, and in
// a column of numbers 1 and 0.
func TestTruthAsName(t *testing.T) {
	type row struct {
		Label int32 `parquet:"label"`
		Ok    bool  `parquet:"ok"`
		Open  bool  `parquet:"open"`
	}
	d := trivium.Data{Categorical: []string{"ok"}, Train: ":"}
	d.Source = write(t, t.TempDir(), "a.parquet", parquetBytes(t, []row{{0, true, true}, {1, false, true}, {0, true, false}}))
	s := open(t, d, Options{})
	d.Source = write(t, t.TempDir(), "a.jsonl", []byte(`{"label":0,"ok":true,"open":true}
{"label":1,"ok":false,"open":true}
{"label":0,"ok":true,"open":false}
`))
	want := []float32{0, 1, 1, 1, 0, 1, 0, 1, 0}
	for _, tr := range []*Transform{nil, s.Transform} {
		if got := read(t, open(t, d, Options{Transform: tr}).Train).Inputs[0].Values; !slices.Equal(got, want) {
			t.Errorf("JSON lines: %v, want %v", got, want)
		}
	}
	if got := read(t, s.Train).Inputs[0].Values; !slices.Equal(got, want) || fmt.Sprint(s.Transform.Columns[0].Categories) != "[false true]" {
		t.Errorf("Parquet: %v of %q, want %v", got, s.Transform.Columns[0].Categories, want)
	}
}

// TestParquetTextsMiscounted: a page that holds more or fewer texts than it counts is damaged, also where its checksum is right. Pages of texts that
// are absent or empty are none.
func TestParquetTextsMiscounted(t *testing.T) {
	type row struct {
		Label int32  `parquet:"label"`
		City  string `parquet:"city,plain"`
	}
	d := trivium.Data{Train: ":", Categorical: []string{"city"}}
	const page = "\x02\x00\x00\x00ab\x02\x00\x00\x00cd\x02\x00\x00\x00ef"
	for texts, want := range map[string]string{
		page: "",
		"\x08\x00\x00\x00ab\x02\x00\x00\x00cd\x02\x00\x00\x00ef":             "the pages are damaged: unexpected EOF",
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00ef": "the pages are damaged: a page holds more texts than it counts",
	} {
		p := parquetBytes(t, []row{{0, "ab"}, {1, "cd"}, {0, "ef"}})
		for from, to := range map[string]string{page: texts, sumOfPage(page): sumOfPage(texts)} {
			if bytes.Count(p, []byte(from)) != 1 || len(from) != len(to) {
				t.Fatalf("%q is not once in the file, or %q is longer or shorter", from, to)
			}
			p = bytes.Replace(p, []byte(from), []byte(to), 1)
		}
		_, err := openText(t, "a.parquet", string(p), d, Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), `column "city": `+want)) {
			t.Errorf("%q: %v, want %q", texts, err, want)
		}
	}
	type optional struct {
		Label int32  `parquet:"label"`
		City  string `parquet:"city,optional,plain"`
		Name  string `parquet:"name,optional,delta"`
		Job   string `parquet:"job,plain"`
	}
	d = trivium.Data{Train: ":", Categorical: []string{"city", "name", "job"}, Missing: "zero"}
	rows := []optional{{Label: 0}, {1, "ab", "cd", "ef"}, {Label: 0}, {Label: 1}, {0, "gh", "ij", ""}}
	for _, perPage := range []int{1, 100} {
		for version := range 2 {
			p := parquetBytes(t, rows, parquet.DataPageVersion(version+1), parquet.PageBufferSize(perPage))
			if _, err := openText(t, "a.parquet", string(p), d, Options{}); err != nil {
				t.Errorf("pages of version %d: %v", version+1, err)
			}
		}
	}
}

// sumOfPage is the checksum of an uncompressed page, as its header has it.
func sumOfPage(page string) string {
	return string(binary.AppendVarint(nil, int64(int32(crc32.ChecksumIEEE([]byte(page))))))
}
