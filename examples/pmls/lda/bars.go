package lda

import (
	"math/rand/v2"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// Side is how many words a bar has, and how many bars there are in each direction: the words are the cells of a square.
const Side = 5

// Bar returns the words of true topic k: a row of the square for k below Side, else a column.
func Bar(k int) (words []int) {
	for i := range Side {
		if k < Side {
			words = append(words, k*Side+i)
		} else {
			words = append(words, i*Side+k-Side)
		}
	}
	return words
}

// Bars are documents of so many words, of topics that are the bars of a square: a document's topics are from a Dirichlet distribution of
// parameter 1, each word is one of its topic's, by equal chance (Griffiths and Steyvers 2004).
func Bars(documents, words int, seed uint64) data.Dataset {
	r := rand.New(rand.NewPCG(seed, 0))
	b := trivium.Batch{Rows: documents, Inputs: []trivium.Input{{Name: "words", Form: trivium.CSR, Shape: []int{Side * Side}, Ptr: []int64{0}}}}
	in := &b.Inputs[0]
	for range documents {
		share := make([]float64, 2*Side)
		var sum float64
		for k := range share {
			share[k] = r.ExpFloat64()
			sum += share[k]
		}
		var drawn []int
		for range words {
			u, k := r.Float64()*sum, 0
			for ; k < len(share)-1 && u >= share[k]; k++ {
				u -= share[k]
			}
			drawn = append(drawn, Bar(k)[r.IntN(Side)])
		}
		slices.Sort(drawn)
		for i, w := range drawn {
			if i > 0 && drawn[i-1] == w {
				in.Values[len(in.Values)-1]++
				continue
			}
			in.Index, in.Values = append(in.Index, int32(w)), append(in.Values, 1)
		}
		in.Ptr = append(in.Ptr, int64(len(in.Index)))
	}
	return data.Memory(trivium.Schema{Inputs: []trivium.InputSpec{{Name: in.Name, Form: in.Form, Shape: in.Shape}}}, b)
}
