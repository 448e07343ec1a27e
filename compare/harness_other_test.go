//go:build !linux

package compare

// processorTimes and threadTime are not known here: BenchmarkHarness is Linux's.
func processorTimes() [2]float64 { return [2]float64{} }

func threadTime() float64 { return 0 }
