package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/trivium-ml/trivium"
)

// person is a row of a test table, in every format.
type person struct {
	Label string   `json:"label" parquet:"label"`
	Age   *float64 `json:"age" parquet:"age"`
	Job   string   `json:"job" parquet:"job"`
	Big   float64  `json:"big" parquet:"big"`
	W     float64  `json:"w" parquet:"w"`
}

func people(r *rand.Rand, n int, missing bool) []person {
	out := make([]person, n)
	for i := range out {
		age := math.Round(r.Float64()*1000) / 10
		out[i] = person{Label: []string{"no", "yes"}[r.IntN(2)], Age: &age, Job: fmt.Sprintf("job %d", r.IntN(7)), Big: float64(r.IntN(1e6)), W: float64(1+r.IntN(8)) / 4}
		if missing && r.IntN(5) == 0 {
			out[i].Age = nil
		}
	}
	return out
}

func peopleFiles(t testing.TB, dir string, rows []person) map[string]string {
	var csv, jsonl bytes.Buffer
	csv.WriteString("label,age,job,big,w\r\n")
	for _, p := range rows {
		age := ""
		if p.Age != nil {
			age = fmt.Sprint(*p.Age)
		}
		fmt.Fprintf(&csv, "%s,%s,\"%s\",%g,%g\r\n", p.Label, age, p.Job, p.Big, p.W)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		jsonl.Write(append(b, '\n'))
	}
	return map[string]string{
		"csv":     write(t, dir, "p.csv", csv.Bytes()),
		"csv.gz":  write(t, dir, "p.csv.gz", csv.Bytes()),
		"jsonl":   write(t, dir, "p.jsonl", jsonl.Bytes()),
		"parquet": write(t, dir, "p.parquet", parquetBytes(t, rows)),
	}
}

// TestStreamingEqualsMemory: every format, resident or streamed, gives the same transform and the same batches.
func TestStreamingEqualsMemory(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	rows := people(r, 2500+r.IntN(500), true)
	files := peopleFiles(t, t.TempDir(), rows)
	for k, d := range []trivium.Data{
		{Label: "label", Categorical: []string{"job"}, Missing: "mean", Scale: "standard", Weight: "w", ClassWeight: "balanced"},
		{Label: "label", Drop: []string{"job", "w"}, Missing: "zero", Scale: "minmax"},
		{Label: "label", Categorical: []string{"job", "big"}, Hash: 64, Missing: "mean", Train: "0.6", Valid: "0.2", Test: "0.2"},
		{Label: "big", Drop: []string{"label", "job"}, Missing: "mean"},
	} {
		var first *Splits
		for _, format := range []string{"csv", "csv.gz", "jsonl", "parquet"} {
			for _, budget := range []int64{0, 1 << 14} {
				if testing.Short() && k > 0 && budget == 0 && first != nil {
					continue // the race detector is after those that stream
				}
				d.Source = files[format]
				s := open(t, d, Options{Budget: budget})
				if _, streams := s.Train.(*memory); streams != (budget == 0) {
					t.Errorf("%s with budget %d: resident is %v", format, budget, streams)
				}
				if first == nil {
					first = s
					continue
				}
				if diff := cmp.Diff(first.Transform, s.Transform); diff != "" {
					t.Fatalf("seed %d: %s with budget %d fits another transform than csv in memory:\n%s", seed, format, budget, diff)
				}
				o := BatchOptions{Batch: 100, Shuffle: true, Seed: 3, IDs: true}
				for _, pair := range [][2]Dataset{{first.Train, s.Train}, {first.Valid, s.Valid}, {first.Test, s.Test}} {
					if (pair[0] == nil) != (pair[1] == nil) {
						t.Fatalf("%s with budget %d has other splits", format, budget)
					}
					if pair[0] != nil {
						sameBatches(t, fmt.Sprintf("seed %d: %s with budget %d", seed, format, budget), pair[0], pair[1], o)
					}
				}
			}
		}
	}
}

func sameBatches(t *testing.T, name string, a, b Dataset, o BatchOptions) {
	t.Helper()
	var want []trivium.Batch
	for x, err := range Batches(context.Background(), a, o) {
		if err != nil {
			t.Fatal(name, err)
		}
		want = append(want, cloneBatch(x))
	}
	i := 0
	for x, err := range Batches(context.Background(), b, o) {
		if err != nil {
			t.Fatal(name, err)
		}
		if i >= len(want) {
			t.Fatalf("%s: more than %d batches", name, len(want))
		}
		if got := cloneBatch(x); !reflect.DeepEqual(want[i], got) { // Diff takes much longer
			t.Fatalf("%s: batch %d differs:\n%s", name, i, cmp.Diff(want[i], got))
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("%s: %d batches, want %d", name, i, len(want))
	}
}

// cloneBatch copies a batch, with offsets from 0 and no empty slices.
func cloneBatch(b *trivium.Batch) trivium.Batch {
	c := trivium.Batch{Rows: b.Rows, Labels: b.Labels, Weights: append([]float32(nil), b.Weights...), IDs: append([]int64(nil), b.IDs...)}
	c.Labels.Class = append([]int32(nil), b.Labels.Class...)
	c.Labels.Real = append([]float32(nil), b.Labels.Real...)
	c.Labels.Index, c.Labels.Ptr = nil, nil
	for _, in := range b.Inputs {
		in.Values, in.Index, in.Ptr = slices.Clone(in.Values), slices.Clone(in.Index), slices.Clone(in.Ptr)
		if in.Ptr != nil {
			from, to := in.Ptr[0], in.Ptr[b.Rows]
			in.Values, in.Index = in.Values[from:to], in.Index[from:to]
			for i := range in.Ptr {
				in.Ptr[i] -= from
			}
		}
		c.Inputs = append(c.Inputs, in)
	}
	return c
}

func TestStreamingLibsvmAndArrays(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	b.WriteString("# a comment: with colons 1:2 3:4\n")
	for i := range 1700 {
		fmt.Fprintf(&b, "%+d qid:%d 1:%d 3:%g %d:2 # 7:7\n\n", i%2*2-1, i/10, i, float64(i)/7, 4+i%5)
	}
	mnistFolder(t, dir, "t10k", "", 1300)
	x, y := make([]float32, 900*2), make([]byte, 900)
	for i := range x {
		x[i], y[i/2] = float32(i)/3, byte(i/2%3)
	}
	for name, source := range map[string]string{
		"libsvm": write(t, dir, "s.svm", b.Bytes()),
		"idx":    dir + "/t10k-images-idx3-ubyte",
		"npy": func() string {
			write(t, dir, "y.npy", npyFile("|u1", "900,", y))
			return write(t, dir, "x.npy", npyFile("<f4", "900, 2", float32s(x...)))
		}(),
		"matrix": write(t, dir, "m.npy", npyFile("<f4", "900, 2", float32s(x...))),
	} {
		d := trivium.Data{Source: source}
		resident, streams := open(t, d, Options{}), open(t, d, Options{Budget: 6000})
		if diff := cmp.Diff(resident.Transform, streams.Transform); diff != "" {
			t.Errorf("%s: another transform:\n%s", name, diff)
		}
		if len(streams.Notes) == 0 || !strings.Contains(streams.Notes[0], "streamed") {
			t.Errorf("%s: notes %q do not say that the file is streamed", name, streams.Notes)
		}
		for _, o := range []BatchOptions{{Batch: 64, Shuffle: true, IDs: true}, {Batch: 100}, {Batch: 100, From: 150, Part: 1, Parts: 3}} {
			sameBatches(t, name, resident.Train, streams.Train, o)
			sameBatches(t, name, resident.Test, streams.Test, o)
		}
		if name == "libsvm" {
			in := read(t, resident.Train).Inputs[0]
			if got := in.Index[in.Ptr[7]:in.Ptr[8]]; fmt.Sprint(got) != "[0 2 5]" {
				t.Errorf("row 7 has the columns %v", got)
			}
		}
	}
}

func TestFullBatchBeyondMemory(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "t10k", "", 1300)
	s := open(t, trivium.Data{Source: dir}, Options{Budget: 6000})
	for _, err := range Batches(context.Background(), s.Train, BatchOptions{Batch: trivium.FullBatch}) {
		if err == nil || !strings.Contains(err.Error(), "take a smaller batch") {
			t.Errorf("full batch of a streamed file: %v", err)
		}
	}
}

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

func TestWeights(t *testing.T) {
	lines := []string{"label,x,w", "0,1,2", "0,2,1", "0,3,1", "1,4,0.5", "1,5,1"}
	for _, c := range []struct {
		d    trivium.Data
		want string
	}{
		{trivium.Data{Drop: []string{"w"}}, "[]"},
		{trivium.Data{Weight: "w"}, "[2 1 1 0.5]"},
		{trivium.Data{Drop: []string{"w"}, ClassWeight: "1=3"}, "[1 1 1 3]"},
		{trivium.Data{Drop: []string{"w"}, ClassWeight: "balanced"}, "[0.6666667 0.6666667 0.6666667 2]"},
		{trivium.Data{Weight: "w", ClassWeight: "0=2,1=4"}, "[4 2 2 2]"},
	} {
		c.d.Train, c.d.Test = "0:4", "4:5"
		for _, budget := range []int64{0, 16} {
			s := table(t, c.d, Options{Budget: budget}, lines...)
			var got []float32
			for b, err := range Batches(context.Background(), s.Train, BatchOptions{Batch: 2}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b.Weights...)
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%+v, budget %d: weights %v, want %s", c.d, budget, got, c.want)
			}
			if test := read(t, s.Test); c.d.Weight == "" && test.Weights != nil {
				t.Errorf("class weights reach the test rows: %v", test.Weights)
			}
		}
	}
}

func TestLabels(t *testing.T) {
	for _, c := range []struct {
		labels string
		d      trivium.Data
		mode   LabelMode
		want   string
	}{
		{"-1 1 -1", trivium.Data{}, 0, "class [-1 1] [0 1 0]"},
		{"0 1 1", trivium.Data{}, 0, "class [0 1] [0 1 1]"},
		{"0.0 1.0 1", trivium.Data{}, 0, "class [0 1] [0 1 1]"},
		{"1 2 3", trivium.Data{}, 0, "class [1 2 3] [0 1 2]"},
		{"0 3 1", trivium.Data{}, 0, "class [0 1 2 3] [0 3 1]"},
		{"0 3 1", trivium.Data{Classes: 5}, 0, "class [0 1 2 3 4] [0 3 1]"},
		{"-1 1 1", trivium.Data{Classes: 2}, 0, "class [-1 1] [0 1 1]"},
		{"1 2 2", trivium.Data{Classes: 2}, 0, "class [1 2] [0 1 1]"},
		{"0.5 1 2", trivium.Data{}, 0, "real [] [0.5 1 2]"},
		{"0 1 1", trivium.Data{}, LabelsReal, "real [] [0 1 1]"},
		{"0.5 1 2", trivium.Data{}, LabelsClass, "class [0.5 1 2] [0 1 2]"},
		{"1234567 1000000 1234567", trivium.Data{}, 0, "class [1000000 1234567] [1 0 1]"},
		{"16777217 16777216 16777217", trivium.Data{Categorical: []string{"label"}}, 0, "class [16777216 16777217] [1 0 1]"},
		{"no yes no", trivium.Data{}, 0, "class [no yes] [0 1 0]"},
		{"1 2 2", trivium.Data{Categorical: []string{"label"}}, 0, "class [1 2] [0 1 1]"},
	} {
		lines := []string{"label,x"}
		for i, l := range strings.Fields(c.labels) {
			lines = append(lines, fmt.Sprintf("%s,%d", l, i))
		}
		c.d.Train = ":"
		s := table(t, c.d, Options{Labels: c.mode}, lines...)
		b := read(t, s.Train)
		got := fmt.Sprint(b.Labels.Kind, " ", s.Schema().Labels.Names, " ", b.Labels.Class)
		if b.Labels.Kind == trivium.Real {
			got = fmt.Sprint(b.Labels.Kind, " ", s.Schema().Labels.Names, " ", b.Labels.Real)
		}
		if got != c.want {
			t.Errorf("labels %s, %+v: %s, want %s", c.labels, c.d, got, c.want)
		}
	}
}

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

// TestWeightByNumber: a column of weights that the job names by its number has them in every later file, and in those of other splits.
func TestWeightByNumber(t *testing.T) {
	lines := []string{"label,a,w", "0,1,2", "1,2,3"}
	for _, weight := range []string{"2", "-1"} {
		test := write(t, t.TempDir(), "test.csv", []byte(strings.Join(lines, "\n")))
		s := table(t, trivium.Data{Weight: weight, Train: ":", Test: test}, Options{}, lines...)
		again := table(t, trivium.Data{Weight: weight, Train: ":"}, Options{Transform: s.Transform}, lines...)
		for name, ds := range map[string]Dataset{"the training rows": s.Train, "a file of test rows": s.Test, "the same rows again": again.Train} {
			if got := fmt.Sprint(read(t, ds).Weights); got != "[2 3]" {
				t.Errorf("weight %s: %s weigh %s, want [2 3]", weight, name, got)
			}
		}
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

// TestClassWeightsWithoutNames: classes that a source does not name are named by their numbers, also where they are weighed.
func TestClassWeightsWithoutNames(t *testing.T) {
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{1}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 3},
	}
	own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) {
		return &Splits{Train: Memory(schema, trivium.Batch{
			Rows: 4, Inputs: []trivium.Input{{Name: "x", Shape: []int{1}, Values: []float32{1, 2, 3, 4}}},
			Labels: trivium.Labels{Kind: trivium.Class, Width: 3, Class: []int32{0, 1, 2, 0}},
		})}, nil
	}}
	for text, want := range map[string]string{"2=5": "[1 1 5 1]", "balanced": "[0.6666667 1.3333334 1.3333334 0.6666667]"} {
		s := open(t, trivium.Data{Source: "mine", Train: ":", ClassWeight: text}, Options{Sources: own})
		if got := fmt.Sprint(read(t, s.Train).Weights); got != want {
			t.Errorf("%s: the rows weigh %s, want %s", text, got, want)
		}
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
		{trivium.Data{Source: "adult", Columns: 5}, "is generated"},
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
