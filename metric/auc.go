package metric

import (
	"math"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/wire"
)

// An AUC is the exact area under the receiver operating characteristic: the share of weight, over all pairs of a positive and a
// negative row, in which the positive one scores higher; a tie counts half. It keeps every row, 8 bytes each, and its value does not
// depend on the order in which they came.
type AUC struct {
	outputs trivium.Outputs
	rows    []uint64 // see key
	nans    int      // rows with a score that is not a number
}

// key packs a row into one word that sorts by score, then label, then weight: the score's bits in an order-preserving form, one bit
// for the label, and the weight's bits, whose sign is always 0.
func key(score float32, positive bool, weight float32) uint64 {
	s := math.Float32bits(score + 0) // -0 + 0 is 0
	if s>>31 == 1 {
		s = ^s
	} else {
		s |= 1 << 31
	}
	k := uint64(s)<<32 | uint64(math.Float32bits(weight+0))
	if positive {
		k |= 1 << 31
	}
	return k
}

// Name returns "auc".
func (a *AUC) Name() string { return "auc" }

// HigherIsBetter returns true.
func (a *AUC) HigherIsBetter() bool { return true }

// Reset forgets all rows.
func (a *AUC) Reset() { a.rows, a.nans = a.rows[:0], 0 }

// Add accounts for b's rows.
func (a *AUC) Add(o trivium.Outputs, b trivium.Batch, scores []float32) error {
	a.rows = slices.Grow(a.rows, b.Rows)
	return eachRow("auc", a.outputs, o, &b, scores, func(i int, w float64, s []float32) error {
		c, err := class(&b.Labels, i, 2)
		if err != nil {
			return err
		}
		score := s[0]
		if len(s) == 2 { // a score for each class: what speaks for class 1 is by how much it is ahead
			score = s[1] - s[0]
		}
		if score != score {
			a.nans++
			return nil
		}
		a.rows = append(a.rows, key(score, c == 1, float32(w)))
		return nil
	})
}

// Merge takes in m's rows.
func (a *AUC) Merge(m trivium.Metric) error {
	x, ok := m.(*AUC)
	if !ok {
		return mergeError("auc", m)
	}
	a.rows = append(a.rows, x.rows...)
	a.nans += x.nans
	return nil
}

// Value returns the area; NaN over rows of one class, or where a score was not a number.
func (a *AUC) Value() float64 {
	if a.nans > 0 {
		return math.NaN()
	}
	slices.Sort(a.rows)
	var area, below, positives float64 // below: weight of the negatives with a lower score
	for i := 0; i < len(a.rows); {
		score := a.rows[i] >> 32
		var tied [2]float64
		for ; i < len(a.rows) && a.rows[i]>>32 == score; i++ {
			tied[a.rows[i]>>31&1] += float64(math.Float32frombits(uint32(a.rows[i]) &^ (1 << 31)))
		}
		area += float64(tied[1] * (below + tied[0]/2))
		below += tied[0]
		positives += tied[1]
	}
	return area / (positives * below)
}

// AppendBinary appends the encoded rows to p.
func (a *AUC) AppendBinary(p []byte) ([]byte, error) {
	return wire.AppendUint64s(wire.AppendUvarint(header(p, "auc"), uint64(a.nans)), a.rows), nil
}

// UnmarshalBinary replaces a's rows by those in p.
func (a *AUC) UnmarshalBinary(p []byte) error {
	r := open("auc", p)
	nans := r.Uvarint("rows without a score", math.MaxInt32)
	rows := r.Uint64s("rows", math.MaxInt)
	if err := r.Done(); err != nil {
		return err
	}
	a.rows, a.nans = rows, int(nans)
	return nil
}
