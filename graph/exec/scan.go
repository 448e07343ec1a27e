package exec

// scanCode is the compiled body of a Scan.
type scanCode struct {
	body   *Program
	wanted []bool
}

func bindScan(b *bound) {}
