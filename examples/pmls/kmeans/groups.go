package kmeans

import (
	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
)

// Groups are points around (±10, ±10), normal with deviation 1, each group in its turn.
func Groups(rows int, seed uint64) data.Dataset {
	b := trivium.Batch{Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{2}}}}
	for i := range uint64(rows) {
		for k := range uint64(2) {
			at := 10*(1-2*float64(i>>k&1)) + draw.Normal(seed, stream+1+k, i)
			b.Inputs[0].Values = append(b.Inputs[0].Values, float32(at))
		}
	}
	return data.Memory(trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{2}}}}, b)
}
