package data

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/trivium-ml/trivium"
)

// realData is a folder of public data sets, or the test says that it ran without.
func realData(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join("..", "..", "shared", "data", name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%s is not beside the project: generated data is tested instead, in the other tests of this package", dir)
	}
	return dir
}

func open(t *testing.T, d trivium.Data, o Options) *Splits {
	t.Helper()
	s, err := Open(context.Background(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// write makes a file in a folder of the test; names that end in .gz are compressed.
func write(t testing.TB, dir, name string, contents []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if strings.HasSuffix(name, ".gz") {
		contents = gz(contents)
	}
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gz(p []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(p)
	z.Close()
	return b.Bytes()
}

func idxFile(magic uint32, extents []uint32, body []byte) []byte {
	p := binary.BigEndian.AppendUint32(nil, magic)
	for _, e := range extents {
		p = binary.BigEndian.AppendUint32(p, e)
	}
	return append(p, body...)
}

// mnistFolder writes an IDX pair of n images of 2 × 3 in which pixel p of image i is (i+p)%256 and the label i%10.
func mnistFolder(t testing.TB, dir, prefix, ext string, n int) {
	var pixels, labels []byte
	for i := range n {
		for p := range 6 {
			pixels = append(pixels, byte(i+p))
		}
		labels = append(labels, byte(i%10))
	}
	write(t, dir, prefix+"-images-idx3-ubyte"+ext, idxFile(2051, []uint32{uint32(n), 2, 3}, pixels))
	write(t, dir, prefix+"-labels-idx1-ubyte"+ext, idxFile(2049, []uint32{uint32(n)}, labels))
}

func TestRealMNIST(t *testing.T) {
	s := open(t, trivium.Data{Source: realData(t, "mnist10k")}, Options{})
	if s.Train.Rows() != 8000 || s.Test.Rows() != 2000 || s.Valid != nil {
		t.Fatalf("%d + %d rows", s.Train.Rows(), s.Test.Rows())
	}
	b := read(t, s.Train)
	if fmt.Sprint(b.Inputs[0].Shape) != "[28 28 1]" || b.Labels.Width != 10 || b.Labels.Class[0] != 7 {
		t.Errorf("shape %v, %d classes, first label %d", b.Inputs[0].Shape, b.Labels.Width, b.Labels.Class[0])
	}
	if v := slices.Max(b.Inputs[0].Values); v != 1 {
		t.Errorf("largest pixel %v, want 1", v)
	}
	if s.Transform.Divisor != 255 || s.Checksum == "" {
		t.Errorf("divisor %v, checksum %q", s.Transform.Divisor, s.Checksum)
	}
}

func TestRealSparse(t *testing.T) {
	s := open(t, trivium.Data{Source: realData(t, "a9a"), Train: "0:26000", Test: "26000:"}, Options{})
	b := read(t, s.Train)
	if s.Train.Rows() != 26000 || s.Test.Rows() != 6561 || b.Inputs[0].RowLen() != 123 {
		t.Fatalf("%d + %d rows of %d", s.Train.Rows(), s.Test.Rows(), b.Inputs[0].RowLen())
	}
	if got := s.Schema().Labels.Names; fmt.Sprint(got) != "[-1 1]" {
		t.Errorf("classes %v", got)
	}
	if got := b.Inputs[0].Index[:3]; fmt.Sprint(got) != "[2 10 13]" {
		t.Errorf("first row starts %v, want 2 10 13 (3, 11, 14 in the file)", got)
	}
	s = open(t, trivium.Data{Source: realData(t, "agaricus")}, Options{})
	if s.Train.Rows() != 6513 || s.Test.Rows() != 1611 {
		t.Errorf("agaricus: %d + %d rows", s.Train.Rows(), s.Test.Rows())
	}
	if b := read(t, s.Test); b.Inputs[0].RowLen() != 126 {
		t.Errorf("agaricus: %d columns", b.Inputs[0].RowLen())
	}
}

func TestAdult(t *testing.T) {
	s := open(t, trivium.Data{Source: "adult"}, Options{})
	train, test := read(t, s.Train), read(t, s.Test)
	if train.Rows != 26_000 || test.Rows != 6_561 || train.Inputs[0].RowLen() != 123 {
		t.Fatalf("%d + %d rows of %d", train.Rows, test.Rows, train.Inputs[0].RowLen())
	}
	if share := float64(positives(train)) / 26_000; share < 0.23 || share > 0.25 {
		t.Errorf("%.3f of the rows are positive, want 0.24", share)
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "generated") {
		t.Errorf("notes %q do not say that the data is generated", s.Notes)
	}
}

func TestCase8IDX(t *testing.T) {
	body := func(rows, n int) []byte { return make([]byte, rows*n) }
	for _, c := range []struct {
		rows, want int
		images     bool
	}{{60_000, 47_040_016, true}, {60_000, 60_008, false}, {10_000, 7_840_016, true}, {10_000, 10_008, false}} {
		var p []byte
		if c.images {
			p = idxFile(2051, []uint32{uint32(c.rows), 28, 28}, body(c.rows, 784))
		} else {
			p = idxFile(2049, []uint32{uint32(c.rows)}, body(c.rows, 1))
		}
		if len(p) != c.want {
			t.Fatalf("%d rows take %d bytes, want %d", c.rows, len(p), c.want)
		}
		if _, err := openIDX(bytesFile("f", p), !c.images); err != nil {
			t.Error(err)
		}
		_, err := openIDX(bytesFile("cut", p[:len(p)-1]), !c.images)
		var e *Error
		if !errors.As(err, &e) || e.Offset != int64(len(p)-1) || e.File != "cut" {
			t.Errorf("cut by one byte: %v, want offset %d", err, len(p)-1)
		}
	}
}

func TestMNISTFolders(t *testing.T) {
	for _, ext := range []string{"", ".gz"} {
		dir := t.TempDir()
		mnistFolder(t, dir, "t10k", ext, 100)
		s := open(t, trivium.Data{Source: dir}, Options{})
		if s.Train.Rows() != 80 || s.Test.Rows() != 20 {
			t.Errorf("a lone test pair is cut into %d + %d", s.Train.Rows(), s.Test.Rows())
		}
		mnistFolder(t, dir, "train", ext, 300)
		s = open(t, trivium.Data{Source: dir}, Options{})
		if s.Train.Rows() != 300 || s.Test.Rows() != 100 {
			t.Errorf("two pairs: %d + %d", s.Train.Rows(), s.Test.Rows())
		}
		b := read(t, s.Test)
		if got := b.Inputs[0].Values[6*7+2]; got != float32(9)/255 || b.Labels.Class[13] != 3 {
			t.Errorf("pixel %v, label %d", got, b.Labels.Class[13])
		}
		s = open(t, trivium.Data{Source: dir, Valid: "0.1"}, Options{})
		if s.Train.Rows() != 270 || s.Valid.Rows() != 30 || s.Test.Rows() != 100 {
			t.Errorf("with valid 0.1: %d + %d + %d", s.Train.Rows(), s.Valid.Rows(), s.Test.Rows())
		}
		s = open(t, trivium.Data{Source: filepath.Join(dir, "train-images-idx3-ubyte"+ext), Train: "0:50", Test: "50:60"}, Options{})
		if s.Train.Rows() != 50 || s.Test.Rows() != 10 {
			t.Errorf("ranges: %d + %d", s.Train.Rows(), s.Test.Rows())
		}
		if _, ids := read(t, s.Test), firstID(s.Test); ids != 50 {
			t.Errorf("test rows are numbered from %d, want 50", ids)
		}
	}
}

func TestSplitsOfFiles(t *testing.T) {
	dir := t.TempDir()
	csv := func(from, n int) []byte {
		var b bytes.Buffer
		b.WriteString("label,a,b\n")
		for i := from; i < from+n; i++ {
			fmt.Fprintf(&b, "%d,%d,%g\n", i%2, i, float64(i)/2)
		}
		return b.Bytes()
	}
	one := write(t, dir, "one.csv", csv(0, 10))
	two := write(t, dir, "two.csv.gz", csv(100, 4))
	for _, c := range []struct {
		d    trivium.Data
		want string
	}{
		{trivium.Data{Source: one}, "8 - 2"},
		{trivium.Data{Source: one, Train: "0:6", Valid: "6:8", Test: "8:10"}, "6 2 2"},
		{trivium.Data{Source: one, Train: "0.5", Valid: "0.3", Test: "0.2"}, "5 3 2"},
		{trivium.Data{Source: one, Valid: "0.3"}, "7 3 -"},
		{trivium.Data{Source: one, Test: "8:"}, "8 - 2"},
		{trivium.Data{Source: one, Test: ":3"}, "7 - 3"},
		{trivium.Data{Source: one, Train: ":"}, "10 - -"},
		{trivium.Data{Source: one, Test: two}, "10 - 4"},
		{trivium.Data{Source: one, Test: "two.csv.gz"}, "10 - 4"},
		{trivium.Data{Source: one, Valid: two, Test: two}, "10 4 4"},
		{trivium.Data{Train: one, Test: two}, "10 - 4"},
		{trivium.Data{Train: one}, "10 - -"},
		{trivium.Data{Train: one, Test: "0.2"}, "8 - 2"},
		{trivium.Data{Train: one, Valid: "0.1", Test: "0.2"}, "7 1 2"},
		{trivium.Data{Train: one, Valid: "0:3", Test: two}, "7 3 4"},
		{trivium.Data{Source: two, Train: one, Test: "8:"}, "8 - 2"},
		{trivium.Data{Source: dir, Train: "two.csv.gz", Test: "one.csv"}, "error: could be the data"},
		{trivium.Data{Source: one, Train: "0.5", Test: "8:10"}, "error: either fractions or ranges"},
		{trivium.Data{Source: one, Train: "0.9", Test: "0.2"}, "error: add up to 1.1"},
		{trivium.Data{Source: one, Train: "5:11"}, "error: beyond the 10 rows"},
		{trivium.Data{Source: one, Train: "7:7"}, "error: is empty"},
		{trivium.Data{Source: one, Train: "-0.5"}, "error: want a fraction"},
		{trivium.Data{Source: one, Test: "3:5"}, "error: leave 2 pieces"},
		{trivium.Data{Source: one, Test: "absent.csv"}, "error: no such file"},
	} {
		s, err := Open(context.Background(), c.d, Options{})
		got := ""
		if err != nil {
			got = "error: " + err.Error()
			if want := strings.TrimPrefix(c.want, "error: "); want == c.want || !strings.Contains(got, want) {
				t.Errorf("%+v: %s, want %s", c.d, got, c.want)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%+v: %v is no *Error", c.d, err)
			}
			continue
		}
		for _, ds := range []Dataset{s.Train, s.Valid, s.Test} {
			if ds == nil {
				got += "- "
			} else {
				got += fmt.Sprint(ds.Rows(), " ")
			}
		}
		if strings.TrimSpace(got) != c.want {
			t.Errorf("%+v: %s, want %s", c.d, got, c.want)
		}
		s.Close()
	}
}

// TestFormatByContents: files whose names say nothing.
func TestFormatByContents(t *testing.T) {
	dir := t.TempDir()
	for name, contents := range map[string][]byte{
		"libsvm":  []byte("1 1:2 3:4\n0 2:1\n"),
		"csv":     []byte("label,a\n1,2\n0,3\n"),
		"tabs":    []byte("label\ta\n1\t2\n0\t3\n"),
		"jsonl":   []byte("{\"label\":1,\"a\":2}\n{\"label\":0,\"a\":1}\n"),
		"npy":     npyFile("<f4", "2, 2", float32s(0, 1, 1, 2)),
		"parquet": parquetBytes(t, []struct{ Label, A int32 }{{1, 2}, {0, 1}}),
		"idx":     idxFile(2051, []uint32{2, 2, 2}, make([]byte, 8)),
	} {
		s := open(t, trivium.Data{Source: write(t, dir, name+".data", contents), Train: ":"}, Options{Unlabelled: true})
		if s.Train.Rows() != 2 {
			t.Errorf("%s: %d rows", name, s.Train.Rows())
		}
	}
	if _, err := Open(context.Background(), trivium.Data{Source: write(t, dir, "words.data", []byte("hello world\n"))}, Options{}); err == nil ||
		!strings.Contains(err.Error(), "say so with --format") {
		t.Errorf("words: %v", err)
	}
}

func TestRealSamples(t *testing.T) {
	dir := realData(t, "mllib")
	s := open(t, trivium.Data{Source: filepath.Join(dir, "iris_libsvm.txt"), Train: ":"}, Options{})
	if s.Train.Rows() != 150 || s.Schema().Labels.Width != 3 {
		t.Errorf("iris: %d rows, %d classes", s.Train.Rows(), s.Schema().Labels.Width)
	}
	s = open(t, trivium.Data{Source: filepath.Join(dir, "sample_libsvm_data.txt")}, Options{})
	if s.Train.Rows() != 80 || s.Test.Rows() != 20 {
		t.Errorf("sample: %d + %d rows", s.Train.Rows(), s.Test.Rows())
	}
}

// TestArraysAreReadInPieces: reading an array takes its rows' memory and a few pieces more, not as much again.
func TestArraysAreReadInPieces(t *testing.T) {
	if raceEnabled {
		t.Skip("under -race a sync.Pool drops what it is given, at random")
	}
	dir := t.TempDir()
	const rows, columns = 1000, 4000 // 16 MB: as much again is more than the bound
	write(t, dir, "x.npy", npyFile("<f4", fmt.Sprintf("%d, %d", rows, columns), make([]byte, 4*rows*columns)))
	write(t, dir, "y.npy", npyFile("|u1", fmt.Sprintf("%d,", rows), append(make([]byte, rows-1), 1)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := Open(t.Context(), trivium.Data{Source: filepath.Join(dir, "x.npy")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(4*rows*columns+12<<20); got > most {
		t.Errorf("%d bytes were allocated for %d of numbers, want at most %d", got, 4*rows*columns, most)
	}
}

// TestOpenOwnContradicts: rows that a program's own source made and that contradict themselves or their schema are an error that says
// which, not a panic where they are walked.
func TestOpenOwnContradicts(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(s *trivium.Schema, b *trivium.Batch)
		want string
	}{
		{"class", func(_ *trivium.Schema, b *trivium.Batch) { b.Labels.Class[7] = 2 }, "row 7: class 2 is outside 0 to 1"},
		{"values", func(_ *trivium.Schema, b *trivium.Batch) { b.Inputs[0].Values = b.Inputs[0].Values[1:] }, "want 20 values, found 19"},
		{"width", func(s *trivium.Schema, _ *trivium.Batch) { s.Labels.Width = 3 }, "the labels are class of width 2, the schema says class of width 3"},
		{"shape", func(s *trivium.Schema, _ *trivium.Batch) { s.Inputs[0].Shape = []int{3} }, `input "x" is dense of shape [2], the schema says dense of shape [3]`},
		{"inputs", func(s *trivium.Schema, _ *trivium.Batch) { s.Inputs[0].Name = "z" }, `they have no input "z", which the schema has`},
	} {
		schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{2}}}, Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2}}
		b := trivium.Batch{
			Rows: 10, Inputs: []trivium.Input{{Name: "x", Shape: []int{2}, Values: make([]float32, 20)}},
			Labels: trivium.Labels{Kind: trivium.Class, Width: 2, Class: make([]int32, 10)},
		}
		c.make(&schema, &b)
		own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) { return &Splits{Train: Memory(schema, b)}, nil }}
		_, err := Open(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: own})
		if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), `the source "mine": its train rows: `) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestOpenOwnUnlike: splits that a program's own source made are of one schema, or an error says which is not; so are those of another source that a
// model is measured on.
func TestOpenOwnUnlike(t *testing.T) {
	rows := func(name string, columns int, kind trivium.LabelKind, classes int) Dataset {
		s := trivium.Schema{Inputs: []trivium.InputSpec{{Name: name, Shape: []int{columns}}}, Labels: trivium.LabelSpec{Kind: kind, Width: classes}}
		b := trivium.Batch{Rows: 2, Inputs: []trivium.Input{{Name: name, Shape: []int{columns}, Values: make([]float32, 2*columns)}}}
		b.Labels = trivium.Labels{Kind: kind, Width: classes, Class: []int32{0, int32(classes) - 1}, Real: make([]float32, 2*classes)}
		return Memory(s, b)
	}
	train := rows("x", 4, trivium.Class, 3)
	for _, c := range []struct {
		other      Dataset
		what, want string
	}{
		{rows("x", 5, trivium.Class, 3), `the inputs are "x", dense of shape [5]; `, `"x", dense of shape [4]`},
		{rows("y", 4, trivium.Class, 3), `the inputs are "y", dense of shape [4]; `, `"x", dense of shape [4]`},
		{rows("x", 4, trivium.Class, 5), "the labels are class of width 5; ", "class of width 3"},
		{streamed{rows("x", 4, trivium.Class, 5)}, "the labels are class of width 5; ", "class of width 3"},
	} {
		own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) { return &Splits{Train: train, Test: c.other}, nil }}
		_, err := Open(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: own})
		if _, ok := errors.AsType[*Error](err); !ok || err.Error() != `data: the source "mine": its test rows: `+c.what+"the train rows have "+c.want {
			t.Errorf("%s: %v", c.what, err)
		}
		own["mine"] = func(context.Context, trivium.Data) (*Splits, error) { return &Splits{Test: c.other}, nil }
		_, err = Open(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: own, Transform: readyTransform("mine", train.Schema())})
		if _, ok := errors.AsType[*Error](err); !ok || err.Error() != "data: mine: "+c.what+"the model was made for "+c.want {
			t.Errorf("%s, measured: %v", c.what, err)
		}
	}
	numbers := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) { // as wide as the classes
		return &Splits{Train: train, Test: rows("x", 4, trivium.Real, 3)}, nil
	}}
	if _, err := Open(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: numbers}); err == nil || !strings.Contains(err.Error(), "the labels are real of width 3; ") {
		t.Errorf("numbers for classes: %v", err)
	}
	for _, labels := range []struct {
		kind  trivium.LabelKind
		width int
	}{{trivium.Class, 5}, {trivium.NoLabel, 0}} { // predictions ask for none
		own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) {
			return &Splits{Test: rows("x", 4, labels.kind, labels.width)}, nil
		}}
		if _, err := Open(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: own, Transform: readyTransform("mine", train.Schema()), Unlabelled: true}); err != nil {
			t.Errorf("labels of kind %v: %v", labels.kind, err)
		}
	}
	liar := streamed{rows("x", 4, trivium.Class, 3)}
	liar.Dataset.(*memory).all.Labels.Class = []int32{0, 3}
	own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) { return &Splits{Train: liar, Test: train}, nil }}
	if _, err := Describe(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: own}); err == nil || !strings.Contains(err.Error(), "row 1: class 3 is outside 0 to 2") {
		t.Errorf("a class that is none, described: %v", err)
	}
}
