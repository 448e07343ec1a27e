package data

import (
	"context"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
)

// adultGroups are the sizes of the 14 one-hot groups of the a9a set (Adult income, binarised by Platt): 123 columns.
var adultGroups = [...]int{5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41}

const (
	adultRows    = 26_000
	adultTest    = 6_561
	adultStream  = 5 // of Hash: choices; 6: weights; 7: noise
	adultColumns = 123
)

// Adult generates a set of the shape of a9a, for machines without it: 123 binary columns in 14 groups of which each row has one, 14
// entries a row, and classes −1 and +1 that a linear model tells apart as well as it does there: about one row in four is positive, and
// a logistic regression reaches an accuracy of about 0.85. Rows of Data is the number of training rows; a quarter as many test rows
// follow. It says nothing about incomes.
func Adult(ctx context.Context, d trivium.Data) (*Splits, error) { return adult(ctx, d, false) }

// adult makes all rows at once: they are small, and sparse ones have no places before they are made.
func adult(ctx context.Context, d trivium.Data, _ bool) (*Splits, error) {
	train, test := int64(adultRows), int64(adultTest)
	if d.Rows > 0 {
		train, test = d.Rows, max(1, d.Rows/4)
	}
	if train > 1<<32 {
		return nil, setting("rows", "want at most %d, found %d", int64(1)<<32, train)
	}
	weights := adultWeights()
	schema := tableSchema([]int{adultColumns}, []string{"-1", "1"})
	schema.Inputs[0].Form = trivium.CSR
	const n = int64(len(adultGroups))
	fill := func(ctx context.Context, b *trivium.Batch, from, to int64) error {
		in, rows := &b.Inputs[0], to-from
		in.Ptr, in.Index = extend(in.Ptr[:0], int(rows)+1), extend(in.Index[:0], int(rows*n))
		b.Labels.Class = extend(b.Labels.Class[:0], int(rows))
		in.Ptr[0] = 0
		return parallel(ctx, rows, 1024, func(lo, hi int64) error {
			for r := lo; r < hi; r++ {
				in.Ptr[r+1] = (r + 1) * n
				b.Labels.Class[r] = adultRow(in.Index[r*n:(r+1)*n], weights, uint64(from+r))
				for i := range n {
					in.Values[r*n+i] = 1
				}
			}
			return nil
		})
	}
	g := &generated{schema: schema, values: int(n), rowBytes: 8*n + 12, fill: fill}
	note := fmt.Sprintf("a stand-in for the adult set, %s + %s rows of %d binary columns", grouped(train), grouped(test), adultColumns)
	return g.splits(ctx, note, train, train, test)
}

func adultWeights() (w [adultColumns]int64) {
	for j := range w {
		w[j] = draw.Int24(generatorSeed, 6, uint64(j))
	}
	return w
}

// adultRow writes the columns of row i and returns its class: whether the sum of its columns' weights and some noise exceeds a bound
// that one row in four exceeds. It uses integers only, so that all machines agree.
func adultRow(index []int32, weights [adultColumns]int64, i uint64) int32 {
	var sum int64
	first := 0
	for g, n := range adultGroups {
		// The product of two uniform numbers favours a group's first columns, as some occupations are more common than others.
		h := draw.Bits(generatorSeed, adultStream, i*16+uint64(g))
		a, b := h>>40, h>>16&(1<<24-1)
		c := first + int(a*b>>24*uint64(n)>>24)
		index[g] = int32(c)
		sum += weights[c]
		first += n
	}
	var noise int64 // nearly normal: the sum of 4 uniform numbers, standard deviation 2/√3 · 2²³
	for k := range uint64(4) {
		noise += draw.Int24(generatorSeed, 7, i*4+k)
	}
	if sum+noise*adultNoise/16 > adultBound {
		return 1
	}
	return 0
}

const (
	adultNoise = 18 // sixteenths: how much of the class the columns do not say
	adultBound = 1_030_000
)
