package data_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// A table goes through a transform that is fitted to its training rows.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "cars.csv")
	if err := os.WriteFile(path, []byte("label,colour,age\nsold,red,2\nkept,blue,6\nsold,red,4\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	splits, err := data.Open(ctx, trivium.Data{Source: path, Categorical: []string{"colour"}, Scale: "minmax", Train: "0:2", Test: "2:3"}, data.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer splits.Close()
	fmt.Println("classes:", splits.Schema().Labels.Names)
	for b, err := range data.Batches(ctx, splits.Train, data.BatchOptions{Batch: 2}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(b.Rows, "rows:", b.Input("x").Values, b.Labels.Class)
	}
	// Output:
	// classes: [kept sold]
	// 2 rows: [0 1 0 1 0 1] [1 0]
}

// Two workers share each update of 4 rows; together they see every row once.
func ExampleBatches() {
	x := trivium.Input{Name: "x", Form: trivium.Dense, Shape: []int{1}, Values: []float32{0, 1, 2, 3, 4, 5, 6, 7}}
	ds := data.Memory(trivium.Schema{}, trivium.Batch{Rows: 8, Inputs: []trivium.Input{x}})
	for part := range 2 {
		for b, err := range data.Batches(context.Background(), ds, data.BatchOptions{Batch: 4, Shuffle: true, Seed: 1, Part: part, Parts: 2}) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("worker", part, "rows", b.Inputs[0].Values)
		}
	}
	// Output:
	// worker 0 rows [7 3]
	// worker 0 rows [5 4]
	// worker 1 rows [0 6]
	// worker 1 rows [2 1]
}

// A mistake names its place.
func ExampleError() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "a.libsvm")
	if err := os.WriteFile(path, []byte("1 1:0.5 7:1\n0 4:1 2:1\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	_, err = data.Open(context.Background(), trivium.Data{Source: path}, data.Options{})
	var e *data.Error
	if errors.As(err, &e) {
		fmt.Println(filepath.Base(e.File), e.Line, e.Msg)
	}
	// Output: a.libsvm 2 index 2 follows 4: want ascending indices
}
