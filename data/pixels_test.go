package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// Images of bytes are bytes in memory, and every walk finds the numbers that they stand for: in order and not, by parts, of slices, with
// class weights, shared out or not.
func TestPixels(t *testing.T) {
	const rows = 12_000 // a batch of 11,000 rows of six is shared out
	dir := t.TempDir()
	mnistFolder(t, dir, "train", "", rows)
	s := open(t, trivium.Data{Source: dir, Train: "0:12000", ClassWeight: "3=2,5=0.5"}, Options{})
	bytes := s.Train.(*memory)
	if bytes.pixels == nil || bytes.all.Inputs != nil || len(bytes.pixels.of) != rows*6 {
		t.Fatalf("rows in memory are %+v with inputs %v, want bytes", bytes.pixels, bytes.all.Inputs)
	}
	b := trivium.Batch{Rows: rows, Labels: trivium.Labels{Kind: trivium.Class, Width: 10}}
	in := trivium.Input{Name: "x", Form: trivium.Dense, Shape: []int{2, 3, 1}}
	for i := range rows {
		for p := range 6 {
			in.Values = append(in.Values, float32((i+p)%256)/255)
		}
		b.Labels.Class = append(b.Labels.Class, int32(i%10))
		b.Weights = append(b.Weights, []float32{1, 1, 1, 2, 1, 0.5, 1, 1, 1, 1}[i%10])
	}
	b.Inputs = []trivium.Input{in}
	numbers := Memory(s.Schema(), b)
	run := func(n int, f func(i, worker int)) {
		for i := range n {
			f(i, 0)
		}
	}
	for _, o := range []BatchOptions{
		{Batch: 100},
		{Batch: trivium.FullBatch},
		{Batch: 11_000, Run: run},
		{Batch: 11_000, Shuffle: true, Seed: 3, Run: run},
		{Batch: 64, Shuffle: true, Seed: 3, Epoch: 2, IDs: true},
		{Batch: 999, Part: 1, Parts: 3, IDs: true},
		{Batch: 100, From: 300, Prefetch: 2},
		{Batch: 100, Shuffle: true, From: 300, Prefetch: 2},
	} {
		name := fmt.Sprintf("batch %d, shuffle %v", o.Batch, o.Shuffle)
		sameBatches(t, name, numbers, bytes, o)
		if o.From == 0 {
			x, err := Slice(numbers, 100, 350)
			if err != nil {
				t.Fatal(err)
			}
			y, err := Slice(bytes, 100, 350)
			if err != nil {
				t.Fatal(err)
			}
			sameBatches(t, name+", a slice", x, y, o)
		}
	}
}

// A batch of all rows is made once: the next epoch finds it there.
func TestPixelsOnce(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "train", "", 50)
	s := open(t, trivium.Data{Source: dir, Train: "0:40", Test: "40:"}, Options{})
	var w Walk
	epoch := func(o BatchOptions) []float32 {
		t.Helper()
		if err := w.Begin(t.Context(), s.Train, o); err != nil {
			t.Fatal(err)
		}
		defer w.End()
		b, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b.Inputs[0].Values
	}
	full, some := BatchOptions{Batch: trivium.FullBatch}, BatchOptions{Batch: 10}
	x := epoch(full)
	want := x[0]
	x[0] = 7 // who reads must not: here it tells whether they are written again
	if again := epoch(full); again[0] != 7 {
		t.Errorf("all rows again are made again: %v", again[:6])
	}
	for i, o := range []BatchOptions{some, full, {Batch: 10, Shuffle: true}, full} {
		got := epoch(o)
		if !o.Shuffle && got[0] != want {
			t.Errorf("walk %d: the first number is %v, want %v", i, got[0], want)
		}
		got[0] = 7
	}
}

// A batch of pixels is numbers, four times as large: one that the memory for data does not hold is refused, though the pixels fit.
func TestPixelsBatchBeyondMemory(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "train", "", 1000)
	s := open(t, trivium.Data{Source: dir, Train: "0:1000"}, Options{Budget: 8000})
	if m, ok := s.Train.(*memory); !ok || m.pixels == nil {
		t.Fatalf("6000 bytes of images are %T within 8000", s.Train)
	}
	for _, c := range []struct {
		o       BatchOptions
		refused bool
	}{
		{BatchOptions{Batch: trivium.FullBatch}, true},
		{BatchOptions{Batch: 999, Shuffle: true}, true},
		{BatchOptions{Batch: trivium.FullBatch, Part: 1, Parts: 4}, false},
		{BatchOptions{Batch: 100, Shuffle: true}, false},
	} {
		var failed error
		for _, err := range Batches(t.Context(), s.Train, c.o) {
			failed = err
		}
		if refused := failed != nil && strings.Contains(failed.Error(), "take a smaller batch"); refused != c.refused {
			t.Errorf("%+v: %v", c.o, failed)
		}
	}
}

// What images would take in memory is their bytes.
func TestNoteOfStreamedImages(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "t10k", "", 1300)
	s := open(t, trivium.Data{Source: dir}, Options{Budget: 6000})
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "its rows would take 7.62 KiB, the memory for data is 5.86 KiB") {
		t.Errorf("notes %q", notes)
	}
}
