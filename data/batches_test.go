package data

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/tensor"
)

// numberedRows is a data set whose dense row i is (i, −i) and whose sparse row i has i%4 entries, with class i%3 and weight i+1.
func numberedRows(rows int) *memory {
	dense := trivium.Input{Name: "d", Form: trivium.Dense, Shape: []int{2}, Values: []float32{}}
	sparse := trivium.Input{Name: "s", Form: trivium.CSR, Shape: []int{8}, Ptr: []int64{0}, Index: []int32{}, Values: []float32{}}
	ragged := trivium.Input{Name: "r", Form: trivium.Ragged, Ptr: []int64{0}, Index: []int32{}}
	b := trivium.Batch{Rows: rows, Labels: trivium.Labels{Kind: trivium.Class, Width: 3}}
	for i := range rows {
		dense.Values = append(dense.Values, float32(i), -float32(i))
		for j := range i % 4 {
			sparse.Index = append(sparse.Index, int32(2*j))
			sparse.Values = append(sparse.Values, float32(i*10+j))
			ragged.Index = append(ragged.Index, int32(i))
		}
		sparse.Ptr = append(sparse.Ptr, int64(len(sparse.Index)))
		ragged.Ptr = append(ragged.Ptr, int64(len(ragged.Index)))
		b.Labels.Class = append(b.Labels.Class, int32(i%3))
		b.Weights = append(b.Weights, float32(i+1))
	}
	b.Inputs = []trivium.Input{dense, sparse, ragged}
	return newMemory(trivium.Schema{}, b)
}

// streamed hides that a data set is in memory.
type streamed struct{ Dataset }

// walk returns the id of each row of an epoch in order, checking that the row is what the id says.
func walk(t *testing.T, ds Dataset, o BatchOptions) (ids []int64, sizes []int) {
	t.Helper()
	o.IDs = true
	for b, err := range Batches(context.Background(), ds, o) {
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		for r, id := range b.IDs {
			d, s := b.Inputs[0], b.Inputs[1]
			entries := s.Ptr[r+1] - s.Ptr[r]
			if d.Values[2*r] != float32(id) || d.Values[2*r+1] != -float32(id) || entries != id%4 ||
				b.Labels.Class[r] != int32(id%3) || b.Weights[r] != float32(id+1) {
				t.Fatalf("row with id %d holds another row", id)
			}
			for k := range entries {
				if s.Values[s.Ptr[r]+k] != float32(id*10+k) {
					t.Fatalf("row with id %d holds another sparse row", id)
				}
			}
		}
		ids = append(ids, b.IDs...)
		sizes = append(sizes, b.Rows)
	}
	return ids, sizes
}

func TestEveryRowOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for range rounds {
		rows := 1 + r.IntN(40_000)
		if r.IntN(3) == 0 {
			rows = 1 + r.IntN(1500)
		}
		ds := numberedRows(rows)
		batch := 1 + r.IntN(2*min(rows, 900))
		o := BatchOptions{Batch: batch, Shuffle: r.IntN(4) > 0, Seed: r.Uint64(), Epoch: r.IntN(9)}
		name := fmt.Sprintf("seed %d: %d rows, %+v", seed, rows, o)
		whole, _ := walk(t, ds, o)
		sorted := slices.Clone(whole)
		slices.Sort(sorted)
		for i, id := range sorted {
			if id != int64(i) {
				t.Fatalf("%s: row %d is missing or repeated", name, i)
			}
		}
		if len(sorted) != rows {
			t.Fatalf("%s: %d rows seen", name, len(sorted))
		}
		if got, _ := walk(t, streamed{ds}, o); !slices.Equal(got, whole) {
			t.Fatalf("%s: streaming gives another order", name)
		}
		o.Prefetch = 1 + r.IntN(3)
		if got, _ := walk(t, ds, o); !slices.Equal(got, whole) {
			t.Fatalf("%s: prefetching gives another order", name)
		}

		steps := r.IntN(rows/batch + 1)
		tail := o
		tail.From = int64(steps * batch)
		if got, _ := walk(t, streamed{ds}, tail); !slices.Equal(got, whole[tail.From:]) {
			t.Fatalf("%s: resuming from %d does not give the tail", name, tail.From)
		}
		if got, _ := walk(t, ds, tail); !slices.Equal(got, whole[tail.From:]) {
			t.Fatalf("%s: resuming from %d does not give the tail", name, tail.From)
		}

		parts := 1 + r.IntN(5)
		perPart := make([][]int64, parts)
		perSizes := make([][]int, parts)
		for p := range parts {
			po := o
			po.Part, po.Parts = p, parts
			perPart[p], perSizes[p] = walk(t, ds, po)
			if got, _ := walk(t, streamed{ds}, po); !slices.Equal(got, perPart[p]) {
				t.Fatalf("%s: part %d of %d differs when streamed", name, p, parts)
			}
		}
		var joined []int64
		for step := range perSizes[0] {
			for p := range parts {
				n := perSizes[p][step]
				joined = append(joined, perPart[p][:n]...)
				perPart[p] = perPart[p][n:]
			}
		}
		if !slices.Equal(joined, whole) {
			t.Fatalf("%s: %d parts together are not the whole", name, parts)
		}
	}
}

// TestRestOfAnEpoch: what is left of an epoch is the same rows in one update as in many.
func TestRestOfAnEpoch(t *testing.T) {
	rows := numberedRows(100)
	o := BatchOptions{Batch: 10, Shuffle: true, Seed: 3}
	whole, _ := walk(t, rows, o)
	for _, batch := range []int{60, 100, trivium.FullBatch} {
		o.Batch, o.From = batch, 40
		for _, ds := range []Dataset{rows, streamed{rows}} {
			if got, _ := walk(t, ds, o); !slices.Equal(got, whole[40:]) {
				t.Errorf("from row 40 on by %d: %v, want %v", batch, got, whole[40:])
			}
		}
	}
}

func TestOrderIsPure(t *testing.T) {
	ds := numberedRows(3000)
	o := BatchOptions{Batch: 100, Shuffle: true, Seed: 7, Epoch: 2}
	a, _ := walk(t, ds, o)
	b, _ := walk(t, ds, o)
	if !slices.Equal(a, b) {
		t.Error("the same seed and epoch gave two orders")
	}
	other := o
	other.Batch = 77
	if c, _ := walk(t, ds, other); !slices.Equal(a, c) {
		t.Error("the order depends on the batch size")
	}
	for _, change := range []func(*BatchOptions){func(o *BatchOptions) { o.Seed++ }, func(o *BatchOptions) { o.Epoch++ }} {
		d := o
		change(&d)
		if c, _ := walk(t, ds, d); slices.Equal(a, c) {
			t.Errorf("%+v and %+v give the same order", o, d)
		}
	}
	// The first 8 ids, so that a change of the order, which breaks resuming, is noticed.
	want := a[:8]
	if got := fmt.Sprint(want); got != orderOf3000 {
		t.Errorf("order of 3000 rows, seed 7, epoch 2: %s, want %s", got, orderOf3000)
	}
}

const orderOf3000 = "[180 783 2021 2443 939 2435 693 1799]"

func TestLastPolicy(t *testing.T) {
	for _, c := range []struct {
		last  trivium.LastPolicy
		batch int
		want  string
	}{
		{"", 4, "[4 4 2]"},
		{trivium.LastKeep, 4, "[4 4 2]"},
		{trivium.LastDrop, 4, "[4 4]"},
		{trivium.LastDrop, 5, "[5 5]"},
		{"", 20, "[10]"},
		{trivium.LastDrop, 20, "[]"},
		{"", trivium.FullBatch, "[10]"},
		{trivium.LastDrop, 0, "[10]"},
	} {
		for _, ds := range []Dataset{numberedRows(10), streamed{numberedRows(10)}} {
			if _, sizes := walk(t, ds, BatchOptions{Batch: c.batch, Last: c.last}); fmt.Sprint(sizes) != c.want {
				t.Errorf("%v of %d rows by %d: %v, want %s", c.last, 10, c.batch, sizes, c.want)
			}
		}
	}
}

func TestBadBatchOptions(t *testing.T) {
	for _, o := range []BatchOptions{{Batch: -2}, {Last: "pad"}, {From: 11}, {From: -1}, {Part: 2, Parts: 2}, {Part: -1}, {Prefetch: -1}, {Epoch: -1}} {
		var got error
		for _, err := range Batches(context.Background(), numberedRows(10), o) {
			got = err
		}
		var e *Error
		if !errors.As(got, &e) {
			t.Errorf("%+v: %v, want an *Error", o, got)
		}
	}
}

func TestBatchesStop(t *testing.T) {
	for _, ds := range []Dataset{numberedRows(40_000), streamed{numberedRows(40_000)}} {
		for _, prefetch := range []int{0, 2} {
			ctx, cancel := context.WithCancel(context.Background())
			var got error
			n := 0
			for _, err := range Batches(ctx, ds, BatchOptions{Batch: 10, Shuffle: true, Prefetch: prefetch}) {
				if n++; n == 3 {
					cancel()
				}
				got = err
			}
			cancel()
			if !errors.Is(got, context.Canceled) {
				t.Errorf("after cancel: %v", got)
			}
			for range Batches(context.Background(), ds, BatchOptions{Batch: 10, Shuffle: true, Prefetch: prefetch}) {
				break
			}
		}
	}
}

func TestViewsCopyNothing(t *testing.T) {
	ds := numberedRows(1000)
	for b := range Batches(context.Background(), ds, BatchOptions{Batch: 100}) {
		if &b.Inputs[0].Values[0] != &ds.all.Inputs[0].Values[int(b.Inputs[0].Values[0])*2] {
			t.Fatal("a batch in index order is a copy")
		}
	}
}

func TestBatchesDoNotAllocate(t *testing.T) {
	ds := numberedRows(windowRows * 2)
	for _, o := range []BatchOptions{{Batch: 64}, {Batch: 64, Shuffle: true, IDs: true}, {Batch: 64, Shuffle: true, Run: runSerially}} {
		var w Walk
		if err := w.Begin(context.Background(), ds, o); err != nil {
			t.Fatal(err)
		}
		next := func() {
			if b, err := w.Next(context.Background()); b == nil || err != nil {
				t.Fatal(b, err)
			}
		}
		for range 300 { // past the first window, and the growth of sparse buffers
			next()
		}
		if n := testing.AllocsPerRun(100, next); n > 0.05 {
			t.Errorf("%+v: %v allocations a batch", o, n)
		}
		w.End()
	}
}

// TestEpochsDoNotAllocate: a walk's second epoch and those after it take the memory of the first, and have the batches that Batches has.
func TestEpochsDoNotAllocate(t *testing.T) {
	ds := numberedRows(3000)
	for _, o := range []BatchOptions{
		{Batch: trivium.FullBatch},
		{Batch: trivium.FullBatch, IDs: true, Part: 1, Parts: 3},
		{Batch: 1000, Shuffle: true, Run: runSerially},
		{Batch: 1000, Shuffle: true, IDs: true},
		{Batch: 1000},
	} {
		var w Walk
		epoch := func(each func(b *trivium.Batch)) {
			if err := w.Begin(context.Background(), ds, o); err != nil {
				t.Fatal(err)
			}
			defer w.End()
			for {
				b, err := w.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					return
				}
				each(b)
			}
		}
		for o.Epoch = range 3 {
			type rows struct {
				values []float32
				ids    []int64
			}
			of := func(b *trivium.Batch) rows { return rows{slices.Clone(b.Inputs[0].Values), slices.Clone(b.IDs)} }
			var want []rows
			for b, err := range Batches(context.Background(), ds, o) {
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, of(b))
			}
			epoch(func(b *trivium.Batch) {
				if len(want) == 0 || !reflect.DeepEqual(of(b), want[0]) {
					t.Fatalf("%+v: another batch than Batches has", o)
				}
				want = want[1:]
			})
			if len(want) > 0 {
				t.Errorf("%+v: %d batches are missing", o, len(want))
			}
		}
		none := func(*trivium.Batch) {}
		if n := testing.AllocsPerRun(10, func() { o.Epoch++; epoch(none) }); n > 0.5 {
			t.Errorf("%+v: %v allocations an epoch", o, n)
		}
	}
}

func runSerially(n int, f func(i, worker int)) {
	for i := range n {
		f(i, 0)
	}
}

// TestSharedCopy: batches that threads copy together are those that one copies.
func TestSharedCopy(t *testing.T) {
	x := make([]float32, 3000*100)
	for i := range x {
		x[i] = float32(i)
	}
	ds := newMemory(trivium.Schema{}, trivium.Batch{Rows: 3000, Inputs: []trivium.Input{{Name: "x", Shape: []int{100}, Values: x}}})
	o := BatchOptions{Batch: 203, Shuffle: true, Seed: 5}
	shared, calls := o, 0
	shared.Run = func(n int, f func(i, worker int)) {
		calls++
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { f(i, i) })
		}
		wg.Wait()
	}
	sameBatches(t, "shared copies", ds, ds, shared)
	var a, b []float32
	for x := range Batches(context.Background(), ds, o) {
		a = append(a, x.Inputs[0].Values...)
	}
	for x := range Batches(context.Background(), ds, shared) {
		b = append(b, x.Inputs[0].Values...)
	}
	if !slices.Equal(a, b) || calls == 0 {
		t.Errorf("shared copies differ, or none was shared (%d)", calls)
	}
}

// BenchmarkBatches walks MNIST's training set as a loop of training steps does: each batch is followed by about 30 µs of work on all
// threads of a pool. "us/batch" is the time of Batches alone, "us/step" of both.
//
// On two busy virtual cores of an EPYC: index order 0.02 µs a batch; shuffled by the walking goroutine 31 µs (313 KB from main memory)
// of 61 a step; shared with the pool by Run 17 of 46; by a prefetching goroutine 0.2 at best and 27 on average, of 78: it takes the
// core that the pool wants. Hence Prefetch is not the default.
func BenchmarkBatches(b *testing.B) {
	const rows = 60_000
	x := make([]float32, rows*784)
	for i := range x {
		x[i] = float32(i) // else all pages are the one zero page, which is in the cache
	}
	ds := newMemory(trivium.Schema{}, trivium.Batch{
		Rows:   rows,
		Inputs: []trivium.Input{{Name: "x", Shape: []int{784}, Values: x}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: 10, Class: make([]int32, rows)},
	})
	pool := tensor.NewPool(2)
	defer pool.Close()
	sums := make([]float64, 16*pool.Threads())
	work := func(_, worker int) {
		s := 0.0
		for k := range 40_000 {
			s += float64(k)
		}
		sums[16*worker] = s
	}
	for _, c := range []struct {
		name string
		o    BatchOptions
	}{
		{"index", BatchOptions{Batch: 100}},
		{"shuffle", BatchOptions{Batch: 100, Shuffle: true}},
		{"shuffle,run", BatchOptions{Batch: 100, Shuffle: true, Run: pool.Run}},
		{"shuffle,prefetch", BatchOptions{Batch: 100, Shuffle: true, Prefetch: 2}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var inside time.Duration
			for b.Loop() {
				last := time.Now()
				for _, err := range Batches(context.Background(), ds, c.o) {
					if err != nil {
						b.Fatal(err)
					}
					inside += time.Since(last)
					pool.Run(pool.Threads(), work)
					last = time.Now()
				}
			}
			batches := float64(b.N) * float64(rows) / float64(c.o.Batch)
			b.ReportMetric(float64(inside.Nanoseconds())/1e3/batches, "us/batch")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e3/batches, "us/step")
		})
	}
}
