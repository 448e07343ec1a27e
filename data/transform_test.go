package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trivium-ml/trivium"
)

func table(t *testing.T, d trivium.Data, o Options, lines ...string) *Splits {
	t.Helper()
	d.Source = write(t, t.TempDir(), "t.csv", []byte(strings.Join(lines, "\n")))
	return open(t, d, o)
}

func TestTransformByHand(t *testing.T) {
	lines := []string{"id,colour,size,y", "1,red,10,a", "2,blue,,b", "3,red,30,a", "4,green,50,b"}
	d := trivium.Data{Label: "y", Drop: []string{"id"}, Categorical: []string{"colour"}, Missing: "mean", Scale: "standard", Train: "0:3", Test: "3:4"}
	s := table(t, d, Options{}, lines...)
	// colours of the training rows: blue, red; mean 20, deviation 10; green is unknown
	b := read(t, s.Train)
	if got := fmt.Sprint(b.Inputs[0].Values); got != "[0 1 -1 1 0 0 0 1 1]" {
		t.Errorf("training rows %s", got)
	}
	if got := fmt.Sprint(read(t, s.Test).Inputs[0].Values); got != "[0 0 3]" {
		t.Errorf("test row %s", got)
	}
	if got := fmt.Sprint(s.Schema().Labels.Names, b.Labels.Class); got != "[a b] [0 1 0]" {
		t.Errorf("labels %s", got)
	}
	d.Missing = "zero"
	if got := fmt.Sprint(read(t, table(t, d, Options{}, lines...).Train).Inputs[0].Values); !strings.HasPrefix(got, "[0 1 -1 1 0 -2") {
		t.Errorf("missing as zero: %s, want (0 − 20)/10 in row 1", got)
	}
	d.Missing, d.Scale = "drop", "minmax"
	s = table(t, d, Options{}, lines...)
	if got := read(t, s.Train); got.Rows != 2 || fmt.Sprint(got.Inputs[0].Values) != "[1 0 1 1]" || fmt.Sprint(got.IDs) != "[0 2]" {
		t.Errorf("missing rows dropped: %v, ids %v", got.Inputs[0].Values, got.IDs)
	}
	if got := read(t, s.Test); fmt.Sprint(got.Inputs[0].Values) != "[0 2]" || fmt.Sprint(got.IDs) != "[3]" {
		t.Errorf("test row after a dropped one: %v, ids %v", got.Inputs[0].Values, got.IDs)
	}
}

func TestHashedColumns(t *testing.T) {
	s := table(t, trivium.Data{Categorical: []string{"a", "b"}, Hash: 8, Train: ":"}, Options{}, "label,a,n,b", "0,x,5,y", "1,y,0,x")
	b := read(t, s.Train)
	in := b.Inputs[0]
	if in.Form != trivium.CSR || in.RowLen() != 9 {
		t.Fatalf("%v of %d columns", in.Form, in.RowLen())
	}
	dense := make([]float32, 18)
	for i, n := range []float32{5, 0} {
		dense[9*i] = n
		dense[9*i+1+Bucket("a", []string{"x", "y"}[i], 8)]++
		dense[9*i+1+Bucket("b", []string{"y", "x"}[i], 8)]++
	}
	got := make([]float32, 18)
	for r := range 2 {
		for k := in.Ptr[r]; k < in.Ptr[r+1]; k++ {
			got[9*r+int(in.Index[k])] = in.Values[k]
		}
	}
	if !slices.Equal(got, dense) {
		t.Errorf("%v, want %v", got, dense)
	}
	// A fixed value, since models depend on it.
	if got := Bucket("site", "example.com", 1<<20); got != bucketOfExample {
		t.Errorf("Bucket = %d, want %d", got, bucketOfExample)
	}
}

const bucketOfExample = 489054

// TestTransformReused: a fitted transform goes through JSON and is applied to files of another order, with columns more or less.
func TestTransformReused(t *testing.T) {
	d := trivium.Data{Categorical: []string{"c"}, Scale: "standard", Missing: "mean", Weight: "w", Train: ":"}
	s := table(t, d, Options{}, "label,a,c,w,b", "-1,1,x,1,10", "+1,3,y,2,20")
	p, err := s.Transform.Encode()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := DecodeTransform(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Transform, tr); diff != "" {
		t.Errorf("through JSON: %s", diff)
	}
	want := fmt.Sprint(read(t, s.Train).Inputs[0].Values)
	whole := trivium.Data{Test: ":"}
	again := table(t, whole, Options{Transform: tr}, "extra,b,c,a,label", "9,10,x,1,-1", "9,20,y,3,1")
	if got := fmt.Sprint(read(t, again.Test).Inputs[0].Values); got != want || again.Train != nil {
		t.Errorf("columns in another order: %s, want %s", got, want)
	}
	if got := read(t, again.Test); fmt.Sprint(got.Labels.Class) != "[0 1]" || got.Weights != nil {
		t.Errorf("classes %v, weights %v", got.Labels.Class, got.Weights)
	}
	bare := table(t, whole, Options{Transform: tr, Unlabelled: true}, "b,c,a", "10,x,1", "20,z,3")
	if got := read(t, bare.Test); got.Labels.Kind != trivium.NoLabel || fmt.Sprint(got.Inputs[0].Values) != "[-1 1 0 -1 1 0 0 1]" {
		t.Errorf("without labels: %v %v", got.Labels.Kind, got.Inputs[0].Values)
	}
	fails := func(want string, lines ...string) {
		t.Helper()
		path := write(t, t.TempDir(), "t.csv", []byte(strings.Join(lines, "\n")))
		_, err := Open(context.Background(), trivium.Data{Source: path, Test: ":"}, Options{Transform: tr})
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fails(`column "a" is missing, which the model needs`, "b,c,label", "10,x,1")
	fails(`label 5 is outside the 2 classes: -1, 1`, "a,b,c,label", "10,1,x,1", "10,1,x,5")
	svm := write(t, t.TempDir(), "t.libsvm", []byte("1 1:1\n"))
	if _, err := Open(context.Background(), trivium.Data{Source: svm, Test: ":"}, Options{Transform: tr}); err == nil || !strings.Contains(err.Error(), "trained on table rows") {
		t.Errorf("a libsvm file under a table's transform: %v", err)
	}
}

func TestUnlabelledLibsvm(t *testing.T) {
	path := write(t, t.TempDir(), "t.libsvm", []byte("1:1 2:3\n3:1\n"))
	s := open(t, trivium.Data{Source: path, Columns: 4, Train: ":"}, Options{Unlabelled: true})
	if b := read(t, s.Train); b.Labels.Kind != trivium.NoLabel || b.Inputs[0].RowLen() != 4 || b.Rows != 2 {
		t.Errorf("%+v", b)
	}
}

// TestUnlabelledMatrix: a model of rows that had a file of labels beside them takes rows that have none.
func TestUnlabelledMatrix(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "y.npy", npyFile("|u1", "2,", []byte{0, 1}))
	s := open(t, trivium.Data{Source: write(t, dir, "x.npy", npyFile("<f4", "2, 2", float32s(1, 2, 3, 4))), Train: ":"}, Options{})
	fresh := trivium.Data{Source: write(t, t.TempDir(), "new.npy", npyFile("<f4", "3, 2", float32s(5, 6, 7, 8, 9, 10))), Test: ":"}
	for _, budget := range []int64{0, 8} {
		again := open(t, fresh, Options{Transform: s.Transform, Unlabelled: true, Budget: budget})
		if got := read(t, again.Test); got.Labels.Kind != trivium.NoLabel || fmt.Sprint(got.Inputs[0].Values) != "[5 6 7 8 9 10]" {
			t.Errorf("budget %d: %v labels, %v", budget, got.Labels.Kind, got.Inputs[0].Values)
		}
	}
	fresh.Source = write(t, t.TempDir(), "new.npy", npyFile("<f4", "1, 3", float32s(5, 6, 7)))
	_, err := Open(t.Context(), fresh, Options{Transform: s.Transform, Unlabelled: true})
	if err == nil || !strings.Contains(err.Error(), "its rows have the shape [3]; the model was made for [2]") {
		t.Errorf("rows of another width: %v", err)
	}
}

func TestWideOneHotIsSparse(t *testing.T) {
	lines := []string{"label,c"}
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf("%d,v%d", i%2, i))
	}
	s := table(t, trivium.Data{Categorical: []string{"c"}, Train: ":"}, Options{}, lines...)
	in := read(t, s.Train).Inputs[0]
	if in.Form != trivium.CSR || in.RowLen() != 5000 || len(in.Values) != 5000 {
		t.Errorf("%v of %d columns, %d entries", in.Form, in.RowLen(), len(in.Values))
	}
}

func TestOwnSource(t *testing.T) {
	own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) {
		return &Splits{Train: numberedRows(100)}, nil
	}}
	s, err := Open(context.Background(), trivium.Data{Source: "mine", Valid: "0.1", Test: "0.2"}, Options{Sources: own})
	if err != nil {
		t.Fatal(err)
	}
	if s.Train.Rows() != 70 || s.Valid.Rows() != 10 || s.Test.Rows() != 20 || s.Checksum == "" || s.Transform == nil {
		t.Errorf("%+v", s)
	}
	own["test"] = func(context.Context, trivium.Data) (*Splits, error) { return &Splits{Test: numberedRows(100)}, nil }
	if s, err = Open(context.Background(), trivium.Data{Source: "test"}, Options{Sources: own}); err != nil || s.Train != nil || s.Test.Rows() != 100 {
		t.Errorf("of test rows alone there is %+v, %v", s, err)
	}
	_, err = Open(context.Background(), trivium.Data{Source: "test", Train: "0:80"}, Options{Sources: own})
	if want := `the source "test" has no training rows, of which others could be cut: train 0:80`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("training rows of test rows: %v, want %s", err, want)
	}
}

func TestChecksum(t *testing.T) {
	sum := func(name string, p string) string {
		return open(t, trivium.Data{Source: write(t, t.TempDir(), name, []byte(p)), Train: ":"}, Options{}).Checksum
	}
	const a = "label,a\n0,1\n1,2\n"
	if sum("a.csv", a) != sum("b.csv.gz", a) {
		t.Error("compression changes the checksum")
	}
	if sum("a.csv", a) == sum("a.csv", strings.Replace(a, "2", "3", 1)) {
		t.Error("a changed value does not change the checksum")
	}
	x := open(t, trivium.Data{Source: "adult", Rows: 100}, Options{}).Checksum
	if x != open(t, trivium.Data{Source: "adult", Rows: 100}, Options{}).Checksum || x == open(t, trivium.Data{Source: "adult", Rows: 101}, Options{}).Checksum {
		t.Error("the checksum of generated rows does not follow them")
	}
}

func TestSettingsOfOtherKinds(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "t10k", "", 20)
	csv := write(t, t.TempDir(), "a.csv", []byte("label,a\n0,1\n1,2\n"))
	for _, c := range []struct {
		d    trivium.Data
		want string
	}{
		{trivium.Data{Source: csv, Rows: 5}, "it is for generated data"},
		{trivium.Data{Source: csv, Columns: 5}, "width of libsvm rows"},
		{trivium.Data{Source: csv, Hash: 8}, "no column is named categorical"},
		{trivium.Data{Source: csv, Format: "arff"}, "no format"},
		{trivium.Data{Source: dir, Label: "y"}, "holds arrays"},
		{trivium.Data{Source: "adult", Columns: 5}, `columns: it says how a file is read, and the source "adult" is none`},
		{trivium.Data{Rows: 20, Classes: 3}, "classes: 3 are declared, and the labels of digits are 10 classes"},
		{trivium.Data{Source: "logistic", Rows: 20, Classes: 3}, "3 are declared"},
		{trivium.Data{Source: dir, ClassWeight: "balance"}, "want balanced or name=weight"},
	} {
		_, err := Open(context.Background(), c.d, Options{})
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.d, err, c.want)
		}
	}
}

// TestRefuseSettings: a source of a program's own refuses each setting about files, and rows, unless it has a use for it.
func TestRefuseSettings(t *testing.T) {
	all := trivium.Data{
		Source: "mine", Train: "0:8", Classes: 2, ClassWeight: "balanced", Order: "index", // which are heeded for it
		Format: "csv", Rows: 9, Columns: 3, Label: "y", Drop: []string{"a"}, Categorical: []string{"b"}, Hash: 8, Missing: "drop", Scale: "standard", Weight: "w",
	}
	names := []string{"label", "drop", "categorical", "missing", "weight", "format", "hash", "scale", "columns", "rows"}
	err := RefuseSettings(all)
	for i, name := range names {
		if !strings.Contains(fmt.Sprint(err), "data: "+name+": ") {
			t.Errorf("%s is not refused: %v", name, err)
		}
		var e *Error
		err := RefuseSettings(all, append(names[:i:i], names[i+1:]...)...)
		if !errors.As(err, &e) || e.Field != name || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `the source "mine"`) {
			t.Errorf("all but %s are used: %v", name, err)
		}
	}
	if err := errors.Join(RefuseSettings(all, names...), RefuseSettings(trivium.Data{Missing: "error", Scale: "none"})); err != nil {
		t.Error(err)
	}
}

func TestSortedByLabelIsNoted(t *testing.T) {
	s := table(t, trivium.Data{}, Options{}, "label,x", "0,1", "0,1", "0,1", "0,1", "1,1")
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "no training row has the class 1") {
		t.Errorf("notes %q", s.Notes)
	}
}

func TestReadyTransform(t *testing.T) {
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "d", Shape: []int{2}}, {Name: "s", Form: trivium.CSR, Shape: []int{8}}}}
	own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) {
		return &Splits{Train: Memory(schema, numberedRows(100).all)}, nil
	}}
	s, err := Open(context.Background(), trivium.Data{Source: "mine"}, Options{Sources: own})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Transform.Encode()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := DecodeTransform(p)
	if err != nil || tr.Kind != KindReady {
		t.Fatalf("%+v, %v", tr, err)
	}
	if _, err := Open(context.Background(), trivium.Data{Source: "mine"}, Options{Sources: own, Transform: tr}); err != nil {
		t.Error(err)
	}
}

// TestDigitsModelReadsMNIST: a model trained on generated digits can be evaluated on files of the same shape.
func TestDigitsModelReadsMNIST(t *testing.T) {
	s := open(t, trivium.Data{Rows: 20}, Options{})
	dir := t.TempDir()
	write(t, dir, "a-images-idx3-ubyte", idxFile(2051, []uint32{2, 28, 28}, make([]byte, 2*784)))
	write(t, dir, "a-labels-idx1-ubyte", idxFile(2049, []uint32{2}, []byte{3, 1}))
	files := open(t, trivium.Data{Source: dir, Test: ":"}, Options{Transform: s.Transform})
	if files.Train != nil || files.Test.Rows() != 2 || files.Schema().Labels.Width != 10 {
		t.Errorf("%+v", files.Schema())
	}
}

// TestTransformTooLarge: categories that no checkpoint could be read back with are refused before training.
func TestTransformTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing in it runs at once")
	}
	text := strings.Repeat("x", 1<<20)
	var b strings.Builder
	b.WriteString("c,y\n")
	for i := range 65 {
		fmt.Fprintf(&b, "%d%s,%d\n", i, text, i%2)
	}
	file := write(t, t.TempDir(), "wide.csv", []byte(b.String()))
	_, err := Open(t.Context(), trivium.Data{Source: file, Categorical: []string{"c"}}, Options{})
	if want := "take 65 MiB, of which at most 64 MiB are saved with a model; hash them"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
