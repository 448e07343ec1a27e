package data

import (
	"bytes"
	"context"
	"encoding/json"
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
		if !slices.ContainsFunc(streams.Notes, func(n string) bool { return strings.Contains(n, "streamed") }) {
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

// TestOneHotBeyondMemory: what counts is what rows take when they are decoded: a category is a few bytes in the file, and many numbers then.
func TestOneHotBeyondMemory(t *testing.T) {
	lines := []string{"label,c,x"}
	for i := range 900 {
		lines = append(lines, fmt.Sprintf("%d,v%d,%d", i%2, i%150, i))
	}
	d := trivium.Data{Categorical: []string{"c"}, Scale: "minmax"}
	resident, streams := table(t, d, Options{}, lines...), table(t, d, Options{Budget: 32 << 10}, lines...)
	if _, ok := streams.Train.(*memory); ok {
		t.Errorf("900 rows of 151 numbers are held in 32 KiB")
	}
	if notes := strings.Join(streams.Notes, "\n"); !strings.Contains(notes, "its rows would take 531 KiB") {
		t.Errorf("notes %q", notes)
	}
	if diff := cmp.Diff(resident.Transform, streams.Transform); diff != "" {
		t.Errorf("another transform:\n%s", diff)
	}
	o := BatchOptions{Batch: 32, Shuffle: true, Seed: 2, IDs: true}
	sameBatches(t, "train", resident.Train, streams.Train, o)
	sameBatches(t, "test", resident.Test, streams.Test, o)
}

// TestWideRows: of rows that are large a thread converts one at a time, and who streams them is told what two windows of them take.
func TestWideRows(t *testing.T) {
	for n, want := range map[int]int64{1: 256, 784: 256, 1 << 12: 64, 1 << 18: 1, 1 << 24: 1} {
		if got := (&array{shape: []int{n}}).chunk(); got != want {
			t.Errorf("%d rows of %d numbers are converted at a time, want %d", got, n, want)
		}
	}
	dir := t.TempDir()
	write(t, dir, "y.npy", npyFile("|u1", "40,", append(make([]byte, 39), 1)))
	source := write(t, dir, "x.npy", npyFile("<f4", "40, 1000", make([]byte, 4*40*1000)))
	for budget, told := range map[int64]bool{100_000: true, 1 << 20: false} {
		notes := strings.Join(open(t, trivium.Data{Source: source}, Options{Budget: budget}).Notes, "\n")
		if strings.Contains(notes, "a walk has two windows of 16384 rows in memory, 156 KiB") != told {
			t.Errorf("with %d bytes for data: notes %q", budget, notes)
		}
	}
}
