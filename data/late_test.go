package data

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium"
)

// openBoth opens data whose rows are there, and the same with rows that come late, of which those of walk are expected.
func openBoth(t *testing.T, d trivium.Data, walk func(int64) BatchOptions) (whole, late *Splits) {
	t.Helper()
	var err error
	if whole, err = Open(t.Context(), d, Options{}); err != nil {
		t.Fatal(err)
	}
	if late, err = Open(t.Context(), d, Options{Walk: walk}); err != nil {
		t.Fatal(err)
	}
	if whole.Checksum != late.Checksum || !slices.Equal(whole.Notes, late.Notes) {
		t.Fatalf("checksum %s and notes %q, want %s and %q", late.Checksum, late.Notes, whole.Checksum, whole.Notes)
	}
	return whole, late
}

func (l *late) rowsMade() int64 { return int64(l.all.Rows) - l.left.Load() }

// noRows expects that nobody walks.
func noRows(int64) BatchOptions { return BatchOptions{Span: -1} }

// A walk that was expected finds what it finds where all rows are there, and nothing else is made: in index order its parts of all
// updates, and of a shuffled order all.
func TestLateWalk(t *testing.T) {
	digits, logistic := trivium.Data{Source: "digits", Rows: 1100}, trivium.Data{Source: "logistic", Rows: 1100, Columns: 30}
	cut := logistic
	cut.Train, cut.Valid = "100:", "0:100"
	for _, c := range []struct {
		data trivium.Data
		o    BatchOptions
		made int64 // in the end
	}{
		{digits, BatchOptions{Batch: 300, Part: 1, Parts: 3}, 300 + 67}, // of the short last update rows 66 to 132 too
		{digits, BatchOptions{Batch: 300, Part: 1, Parts: 3, Last: trivium.LastDrop}, 300},
		{logistic, BatchOptions{Batch: 3, Part: 2, Parts: 3, From: 300}, 267},
		{logistic, BatchOptions{Batch: 64, Part: 4, Parts: 16, Span: 4}, 17*16 + 3},
		{logistic, BatchOptions{Batch: 64, Parts: 16, Span: -1}, 0},
		{logistic, BatchOptions{Batch: trivium.FullBatch, Part: 1, Parts: 4, Shuffle: true}, 275},
		{logistic, BatchOptions{Batch: 100, Part: 1, Parts: 2, Shuffle: true, Seed: 3}, 1100},
		{cut, BatchOptions{Batch: 100, Part: 1, Parts: 2, IDs: true}, 500},
	} {
		t.Run(fmt.Sprintf("%s %+v", c.data.Source, c.o), func(t *testing.T) {
			whole, late := openBoth(t, c.data, func(int64) BatchOptions { return c.o })
			l := late.Train.(*memory).late
			if n := l.rowsMade(); n != c.made {
				t.Fatalf("%d rows are made, and %d are expected", n, c.made)
			}
			for range 2 {
				want, got := walkAll(t, whole.Train, c.o), walkAll(t, late.Train, c.o)
				if !reflect.DeepEqual(got, want) {
					t.Fatal("the batches are others")
				}
				if n := l.rowsMade(); n != c.made {
					t.Fatalf("%d rows are made, want %d", n, c.made)
				}
			}
			if n := late.Test.(*memory).late.rowsMade(); n != 0 {
				t.Errorf("%d test rows are made", n)
			}
		})
	}
}

// A walk that was not expected has its rows made, once.
func TestLateUnexpected(t *testing.T) {
	whole, late := openBoth(t, trivium.Data{Source: "logistic", Rows: 1100, Columns: 30}, func(int64) BatchOptions {
		return BatchOptions{Batch: 300, Part: 0, Parts: 3}
	})
	l := late.Train.(*memory).late
	o := BatchOptions{Batch: 300, Part: 1, Parts: 2, Last: trivium.LastDrop}
	for range 2 {
		if !reflect.DeepEqual(walkAll(t, late.Train, o), walkAll(t, whole.Train, o)) {
			t.Fatal("the batches are others")
		}
		if n := l.rowsMade(); n != 366+450 {
			t.Fatalf("%d rows are made, want the 366 that were expected and 450", n)
		}
	}
}

// walkAll copies what an epoch finds.
func walkAll(t *testing.T, ds Dataset, o BatchOptions) (list []trivium.Batch) {
	t.Helper()
	for b, err := range Batches(t.Context(), ds, o) {
		if err != nil {
			t.Fatal(err)
		}
		var rows Builder
		if err := rows.Append(b); err != nil {
			t.Fatal(err)
		}
		list = append(list, rows.all)
	}
	return list
}

// Rows are made once, whoever else wants them at the same time, and class weights weigh those that come late.
func TestLateReaders(t *testing.T) {
	whole, late := openBoth(t, trivium.Data{Source: "logistic", Rows: 1000, Columns: 20, ClassWeight: "0=1,1=2"}, noRows)
	want := read(t, whole.Train)
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for from := int64(50 * g); from < 800; from += 37 {
				var b trivium.Batch
				if err := late.Train.Read(t.Context(), &b, from, from+100); err != nil {
					t.Error(err)
					return
				}
				if part := want.Slice(int(from), int(from)+100); !reflect.DeepEqual(b, part) {
					t.Errorf("rows from %d on are others", from)
				}
			}
		})
	}
	wait.Wait()
	if n := late.Train.(*memory).late.rowsMade(); n > 900 {
		t.Errorf("%d rows are made, want at most 900", n)
	}
}

// Who leaves the checksum to another process makes the rows that it walks, and no others; class weights want all labels nevertheless.
func TestLateUnsummed(t *testing.T) {
	o := BatchOptions{Batch: 300, Part: 1, Parts: 3}
	for _, weights := range []string{"", "0=1,1=2"} {
		d := trivium.Data{Source: "logistic", Rows: 1100, Columns: 30, ClassWeight: weights}
		open := Options{Walk: func(int64) BatchOptions { return o }}
		summed, err := Open(t.Context(), d, open)
		if err != nil {
			t.Fatal(err)
		}
		open.Unsummed = true
		unsummed, err := Open(t.Context(), d, open)
		if err != nil {
			t.Fatal(err)
		}
		if weights == "" && unsummed.Checksum != "" {
			t.Errorf("all rows were looked at: their checksum is %s", unsummed.Checksum)
		}
		if n := unsummed.Train.(*memory).late.rowsMade(); n != 300+67 {
			t.Errorf("class weights %q: %d rows are made, and 367 are walked", weights, n)
		}
		if !slices.Equal(unsummed.Notes, summed.Notes) || !reflect.DeepEqual(walkAll(t, unsummed.Train, o), walkAll(t, summed.Train, o)) {
			t.Errorf("class weights %q: the batches are others, or the notes: %q", weights, unsummed.Notes)
		}
	}
}

// Who is interrupted while rows are made says so, and the next one makes them.
func TestLateInterrupted(t *testing.T) {
	whole, late := openBoth(t, trivium.Data{Source: "digits", Rows: 200}, noRows)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := BatchOptions{Batch: 50}
	if err := Prepare(ctx, late.Train, o); err == nil {
		t.Fatal("rows are made for somebody who is gone")
	}
	if err := Prepare(t.Context(), late.Train, o); err != nil {
		t.Fatal(err)
	}
	if n := late.Train.(*memory).late.rowsMade(); n != 200 {
		t.Errorf("%d rows are made, want all 200", n)
	}
	if !reflect.DeepEqual(read(t, late.Train), read(t, whole.Train)) {
		t.Error("the rows are others")
	}
}
