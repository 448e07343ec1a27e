package kernel

// These take n values, a multiple of codeUnit and not 0, or groups of eight, not 0: code_amd64.s.

//go:noescape
func peakBits(x *float32, n int) uint32

//go:noescape
func toInt8(q *byte, x *float32, n int, by float32)

//go:noescape
func toInt8Keep(q *byte, x *float32, n int, by, scale float32)

//go:noescape
func fromInt8(dst *float32, q *byte, n int, scale float32)

//go:noescape
func addInt8(dst *float32, q *byte, n int, scale float32)

//go:noescape
func absSum(s *[4]float64, x *float32, n int)

//go:noescape
func squareSum(s *[4]float64, x *float32, n int)

//go:noescape
func signs(p *byte, x *float32, n int)

//go:noescape
func keepSigns(x *float32, n int, scale float32)

//go:noescape
func fromSigns(dst *float32, p *byte, n int, scale float32)

//go:noescape
func addSigns(dst *float32, p *byte, n int, scale float32)

//go:noescape
func codes(p *byte, x *float32, groups, width, most int)

//go:noescape
func fromCodes(dst *float32, p *byte, groups, width, most int, scale float32)

//go:noescape
func addCodes(dst *float32, p *byte, groups, width, most int, scale float32)

//go:noescape
func atLeast(at *int32, x *float32, n int, below, from int32) int
