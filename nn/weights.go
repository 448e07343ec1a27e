package nn

import (
	"math"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/graph"
)

// Initial weights are those of the evaluation (docs: the paper's tasks): the weight matrix of layer ℓ = 1, 2, … has at row-major index
// j the draw u(seed, 8+ℓ, j) times a limit that depends on its fans, so that every peer system can be given the same ones. Biases, and
// the only layer of a regression, are zero. Streams 9 to 40 are layers of networks.

// heUniform fills the weights of hidden layer number layer: limit √(6/in) (He et al. 2015, for rectifiers).
func heUniform(w []float32, seed uint64, layer, in int) {
	uniform(w, seed, layer, math.Sqrt(6/float64(in)))
}

// glorotUniform fills the weights of an output or recurrent layer: limit √(6/(in+out)) (Glorot and Bengio 2010).
func glorotUniform(w []float32, seed uint64, layer, in, out int) {
	uniform(w, seed, layer, math.Sqrt(6/float64(in+out)))
}

// uniform draws from [−limit, limit). The product is rounded once, from float64.
func uniform(w []float32, seed uint64, layer int, limit float64) {
	stream := uint64(8 + layer)
	for j := range w {
		w[j] = float32(float64(draw.Unit(seed, stream, uint64(j))) * limit)
	}
}

// initVariable draws Variable number i of a graph by its own Init.
func initVariable(dst []float32, v *graph.Variable, seed uint64, i int) {
	stream, scale := uint64(8+1+i), 1/math.Sqrt(v.Init.Scale.Fan(v.Shape()))
	for j := range dst {
		dst[j] = float32(v.Init.At(seed, stream, uint64(j)) * scale)
	}
}
