package collective

import "testing"

// TestSealOfOtherOrder: two operations at each other's tags have another sum, also where their prints differ in few bits.
func TestSealOfOtherOrder(t *testing.T) {
	seal := func(print, tag uint32) uint32 {
		return (&operation{job: &job{print: print}, tag: tag}).seal()
	}
	for tag := uint32(1); tag < 1000; tag++ {
		for bit := range 32 {
			a, b := uint32(0x12345678), uint32(0x12345678)^1<<bit
			if seal(a, 0)+seal(b, tag) == seal(b, 0)+seal(a, tag) {
				t.Fatalf("prints %#x and %#x at tags 0 and %d, and the other way round, have one sum", a, b, tag)
			}
		}
	}
}
