package data

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivium-ml/trivium"
)

// fortranFile is an NPY file in Fortran order of the array whose numbers, of size bytes each, are body's in C order.
func fortranFile(descr string, shape []int, size int, body []byte) []byte {
	moved := make([]byte, len(body))
	index := make([]int, len(shape))
	for from := 0; from < len(body); from += size {
		at, stride := 0, size
		for d, i := range index {
			at, stride = at+i*stride, stride*shape[d]
		}
		copy(moved[at:], body[from:from+size])
		for d := len(shape) - 1; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				break
			}
			index[d] = 0
		}
	}
	extents := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]") + ","
	return bytes.Replace(npyFile(descr, extents, moved), []byte("False, "), []byte("True,  "), 1)
}

// TestFortranOrder: an array that NumPy wrote in Fortran order, such as what pandas' to_numpy often gives, has the rows of the same array in C order,
// held in memory and streamed, and a mistake in it has the place of the number in the file.
func TestFortranOrder(t *testing.T) {
	const rows = 700
	for name, c := range map[string]struct {
		descr string
		row   []int
		size  int
	}{
		"matrix":   {"<f8", []int{5}, 8},
		"bytes":    {"|u1", []int{7}, 1},
		"images":   {"|u1", []int{3, 4}, 1},
		"channels": {">i2", []int{2, 3, 4}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			n, shape := c.size*rows, append([]int{rows}, c.row...)
			for _, d := range c.row {
				n *= d
			}
			body := make([]byte, n)
			for i := range body {
				body[i] = byte(i * 7919 >> 3)
			}
			if c.descr == "<f8" {
				for i := 7; i < n; i += 8 {
					body[i], body[i-1] = 0x3f, body[i-1]&0x3f // small numbers, none of them NaN
				}
			}
			labels := npyFile("|u1", fmt.Sprintf("%d,", rows), slices.Repeat([]byte{0, 1}, rows/2))
			extents := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]")
			source := func(x []byte) trivium.Data {
				dir := t.TempDir()
				write(t, dir, "y.npy", labels)
				return trivium.Data{Source: write(t, dir, "x.npy", x)}
			}
			plain, other := source(npyFile(c.descr, extents, body)), source(fortranFile(c.descr, shape, c.size, body))
			want := open(t, plain, Options{})
			for _, budget := range []int64{0, 8000} {
				got := open(t, other, Options{Budget: budget})
				if diff := cmp.Diff(want.Transform, got.Transform); diff != "" {
					t.Errorf("budget %d: another transform:\n%s", budget, diff)
				}
				sameBatches(t, name, want.Train, got.Train, BatchOptions{Batch: 64, Shuffle: true, IDs: true})
				sameBatches(t, name, want.Test, got.Test, BatchOptions{Batch: 60})
			}
		})
	}
}

// TestFortranMistake: the place of a mistake is that in the file, of a table and of rows that have a file of labels.
func TestFortranMistake(t *testing.T) {
	file := fortranFile("<f4", []int{3, 2}, 4, float32s(0, 1, 1, nan, 0, 2)) // as columns: 0 1 0, 1 NaN 2
	dir := t.TempDir()
	source := write(t, dir, "x.npy", file)
	for _, number := range []string{`column "1"`, "element 1"} {
		want := fmt.Sprintf("row 1, offset %d, %s", len(file)-2*4, number)
		if _, err := Open(t.Context(), trivium.Data{Source: source, Train: ":"}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		write(t, dir, "y.npy", npyFile("|u1", "3,", []byte{0, 1, 0}))
	}
}
