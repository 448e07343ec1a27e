package data

import (
	"context"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func TestCase2LogisticSet(t *testing.T) {
	for _, c := range []struct{ stream, k, want int64 }{
		{0, 0, 4_052_786}, {0, 1, -5_705_757}, {0, 2, -3_714_457}, {0, 99_999_999, 924_491}, {1, 0, 250_766}, {1, 9_999, -4_170_083},
	} {
		if got := draw.Int24(generatorSeed, uint64(c.stream), uint64(c.k)); got != c.want {
			t.Errorf("q(42, %d, %d) = %d, want %d", c.stream, c.k, got, c.want)
		}
	}
	var margin int64
	for j := range uint64(10_000) {
		margin += draw.Int24(generatorSeed, 0, j) * draw.Int24(generatorSeed, 1, j)
	}
	if margin != 3_192_957_079_159_335 {
		t.Errorf("margin of row 0 = %d", margin)
	}
	if testing.Short() {
		t.Skip("not run here: 120 million cells")
	}
	s, err := Logistic(context.Background(), trivium.Data{})
	if err != nil {
		t.Fatal(err)
	}
	train, test := read(t, s.Train), read(t, s.Test)
	if train.Rows != 10_000 || test.Rows != 2_000 || train.Inputs[0].RowLen() != 10_000 {
		t.Fatalf("%d + %d rows of %d columns", train.Rows, test.Rows, train.Inputs[0].RowLen())
	}
	x := train.Inputs[0].Values
	if x[0] != 0.48312974 {
		t.Errorf("x[0][0] = %v", x[0])
	}
	var sum int64
	for _, v := range x {
		sum += int64(v * (1 << 23))
	}
	if sum != 1_365_884_357 {
		t.Errorf("sum of q over the training set = %d", sum)
	}
	for i, want := range []int32{1, 0, 0, 0, 0, 0, 0, 1, 0, 0} {
		if got := train.Labels.Class[i]; got != want {
			t.Errorf("label of row %d = %d, want %d", i, got, want)
		}
	}
	flipped := 0
	for i := range uint64(10_000) {
		if draw.Bits(generatorSeed, 2, i)%20 == 0 {
			flipped++
		}
	}
	if p, q := positives(train), positives(test); flipped != 420 || p != 4_957 || q != 1_001 {
		t.Errorf("%d flipped, %d and %d positive; want 420, 4957, 1001", flipped, p, q)
	}
	if got := draw.Int24(generatorSeed, 0, 10_000*10_000); x != nil && test.Inputs[0].Values[0] != float32(got)/(1<<23) {
		t.Errorf("the first test row is not row 10,000")
	}
}

func TestLogisticSmall(t *testing.T) {
	s, err := Logistic(context.Background(), trivium.Data{Rows: 50, Columns: 20})
	if err != nil {
		t.Fatal(err)
	}
	train := read(t, s.Train)
	if s.Train.Rows() != 50 || s.Test.Rows() != 10 || train.Inputs[0].RowLen() != 20 {
		t.Fatalf("%d + %d rows of %d", s.Train.Rows(), s.Test.Rows(), train.Inputs[0].RowLen())
	}
	if got, want := train.Inputs[0].Values[3*20+7], draw.Unit(generatorSeed, 0, 67); got != want {
		t.Errorf("x[3][7] = %v, want %v", got, want)
	}
}

func TestCase5Digits(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: 70,000 images")
	}
	s, err := Digits(context.Background(), trivium.Data{})
	if err != nil {
		t.Fatal(err)
	}
	train, test := read(t, s.Train), read(t, s.Test)
	counts := [10]int{}
	for i, y := range train.Labels.Class {
		counts[y]++
		if want := []int32{9, 6, 3, 9, 3, 4, 9, 9, 4, 5}; i < 10 && y != want[i] {
			t.Errorf("label %d = %d, want %d", i, y, want[i])
		}
	}
	if counts[0] != 6_066 || counts[9] != 5_865 {
		t.Errorf("%d zeros, %d nines; want 6066, 5865", counts[0], counts[9])
	}
	pixels, testPixels := bytesOf(train), bytesOf(test)
	var sum, total int64
	for i, p := range pixels {
		if i < 784 {
			sum += int64(p)
		}
		total += int64(p)
	}
	if mean := float64(total) / float64(len(pixels)); sum != 30_186 || mean < 35.17335 || mean > 35.17345 {
		t.Errorf("image 0 sums to %d, mean byte %.4f; want 30186, 35.1734", sum, mean)
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		want  uint32
	}{
		{"image 0", pixels[:784], 0xe457a01d},
		{"first 1,000 images", pixels[:784_000], 0xcf27c2be},
		{"training pixels", pixels, 0x2f2a71cd},
		{"test pixels", testPixels, 0x9a6e1c27},
		{"training labels", labelBytes(train), 0x836184a0},
		{"test labels", labelBytes(test), 0x490da82a},
	} {
		if got := crc32.Checksum(c.bytes, castagnoli); got != c.want {
			t.Errorf("CRC-32C of %s = %08x, want %08x", c.name, got, c.want)
		}
	}
	if train.Rows != 60_000 || test.Rows != 10_000 {
		t.Errorf("%d + %d images", train.Rows, test.Rows)
	}
}

func read(t testing.TB, ds Dataset) *trivium.Batch {
	t.Helper()
	var b trivium.Batch
	if err := ds.Read(context.Background(), &b, 0, ds.Rows()); err != nil {
		t.Fatal(err)
	}
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func positives(b *trivium.Batch) (n int) {
	for _, y := range b.Labels.Class {
		n += int(y)
	}
	return n
}

func bytesOf(b *trivium.Batch) []byte {
	p := make([]byte, len(b.Inputs[0].Values))
	for i, v := range b.Inputs[0].Values {
		p[i] = byte(v*255 + 0.5)
	}
	return p
}

func labelBytes(b *trivium.Batch) []byte {
	p := make([]byte, b.Rows)
	for i, y := range b.Labels.Class {
		p[i] = byte(y)
	}
	return p
}

func BenchmarkDigit(b *testing.B) {
	var p [784]byte
	i := int64(0)
	for b.Loop() {
		Digit(p[:], i)
		i++
	}
}

// TestGeneratedBeyondMemory: a set that does not fit into the budget is generated as it is read, and has the rows of the small one.
func TestGeneratedBeyondMemory(t *testing.T) {
	for _, c := range []struct {
		large, small trivium.Data
		note         string
	}{
		{trivium.Data{Source: "logistic", Rows: 110_000}, trivium.Data{Source: "logistic", Rows: 700}, "all would take 4.1 GiB"},
		{trivium.Data{Source: "adult", Rows: 1 << 32}, trivium.Data{Source: "adult", Rows: 700}, "all would take 496 GiB"},
	} {
		if testing.Short() && c.large.Source == "logistic" {
			continue // draws half a minute under the race detector
		}
		large, err := Open(t.Context(), c.large, Options{})
		if err != nil {
			t.Fatal(err)
		}
		small, err := Open(t.Context(), c.small, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if large.Train.Rows() != c.large.Rows || !strings.Contains(strings.Join(large.Notes, "\n"), c.note) {
			t.Errorf("%s: %d rows, %q", c.large.Source, large.Train.Rows(), large.Notes)
		}
		var got, want trivium.Batch
		if err := errors.Join(large.Train.Read(t.Context(), &got, 300, 303), small.Train.Read(t.Context(), &want, 300, 303)); err != nil {
			t.Fatal(err)
		}
		a, b := got.Inputs[0], want.Inputs[0]
		if b.Ptr != nil { // of a view of the whole
			b.Values, b.Index = b.Values[b.Ptr[0]:b.Ptr[3]], b.Index[b.Ptr[0]:b.Ptr[3]]
		}
		if !slices.Equal(a.Values, b.Values) || !slices.Equal(a.Index, b.Index) || !slices.Equal(got.Labels.Class, want.Labels.Class) {
			t.Errorf("%s: rows 300 to 302 differ", c.large.Source)
		}
		if id := firstID(large.Test); id != c.large.Rows {
			t.Errorf("%s: the first test row has the id %d, want %d", c.large.Source, id, c.large.Rows)
		}
		if err := errors.Join(large.Close(), small.Close()); err != nil {
			t.Error(err)
		}
	}
	_, err := Logistic(t.Context(), trivium.Data{Rows: 1, Columns: math.MaxInt32})
	if err == nil || !strings.Contains(err.Error(), "at most 536870912 columns") {
		t.Errorf("error %v", err)
	}
}
