package coding

import (
	"math"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
)

// Blocks is the 9×9 matrix with diagonal 3×3 blocks of 1, 2 and 3, repeated to so many rows.
func Blocks(rows int) data.Dataset {
	x := make([]float32, 9*rows)
	for i := range rows {
		g := i % 9 / 3
		for k := range 3 {
			x[9*i+3*g+k] = float32(g + 1)
		}
	}
	return memory(rows, 9, x)
}

// Atoms are rows that are each one of n parts in n dimensions, which point anywhere and have length 1.
func Atoms(rows, n int, seed uint64) data.Dataset {
	x := make([]float32, 0, rows*n)
	for i := range uint64(rows) {
		part := draw.Below(seed, partStream+1, i, uint64(n))
		row, sum := make([]float64, n), 0.0
		for k := range row {
			row[k] = draw.Normal(seed, partStream+2, part*uint64(n)+uint64(k))
			sum += row[k] * row[k]
		}
		for _, y := range row {
			x = append(x, float32(y/math.Sqrt(sum)))
		}
	}
	return memory(rows, n, x)
}

func memory(rows, n int, x []float32) data.Dataset {
	b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{n}, Values: x}}}
	return data.Memory(trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{n}}}}, b)
}
