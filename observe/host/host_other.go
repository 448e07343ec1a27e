//go:build !linux

package host

// describe knows nothing beyond what Go knows.
func describe(Options, *Facts) error { return nil }

func readFigures(Options, *Figures) error { return nil }
