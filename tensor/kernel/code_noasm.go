//go:build !amd64

package kernel

func peakBits(x *float32, n int) uint32 { panic(noAssembly) }

func toInt8(q *byte, x *float32, n int, by float32) { panic(noAssembly) }

func toInt8Keep(q *byte, x *float32, n int, by, scale float32) { panic(noAssembly) }

func fromInt8(dst *float32, q *byte, n int, scale float32) { panic(noAssembly) }

func addInt8(dst *float32, q *byte, n int, scale float32) { panic(noAssembly) }

func absSum(s *[4]float64, x *float32, n int) { panic(noAssembly) }

func squareSum(s *[4]float64, x *float32, n int) { panic(noAssembly) }

func signs(p *byte, x *float32, n int) { panic(noAssembly) }

func keepSigns(x *float32, n int, scale float32) { panic(noAssembly) }

func fromSigns(dst *float32, p *byte, n int, scale float32) { panic(noAssembly) }

func addSigns(dst *float32, p *byte, n int, scale float32) { panic(noAssembly) }

func codes(p *byte, x *float32, groups, width, most int) { panic(noAssembly) }

func fromCodes(dst *float32, p *byte, groups, width, most int, scale float32) { panic(noAssembly) }

func addCodes(dst *float32, p *byte, groups, width, most int, scale float32) { panic(noAssembly) }

func atLeast(at *int32, x *float32, n int, below, from int32) int { panic(noAssembly) }
