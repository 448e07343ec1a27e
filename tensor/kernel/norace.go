//go:build !race

package kernel

const raceEnabled = false

func reads[T Float]([]T, bool, int, int, int) {}
