// Package median has the figure in the middle, which a few that other work has disturbed do not move.
package median

import "slices"

// Of returns the median of x, which it leaves as it is; of an even number, the mean of the two in the middle. x is not empty.
func Of[T ~int64 | ~float64](x []T) T {
	x = append(make([]T, 0, 16), x...) // a few need no memory of the heap: Width takes medians between steps of training
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
