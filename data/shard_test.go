package data

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivium-ml/trivium"
)

// mixed returns n rows with a dense, a sparse and a ragged input, and multi-hot labels.
func mixed(n int, seed uint64) (trivium.Schema, *trivium.Batch) {
	r := rand.New(rand.NewPCG(seed, 1))
	b := &trivium.Batch{Rows: n, Inputs: []trivium.Input{
		{Name: "x", Form: trivium.Dense, Shape: []int{2, 3}, Values: make([]float32, 6*n)},
		{Name: "s", Form: trivium.CSR, Shape: []int{10}, Index: []int32{}, Values: []float32{}, Ptr: []int64{0}},
		{Name: "t", Form: trivium.Ragged, Index: []int32{}, Ptr: []int64{0}},
	}, Labels: trivium.Labels{Kind: trivium.MultiHot, Width: 4, Index: []int32{}, Ptr: []int64{0}}, Weights: make([]float32, n)}
	for i := range b.Inputs[0].Values {
		b.Inputs[0].Values[i] = r.Float32()
	}
	for i := range n {
		b.Weights[i] = r.Float32()
		s, t, y := &b.Inputs[1], &b.Inputs[2], &b.Labels
		for c := range int32(10) {
			if r.IntN(3) == 0 {
				s.Index, s.Values = append(s.Index, c), append(s.Values, r.Float32())
			}
			if r.IntN(4) == 0 {
				t.Index = append(t.Index, r.Int32N(100))
			}
			if c < 4 && r.IntN(2) == 0 {
				y.Index = append(y.Index, c)
			}
		}
		s.Ptr, t.Ptr, y.Ptr = append(s.Ptr, int64(len(s.Index))), append(t.Ptr, int64(len(t.Index))), append(y.Ptr, int64(len(y.Index)))
	}
	schema := trivium.Schema{Labels: trivium.LabelSpec{Kind: trivium.MultiHot, Width: 4}}
	for _, in := range b.Inputs {
		schema.Inputs = append(schema.Inputs, trivium.InputSpec{Name: in.Name, Form: in.Form, Shape: in.Shape})
	}
	return schema, b
}

func TestShardsTogetherAreTheDataSet(t *testing.T) {
	schema, all := mixed(1003, 7)
	ds := Memory(schema, *all)
	for _, shuffle := range []bool{false, true} {
		var ids []int64
		for part := range 4 {
			shard, err := Shard(t.Context(), ds, ShardOptions{Part: part, Parts: 4, Shuffle: shuffle, Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			if want := int64((part+1)*1003/4 - part*1003/4); shard.Rows() != want {
				t.Errorf("part %d has %d rows, want %d", part, shard.Rows(), want)
			}
			for b, err := range Batches(t.Context(), shard, BatchOptions{Batch: 100, IDs: true}) {
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Validate(); err != nil {
					t.Fatal(err)
				}
				for i, id := range b.IDs {
					one, want := b.Slice(i, i+1), all.Slice(int(id), int(id)+1)
					if one.Inputs[0].Values[5] != want.Inputs[0].Values[5] || one.Weights[0] != want.Weights[0] {
						t.Fatalf("part %d: row %d does not hold what its id says", part, id)
					}
				}
				ids = append(ids, b.IDs...)
			}
		}
		if shuffle == slices.IsSorted(ids) {
			t.Errorf("shuffle %v: rows in order: %v", shuffle, slices.IsSorted(ids))
		}
		slices.Sort(ids)
		for i, id := range ids {
			if id != int64(i) {
				t.Fatalf("shuffle %v: id %d in place of %d: a row is missing or there twice", shuffle, id, i)
			}
		}
		if len(ids) != 1003 {
			t.Errorf("%d rows in all", len(ids))
		}
	}
	if _, err := Shard(t.Context(), ds, ShardOptions{Part: 4, Parts: 4}); err == nil {
		t.Error("part 4 of 4 was accepted")
	}
}

func TestShippedBatchesArriveAsTheyWere(t *testing.T) {
	schema, all := mixed(57, 3)
	var got Builder
	for from := 0; from < 57; from += 10 {
		part := all.Slice(from, min(57, from+10))
		b, err := DecodeBatch(AppendBatch(nil, &part))
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	var back trivium.Batch
	if err := got.Dataset(schema).Read(t.Context(), &back, 0, 57); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*all, back); d != "" {
		t.Error(d)
	}
	var digits Builder
	splits, err := Digits(t.Context(), trivium.Data{Rows: 20})
	if err != nil {
		t.Fatal(err)
	}
	for b := range Batches(t.Context(), splits.Train, BatchOptions{Batch: 5}) {
		c, err := DecodeBatch(AppendBatch(nil, b))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*b, *c); d != "" {
			t.Fatal(d)
		}
		if err := digits.Append(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := digits.Append(all); err == nil {
		t.Error("rows of another shape were appended")
	}
}

func TestShippedSplits(t *testing.T) {
	want, err := Open(t.Context(), trivium.Data{Source: "adult", Rows: 1300, Train: "0:900", Test: "900:"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	if err := Ship(t.Context(), &sent, want); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(sent.Bytes())
	got, err := Unship(&sent)
	if err != nil {
		t.Fatal(err)
	}
	if got.Checksum != want.Checksum || got.Valid != nil || got.Train.Rows() != 900 || got.Test.Rows() != 400 {
		t.Fatalf("%d and %d rows, checksum %q", got.Train.Rows(), got.Test.Rows(), got.Checksum)
	}
	if d := cmp.Diff(want.Schema(), got.Schema()); d != "" {
		t.Error(d)
	}
	var a, b trivium.Batch
	if err := errors.Join(want.Test.Read(t.Context(), &a, 0, 400), got.Test.Read(t.Context(), &b, 0, 400)); err != nil {
		t.Fatal(err)
	}
	b.IDs = nil // they say where the rows come from
	if !bytes.Equal(AppendBatch(nil, &a), AppendBatch(nil, &b)) {
		t.Error("other rows arrived")
	}
	for _, cut := range []int{0, 3, 10, len(whole) / 2, len(whole) - 1} {
		if _, err := Unship(bytes.NewReader(whole[:cut])); err == nil {
			t.Errorf("%d of %d bytes were enough", cut, len(whole))
		}
	}
}

// TestRowsWithoutEntries: sparse rows may all be empty, in which case their arrays may be nil; they are shipped, sharded and collected like others.
func TestRowsWithoutEntries(t *testing.T) {
	d := trivium.Data{Categorical: []string{"a"}, Hash: 4, Missing: "zero"}
	dir := t.TempDir()
	write(t, dir, "train.csv", []byte("label,a\n0,x\n1,y\n"))
	write(t, dir, "test.csv", []byte("label,a\n0,\n1,NA\n"))
	d.Source = dir
	s := open(t, d, Options{})
	var sent bytes.Buffer
	if err := Ship(t.Context(), &sent, s); err != nil {
		t.Fatal(err)
	}
	got, err := Unship(&sent)
	if err != nil {
		t.Fatal(err)
	}
	if b := read(t, got.Test); b.Rows != 2 || len(b.Inputs[0].Index) != 0 {
		t.Errorf("%d rows, entries %v", b.Rows, b.Inputs[0].Index)
	}
	var all Builder
	for _, ds := range []Dataset{s.Test, s.Train} {
		if err := all.Append(read(t, ds)); err != nil {
			t.Fatal(err)
		}
	}
	if b := read(t, all.Dataset(s.Schema())); b.Rows != 4 || len(b.Inputs[0].Index) != 2 {
		t.Errorf("collected: %d rows, entries %v", b.Rows, b.Inputs[0].Index)
	}
	for _, ds := range []Dataset{s.Test, s.Train} {
		if shard, err := Shard(t.Context(), ds, ShardOptions{Parts: 1, Shuffle: true}); err != nil || read(t, shard).Rows != 2 {
			t.Errorf("a shard: %v", err)
		}
	}
}

// TestShippedWideRows: a block of wide rows is far below what a receiver takes.
func TestShippedWideRows(t *testing.T) {
	const rows, columns = 40, 1 << 18 // 40 MiB
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{columns}}}}
	splits := &Splits{Train: Memory(schema, trivium.Batch{
		Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{columns}, Values: make([]float32, rows*columns)}},
	})}
	var sent blockSizes
	if err := Ship(t.Context(), &sent, splits); err != nil {
		t.Fatal(err)
	}
	if sent.most > 17<<20 || sent.all < 4*rows*columns {
		t.Errorf("%d bytes in blocks of up to %d", sent.all, sent.most)
	}
}

// TestShippedLongRows: so is a block of sparse rows with many entries, and they arrive as they were.
func TestShippedLongRows(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: 20 MiB, and nothing in it runs at once")
	}
	const rows, entries = 10, 1 << 18 // 20 MiB
	in := trivium.Input{Name: "x", Form: trivium.CSR, Shape: []int{entries}, Ptr: []int64{0}}
	for r := range rows {
		for k := range entries {
			in.Index, in.Values = append(in.Index, int32(k)), append(in.Values, float32(r+1))
		}
		in.Ptr = append(in.Ptr, int64(len(in.Index)))
	}
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{entries}}}}
	splits := &Splits{Train: Memory(schema, trivium.Batch{Rows: rows, Inputs: []trivium.Input{in}})}
	var sizes blockSizes
	var sent bytes.Buffer
	if err := Ship(t.Context(), io.MultiWriter(&sizes, &sent), splits); err != nil {
		t.Fatal(err)
	}
	if sizes.most > 17<<20 {
		t.Errorf("%d bytes in blocks of up to %d", sizes.all, sizes.most)
	}
	got, err := Unship(&sent)
	if err != nil {
		t.Fatal(err)
	}
	var a, b trivium.Batch
	if err := errors.Join(splits.Train.Read(t.Context(), &a, 0, rows), got.Train.Read(t.Context(), &b, 0, rows)); err != nil {
		t.Fatal(err)
	}
	if x, y := &a.Inputs[0], &b.Inputs[0]; !slices.Equal(x.Ptr, y.Ptr) || !slices.Equal(x.Index, y.Index) || !slices.Equal(x.Values, y.Values) {
		t.Error("other rows arrived")
	}
}

// blockSizes counts what is written.
type blockSizes struct{ all, most int }

func (s *blockSizes) Write(p []byte) (int, error) {
	s.all, s.most = s.all+len(p), max(s.most, len(p))
	return len(p), nil
}

// Rows arrive with the weights of their classes to train on, and without to be measured on.
func TestShippedClassWeights(t *testing.T) {
	for _, weight := range []string{"", "w"} { // of the rows' own
		want, err := openText(t, "a.csv", "label,a,w\n0,1,2\n1,2,3\n0,3,4\n1,4,5\n", trivium.Data{ClassWeight: "1=5", Weight: weight, Train: ":"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		if err := Ship(t.Context(), &sent, want); err != nil {
			t.Fatal(err)
		}
		whole := sent.Bytes()
		got, err := Unship(&sent)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []func(*Splits) Dataset{(*Splits).Measured, func(s *Splits) Dataset { return s.Train }} {
			var a, b trivium.Batch
			if err := errors.Join(of(want).Read(t.Context(), &a, 0, 4), of(got).Read(t.Context(), &b, 0, 4)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Weights, b.Weights) {
				t.Errorf("the rows weigh %v, and %v where they were sent", a.Weights, b.Weights)
			}
		}
		if _, err := Unship(bytes.NewReader(bytes.Replace(whole, []byte(`"weights":[1,5]`), []byte(`"weights":[125]`), 1))); err == nil {
			t.Error("one weight for two classes was taken")
		}
	}
}

// TestShippedRaggedValues: elements without their values are refused where they arrive, and nobody looks for them later.
func TestShippedRaggedValues(t *testing.T) {
	b := trivium.Batch{Rows: 2, Inputs: []trivium.Input{{
		Name: "t", Form: trivium.Ragged, Shape: []int{2}, Index: []int32{1, 2, 3}, Values: make([]float32, 6), Ptr: []int64{0, 1, 3},
	}}}
	whole := AppendBatch(nil, &b)
	if _, err := DecodeBatch(whole); err != nil {
		t.Error(err)
	}
	b.Inputs[0].Values = b.Inputs[0].Values[:4]
	b.Inputs[0].Shape = []int{1} // so that AppendBatch writes the 3 values of 3 elements
	short := AppendBatch(nil, &b)
	at := bytes.Index(short, []byte("t")) + 3 // behind the name, the form and the number of dimensions
	short[at] = 2
	if _, err := DecodeBatch(short); err == nil || !strings.Contains(err.Error(), "3 elements of shape [2] want 6 values, found 3") {
		t.Errorf("three values of three elements of two: %v", err)
	}
}

func FuzzUnship(f *testing.F) {
	splits, err := Digits(f.Context(), trivium.Data{Rows: 3})
	if err != nil {
		f.Fatal(err)
	}
	var sent bytes.Buffer
	if err := Ship(f.Context(), &sent, splits); err != nil {
		f.Fatal(err)
	}
	f.Add(sent.Bytes())
	f.Fuzz(func(_ *testing.T, p []byte) {
		_, _ = Unship(bytes.NewReader(p)) // any answer but a panic
	})
}

func FuzzDecodeBatch(f *testing.F) {
	_, b := mixed(5, 1)
	f.Add(AppendBatch(nil, b))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		b, err := DecodeBatch(p)
		if err != nil {
			return
		}
		again, err := DecodeBatch(AppendBatch(nil, b))
		if err != nil {
			t.Fatal(err)
		}
		if again.Rows != b.Rows || len(again.Inputs) != len(b.Inputs) {
			t.Fatalf("%d rows, %d inputs became %d, %d", b.Rows, len(b.Inputs), again.Rows, len(again.Inputs))
		}
	})
}

// TestShardOfPixels: a shuffled shard of images holds their bytes, and is made where these fit its budget.
func TestShardOfPixels(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "train", "", 1000)
	s := open(t, trivium.Data{Source: dir, Train: "0:1000", ClassWeight: "3=2"}, Options{})
	for budget, copied := range map[int64]bool{0: true, 500 * 6: true, 500*6 - 1: false} {
		ds, err := Shard(t.Context(), s.Train, ShardOptions{Part: 1, Parts: 2, Shuffle: true, Seed: 4, Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		m := ds.(*memory)
		if m.pixels == nil || len(m.pixels.of) != 500*6 || m.all.Inputs != nil || (m.all.IDs != nil) != copied || m.Rows() != 500 {
			t.Fatalf("budget %d: %d rows with inputs %v and ids %v, a copy of bytes: %v", budget, m.Rows(), m.all.Inputs, m.all.IDs != nil, copied)
		}
		var got trivium.Batch
		if err := ds.Read(t.Context(), &got, 0, 500); err != nil {
			t.Fatal(err)
		}
		for i, id := range got.IDs { // pixel p of image id is id + p
			weight := float32(1)
			if id%10 == 3 {
				weight = 2
			}
			if x := got.Inputs[0].Values[6*i+5]; x != float32((id+5)%256)/255 || got.Labels.Class[i] != int32(id%10) || got.Weights[i] != weight {
				t.Fatalf("row %d is image %d with the pixel %v, class %d and weight %v", i, id, x, got.Labels.Class[i], got.Weights[i])
			}
		}
	}
}
