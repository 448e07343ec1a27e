package data

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/trivium-ml/trivium"
)

// openText opens a file of that text.
func openText(t *testing.T, name, text string, d trivium.Data, o Options) (*Splits, error) {
	t.Helper()
	d.Source = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(d.Source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(t.Context(), d, o)
}

// TestGoodInput: what was once refused, though others write it.
func TestGoodInput(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		labels     []int32 // of the first two rows
	}{
		"CSV that tells Excel what separates": {"a.csv", "sep=;\r\nlabel;x\r\n" + strings.Repeat("1;2.5\r\n0;1\r\n", 5), []int32{1, 0}},
		"libsvm with tabs":                    {"a.libsvm", "1\t1:0.5\t3:1\n0\t2:1\n1\t1:1\n0\t3:1\n1\t1:1\n", []int32{1, 0}},
		"libsvm with a byte order mark":       {"a.libsvm", "\xef\xbb\xbf1 1:0.5 3:1\n0 2:1\n1 1:1\n0 3:1\n1 1:1\n", []int32{1, 0}},
		"JSON with a byte order mark":         {"a.jsonl", "\xef\xbb\xbf" + strings.Repeat("{\"label\": 1, \"x\": 1}\n{\"label\": 0, \"x\": 2}\n", 5), []int32{1, 0}},
		"a label that is true or false":       {"a.jsonl", strings.Repeat("{\"label\": true, \"x\": 1}\n{\"label\": false, \"x\": 2}\n", 5), []int32{1, 0}},
	} {
		s, err := openText(t, c.file, c.text, trivium.Data{}, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var b trivium.Batch
		if err := s.Train.Read(t.Context(), &b, 0, 2); err != nil || !slices.Equal(b.Labels.Class, c.labels) {
			t.Errorf("%s: labels %v, want %v (%v)", name, b.Labels.Class, c.labels, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGzipPadding: a gzip file may have several members, and zeros behind them, fewer than a header and more.
func TestGzipPadding(t *testing.T) {
	head, rest := gz([]byte("label,a\n0,1\n1,2\n")), gz([]byte("0,3\n1,4\n"))
	for _, zeros := range []int{0, 1, 9, 10, 512, 3 << 20} {
		padded := slices.Concat(head, rest, make([]byte, zeros))
		s, err := openText(t, "a.csv.gz", string(padded), trivium.Data{Train: ":"}, Options{})
		if err != nil {
			t.Errorf("%d zeros: %v", zeros, err)
			continue
		}
		if got := read(t, s.Train).Inputs[0].Values; !slices.Equal(got, []float32{1, 2, 3, 4}) {
			t.Errorf("%d zeros: rows %v", zeros, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGzipOfEveryFormat: what a file holds is read alike, packed or not.
func TestGzipOfEveryFormat(t *testing.T) {
	type row struct {
		Label int32   `parquet:"label"`
		A     float32 `parquet:"a"`
	}
	for name, contents := range map[string][]byte{
		"a.csv.gz":     []byte("label,a\n0,1\n1,2\n0,3\n1,4\n"),
		"a.libsvm.gz":  []byte("0 1:1\n1 1:2\n0 1:3\n1 1:4\n"),
		"a.jsonl.gz":   []byte("{\"label\":0,\"a\":1}\n{\"label\":1,\"a\":2}\n{\"label\":0,\"a\":3}\n{\"label\":1,\"a\":4}\n"),
		"a.parquet.gz": parquetBytes(t, []row{{0, 1}, {1, 2}, {0, 3}, {1, 4}}),
		"a.npy.gz":     npyFile("<f4", "4, 2", float32s(0, 1, 1, 2, 0, 3, 1, 4)),
	} {
		s := open(t, trivium.Data{Source: write(t, t.TempDir(), name, contents), Train: ":"}, Options{})
		if got := read(t, s.Train).Inputs[0].Values; !slices.Equal(got, []float32{1, 2, 3, 4}) {
			t.Errorf("%s: rows %v", name, got)
		}
	}
}

// TestFirstLine: where the first line ends does not depend on what is quoted after it.
func TestFirstLine(t *testing.T) {
	for text, want := range map[string]bool{"a,b\n0,\"x\n": true, "a,\"b\n": false, "a,\"b\nc\"\n0": true, "a,b": false, "a,\"\"\"\n\"\n": true} {
		if got := wholeLine([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestParquetDropped: a column that is not read is no harm where it is dropped, and the others are what they are without it.
func TestParquetDropped(t *testing.T) {
	type group struct{ A, B int32 }
	type row struct {
		Inner group     `parquet:"inner"`
		Label int32     `parquet:"label"`
		List  []float32 `parquet:"list"`
		X     float64   `parquet:"x"`
		Name  string    `parquet:"name"`
	}
	path := filepath.Join(t.TempDir(), "a.parquet")
	rows := []row{{group{7, 8}, 0, nil, 3, "a"}, {group{9, 10}, 1, []float32{4, 5}, 6, "b"}}
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), trivium.Data{Source: path, Train: ":", Drop: []string{"inner", "list"}, Categorical: []string{"name"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := read(t, s.Train)
	if want := []float32{3, 1, 0, 6, 0, 1}; !slices.Equal(b.Inputs[0].Values, want) || !slices.Equal(b.Labels.Class, []int32{0, 1}) {
		t.Errorf("rows %v of the classes %v, want %v", b.Inputs[0].Values, b.Labels.Class, want)
	}
}

type logicalRow struct {
	Label int32   `parquet:"label"`
	Price int64   `parquet:"price,decimal(2:10)"`
	Small int32   `parquet:"small,decimal(3:9)"`
	Wide  [9]byte `parquet:"wide,decimal(1:20)"`
	U     uint32  `parquet:"u"`
	V     uint64  `parquet:"v"`
}

// TestParquetTruthInRuns: truth values that the library would read as others are refused, where the column is wanted, and say how to write them.
func TestParquetTruthInRuns(t *testing.T) {
	for _, node := range []parquet.Node{parquet.Leaf(parquet.BooleanType), parquet.Optional(parquet.Leaf(parquet.BooleanType))} {
		path := filepath.Join(t.TempDir(), "a.parquet")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		schema := parquet.NewSchema("rows", parquet.Group{
			"label": parquet.Leaf(parquet.Int32Type), "truth": parquet.Encoded(node, &parquet.RLE), "x": parquet.Leaf(parquet.DoubleType),
		})
		w := parquet.NewWriter(file, schema, parquet.DataPageVersion(2))
		for i := range 20 {
			if err := w.Write(map[string]any{"label": int32(i % 2), "truth": true, "x": float64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), trivium.Data{Source: path, Train: ":"}, Options{})
		if want := `column "truth": its truth values are packed in runs (RLE), which are not read: leave it out with --drop`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		p, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pf, err := parquet.OpenFile(bytes.NewReader(p), int64(len(p)))
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range []bool{true, false} { // how many pages have which packing
			if column, _ := pf.Schema().Lookup("truth"); !truthInRuns(pf)[column.ColumnIndex] {
				t.Errorf("not known by the file's metadata, with statistics of pages %v", said)
			}
			for i := range pf.Metadata().RowGroups[0].Columns {
				pf.Metadata().RowGroups[0].Columns[i].MetaData.EncodingStats = nil
			}
		}
		s, err := Open(t.Context(), trivium.Data{Source: path, Train: ":", Drop: []string{"truth"}}, Options{})
		if err != nil {
			t.Error(err)
		} else if got := read(t, s.Train).Inputs[0].Values; len(got) != 20 || got[19] != 19 {
			t.Errorf("without it: %v", got)
		}
	}
}

// TestParquetLogicalTypes: unsigned and decimal columns are the numbers that they stand for.
func TestParquetLogicalTypes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.parquet")
	row := logicalRow{0, 1234, -1500, [9]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x85}, 4_000_000_000, 1 << 63}
	if err := parquet.WriteFile(path, slices.Repeat([]logicalRow{row, {Label: 1}}, 4)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), trivium.Data{Source: path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var b trivium.Batch
	if err := s.Train.Read(t.Context(), &b, 0, 1); err != nil {
		t.Fatal(err)
	}
	want := []float32{12.34, -1.5, -12.3, 4e9, 1 << 63}
	if got := b.Inputs[0].Values; !slices.EqualFunc(got, want, func(x, y float32) bool { return math.Abs(float64(x-y)) <= 1e-6*math.Abs(float64(y)) }) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestNPYTypes: numbers of every type and both byte orders are what they stand for.
func TestNPYTypes(t *testing.T) {
	for descr, row := range map[string][]byte{
		"<f2": {0, 0x3e, 0, 0xc0}, ">f2": {0x3e, 0, 0xc0, 0}, ">f4": {0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0}, "<f8": {0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0},
	} {
		path := write(t, t.TempDir(), "a.npy", npyFile(descr, "4, 2", slices.Repeat(row, 4)))
		s := open(t, trivium.Data{Source: path, Label: "1", Train: ":"}, Options{Labels: LabelsReal})
		if got := read(t, s.Train); got.Inputs[0].Values[3] != 1.5 || got.Labels.Real[3] != -2 {
			t.Errorf("%s: rows of %v and %v, want 1.5 and -2", descr, got.Inputs[0].Values, got.Labels.Real)
		}
	}
}

// TestEmptyFraction: a split that was asked for has rows.
func TestEmptyFraction(t *testing.T) {
	_, err := openText(t, "a.csv", "label,a\n0,1\n1,2\n0,5\n1,6\n0,7\n", trivium.Data{Valid: "0.01", Test: "0.2"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "valid: the fraction 0.01 of 5 rows is none of them") {
		t.Error(err)
	}
}

// TestFewRows: where a fifth of the rows is none, there is no split to test on, and that is said.
func TestFewRows(t *testing.T) {
	for text, test := range map[string]int64{"label,a\n0,1\n": -1, "label,a\n0,1\n1,2\n": -1, "label,a\n0,1\n1,2\n0,5\n": 1} {
		s, err := openText(t, "a.csv", text, trivium.Data{}, Options{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if said := strings.Contains(strings.Join(s.Notes, "\n"), "none left to test on"); (s.Test == nil) != (test < 0) || said != (test < 0) {
			t.Errorf("%q: test %v, notes %q", text, s.Test, s.Notes)
		}
		if s.Test != nil && s.Test.Rows() != test {
			t.Errorf("%q: %d rows", text, s.Test.Rows())
		}
	}
}

// TestNegativeCounts: generators are asked for no fewer rows than none.
func TestNegativeCounts(t *testing.T) {
	for _, d := range []trivium.Data{{Source: "logistic", Rows: -5}, {Source: "logistic", Columns: -1}, {Source: "digits", Rows: -5}, {Source: "adult", Rows: -3}} {
		if _, err := Open(t.Context(), d, Options{}); err == nil || !strings.Contains(err.Error(), "want 0 or more") {
			t.Errorf("%+v: %v", d, err)
		}
		if _, err := Describe(t.Context(), d, Options{}); err == nil || !strings.Contains(err.Error(), "want 0 or more") {
			t.Errorf("%+v described: %v", d, err)
		}
	}
}

// plain is a program's own data set, which has no weights and leaves those of the batch as they are.
type plain struct{ Dataset }

func (p plain) Read(ctx context.Context, dst *trivium.Batch, from, to int64) error {
	weights := dst.Weights
	err := p.Dataset.Read(ctx, dst, from, to)
	dst.Weights = weights
	return err
}

// TestClassWeightsOnce: a class's weight counts once, however often a batch is read into.
func TestClassWeightsOnce(t *testing.T) {
	rows := trivium.Batch{
		Rows: 6, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: make([]float32, 6)}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: 2, Class: []int32{0, 1, 0, 1, 0, 1}},
	}
	ds := weigh(plain{Memory(tableSchema([]int{1}, []string{"0", "1"}), rows)}, []float32{1, 3})
	var b trivium.Batch
	for _, to := range []int64{2, 2, 6} {
		if err := ds.Read(t.Context(), &b, 0, to); err != nil {
			t.Fatal(err)
		}
		if want := []float32{1, 3, 1, 3, 1, 3}[:to]; !slices.Equal(b.Weights, want) {
			t.Errorf("weights %v, want %v", b.Weights, want)
		}
	}
}

// TestClassWithComma: the comma of a class's name is written as in a list of columns.
func TestClassWithComma(t *testing.T) {
	const text = "label,a\n\"Paris, France\",1\nRome,2\n"
	s, err := openText(t, "a.csv", text, trivium.Data{ClassWeight: `Rome=2,Paris\, France=3`, Train: ":"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := read(t, s.Train).Weights; !slices.Equal(got, []float32{3, 2}) {
		t.Errorf("the rows weigh %v, want 3 and 2", got)
	}
	for text, want := range map[string]string{
		`Rome=2,Paris, France=3`: "want balanced or name=weight",
		`France=3`:               `there is no class "France"; the classes are Paris, France, Rome; the comma of a name is \,`,
		`Rome=2\`:                `class "Rome": want a weight of 0 or more, found "2\\"`,
	} {
		if _, err := classWeights(text, s.Schema().Labels.Names, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestShardOfWeighted: a shard that does not fit the budget is not made resident, with class weights too.
func TestShardOfWeighted(t *testing.T) {
	text := "label,a\n" + strings.Repeat("0,1\n1,2\n", 3000)
	for _, weights := range []string{"", "balanced"} {
		s, err := openText(t, "a.csv", text, trivium.Data{ClassWeight: weights}, Options{Budget: 4096})
		if err != nil {
			t.Fatal(err)
		}
		ds, err := Shard(t.Context(), s.Train, ShardOptions{Parts: 2, Shuffle: true, Budget: 4096})
		if err != nil {
			t.Fatal(err)
		}
		if _, resident := ds.(*memory); resident {
			t.Errorf("class weight %q: the shard is resident", weights)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLabelsOfRowsToPredict: who only wants predictions may have labels that training did not, or none yet, and weights that nobody
// asks for. Who measures may not, and is told what can be done about it.
func TestLabelsOfRowsToPredict(t *testing.T) {
	for _, c := range []struct{ name, file, fitted, text, mistake string }{
		{"text", "t.csv", "a,label\n1,no\n2,yes\n", "a,label\n1,maybe\n2,yes\n", `line 2, column "label": label "maybe" is outside`},
		{"number", "t.csv", "a,label\n1,0\n2,1\n", "a,label\n1,5\n2,1\n", `label 5 is outside`},
		{"text for a number", "t.csv", "a,label\n1,0\n2,1\n", "a,label\n1,maybe\n2,1\n", `want a number as label, as in training`},
		{"missing", "t.csv", "a,label\n1,0\n2,1\n", "a,label\n1,\n2,1\n", `the label is missing: fill it, or leave the row out`},
		{"weight", "t.csv", "a,label,w\n1,0,1\n2,1,1\n", "a,label,w\n1,0,-1\n2,1,1\n", `want a weight of 0 or more`},
		{"missing weight", "t.csv", "a,label,w\n1,0,1\n2,1,1\n", "a,label,w\n1,0,\n2,1,1\n", `the weight is missing: fill it, or leave the row out`},
		{"libsvm", "t.libsvm", "0 1:1\n1 1:2\n", "5 1:1\n1 1:2\n", `label 5 is outside`},
	} {
		d := trivium.Data{Train: ":"}
		if strings.Contains(c.name, "weight") {
			d.Weight = "w"
		}
		fitted, err := openText(t, c.file, c.fitted, d, Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		d.ClassWeight = "balanced" // as the job of the model may say
		s, err := openText(t, c.file, c.text, d, Options{Transform: fitted.Transform, Unlabelled: true})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if b := read(t, s.Train); b.Labels.Kind != trivium.NoLabel || b.Weights != nil || b.Rows != 2 {
			t.Errorf("%s: labels %v, weights %v, %d rows", c.name, b.Labels.Kind, b.Weights, b.Rows)
		}
		if _, err := openText(t, c.file, c.text, d, Options{Transform: fitted.Transform}); err == nil || !strings.Contains(err.Error(), c.mistake) {
			t.Errorf("%s: to be measured: %v, want %q", c.name, err, c.mistake)
		}
	}
}

// TestRowsThatNobodyUses: who names the rows to train on, and no others, is told that the rest is not what the model is measured on.
func TestRowsThatNobodyUses(t *testing.T) {
	const text = "label,a\n0,1\n1,2\n0,3\n1,4\n0,5\n1,6\n0,7\n1,8\n"
	for _, c := range []struct {
		d     trivium.Data
		whole bool
		want  []string
	}{
		{trivium.Data{Train: "0.75"}, false, []string{"of 8 rows, 0:6 are trained on, and the others not used at all: name some with --test"}},
		{trivium.Data{Train: "2:"}, false, []string{"of 8 rows, 2:8 are trained on, and the others not used at all: name some with --test"}},
		{trivium.Data{Train: "0.75"}, true, nil},
		{trivium.Data{Train: "0:"}, false, nil},
		{trivium.Data{Train: "1"}, false, nil},
		{trivium.Data{Train: "0.5", Test: "0.25"}, false, nil},
		{trivium.Data{Train: "0:4", Valid: "4:6"}, false, nil},
	} {
		s, err := openText(t, "a.csv", text, c.d, Options{Whole: c.whole})
		if err != nil || !slices.Equal(s.Notes, c.want) {
			t.Errorf("%+v, whole %v: notes %q (%v), want %q", c.d, c.whole, s.Notes, err, c.want)
		}
	}
	dir := t.TempDir()
	write(t, dir, "train.csv", []byte(text))
	write(t, dir, "test.csv", []byte(text+"0,9\n"))
	if s := open(t, trivium.Data{Source: dir, Train: "0:6"}, Options{}); len(s.Notes) != 0 {
		t.Errorf("a folder with test rows: notes %q", s.Notes)
	}
}

// TestSharedRows: rows that two splits share are allowed, and said, since what is measured on them is no measure of other rows.
func TestSharedRows(t *testing.T) {
	const text = "label,a\n0,1\n1,2\n0,3\n1,4\n0,5\n1,6\n0,7\n1,8\n"
	for _, c := range []struct {
		d    trivium.Data
		want []string
	}{
		{trivium.Data{Train: "0:4", Valid: "4:6", Test: "6:8"}, nil},
		{trivium.Data{Train: "0:6", Test: "4:8"}, []string{"rows 4:6 are both in train and in test"}},
		{trivium.Data{Train: ":", Valid: "0:4", Test: "2:8"}, []string{
			"rows 0:4 are both in train and in valid", "rows 2:8 are both in train and in test", "rows 2:4 are both in valid and in test",
		}},
		{trivium.Data{Train: "0.5", Test: "0.5"}, nil},
		{trivium.Data{}, nil},
	} {
		s, err := openText(t, "a.csv", text, c.d, Options{})
		if err != nil || !slices.Equal(s.Notes, c.want) {
			t.Errorf("%+v: notes %q (%v), want %q", c.d, s.Notes, err, c.want)
		}
	}
	s := open(t, trivium.Data{Source: "logistic", Rows: 8, Columns: 2, Train: "0:6", Test: "4:8"}, Options{})
	if !slices.Contains(s.Notes, "rows 4:6 are both in train and in test") {
		t.Errorf("of a generator: notes %q", s.Notes)
	}
	dir := t.TempDir()
	file := write(t, dir, "a.csv", []byte(text))
	copied, other := write(t, dir, "b.csv.gz", []byte(text)), write(t, dir, "c.csv", []byte(text+"0,9\n"))
	for _, c := range []struct {
		d    trivium.Data
		want []string
	}{
		{trivium.Data{Train: file, Test: other}, nil},
		{trivium.Data{Train: file, Test: file}, []string{"the rows in train are in test too: " + file + " has them"}},
		{trivium.Data{Train: file, Valid: other, Test: copied}, []string{"the rows in train are in test too: " + copied + " has them"}},
		{trivium.Data{Train: other, Valid: file, Test: copied}, []string{"the rows in valid are in test too: " + copied + " has them"}},
	} {
		if s := open(t, c.d, Options{}); !slices.Equal(s.Notes, c.want) {
			t.Errorf("%+v: notes %q, want %q", c.d, s.Notes, c.want)
		}
	}
}
