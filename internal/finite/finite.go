// Package finite tells numbers from what is none: NaN and the infinities.
package finite

// Is reports whether x is a number.
func Is[T float32 | float64](x T) bool { return x-x == 0 } // of NaN and the infinities the difference is NaN

// FirstNot returns the index of the first element of x that is no number, or -1.
func FirstNot[T float32 | float64](x []T) int {
	for i, v := range x {
		if !Is(v) {
			return i
		}
	}
	return -1
}

// OrNil is x as JSON can have it, which knows numbers alone: nil, and so null, is none.
func OrNil(x float64) *float64 {
	if !Is(x) {
		return nil
	}
	return &x
}
