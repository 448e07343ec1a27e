//go:build !race

package kernel

const raceEnabled = false

func read[T any]([]T) {}

func wrote[T any]([]T) {}

func reads[T Float]([]T, bool, int, int, int) {}
