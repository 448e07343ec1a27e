package elementary

import (
	"math"
	"testing"
)

// TestCoefficients: they have the bits that fdlibm's comments give beside the decimals. A slip in one of high order is too small for
// TestAccuracy, and TestSameBits would make it last.
func TestCoefficients(t *testing.T) {
	for i, c := range []struct {
		value float64
		bits  uint64
	}{
		{lg1, 0x3FE5555555555593},
		{lg2, 0x3FD999999997FA04},
		{lg3, 0x3FD2492494229359},
		{lg4, 0x3FCC71C51D8E78AF},
		{lg5, 0x3FC7466496CB03DE},
		{lg6, 0x3FC39A09D078C69F},
		{lg7, 0x3FC2F112DF3E5244},
		{exp1, 0x3FC555555555553E},
		{exp2, 0xBF66C16C16BEBD93},
		{exp3, 0x3F11566AAF25DE2C},
		{exp4, 0xBEBBBD41C5D26BF1},
		{exp5, 0x3E66376972BEA4D0},
		{sin1, 0xBFC5555555555549},
		{sin2, 0x3F8111111110F8A6},
		{sin3, 0xBF2A01A019C161D5},
		{sin4, 0x3EC71DE357B1FE7D},
		{sin5, 0xBE5AE5E68A2B9CEB},
		{sin6, 0x3DE5D93A5ACFD57C},
		{cos1, 0x3FA555555555554C},
		{cos2, 0xBF56C16C16C15177},
		{cos3, 0x3EFA01A019CB1590},
		{cos4, 0xBE927E4F809C52AD},
		{cos5, 0x3E21EE9EBDB4B1C4},
		{cos6, 0xBDA8FAE9BE8838D4},
	} {
		if got := math.Float64bits(c.value); got != c.bits {
			t.Errorf("coefficient %d is %v (%#x), published are the bits %#x", i, c.value, got, c.bits)
		}
	}
}
