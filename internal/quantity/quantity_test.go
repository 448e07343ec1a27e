package quantity_test

import (
	"math"
	"testing"

	"github.com/trivium-ml/trivium/internal/quantity"
)

func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 0.38: "0.38 B", 7.9: "7.9 B", 999: "999 B", 1000: "1000 B", 1023: "1023 B", 1023.6: "1 KiB", 1024: "1 KiB",
		1500: "1.46 KiB", 64 << 10: "64 KiB", 100 << 10: "100 KiB", 1023 << 10: "1023 KiB", 1<<20 - 1: "1 MiB",
		1_210_000: "1.15 MiB", 452 << 20: "452 MiB", 4 << 30: "4 GiB", 25.3e9: "23.6 GiB", 1 << 60: "1 EiB", 1 << 73: "8192 EiB",
	} {
		if got := quantity.Bytes(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
	if got := quantity.Bytes(1 << 40); got != "1 TiB" {
		t.Errorf("an int: %q", got)
	}
}

func TestNumbers(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct{ got, want string }{
		{quantity.Short(0), "0"},
		{quantity.Short(21132), "21.1k"},
		{quantity.Short(443), "443"},
		{quantity.Short(999.96), "1k"},
		{quantity.Short(999.4), "999"},
		{quantity.Short(-0.0123), "−0.0123"},
		{quantity.Short(1e6), "1M"},
		{quantity.Short(424600), "425k"},
		{quantity.Short(1.5e13), "15T"},
		{quantity.Short(2e20), "2e20"},
		{quantity.Short(1.2e-7), "1.2e−7"},
		{quantity.Short(8.98e-5), "8.98e−5"},
		{quantity.Short(1.2345e15), "1.23e15"},
		{quantity.Short(nan), "–"},
		{quantity.Short(inf), "–"},
		{quantity.Figure(0), "0"},
		{quantity.Figure(0.89664), "0.8966"},
		{quantity.Figure(0.9), "0.9"},
		{quantity.Figure(1.5384e-5), "1.538e−5"},
		{quantity.Figure(-542783278.976), "−5.428e8"},
		{quantity.Figure(9999.6), "1e4"},
		{quantity.Figure(nan), "–"},
		{quantity.Grouped(21132, 0), "21,132"},
		{quantity.Grouped(1234567.891, 2), "1,234,567.89"},
		{quantity.Grouped(-999, 0), "−999"},
		{quantity.Grouped(-0.001, 2), "0.00"},
		{quantity.Grouped(123, 0), "123"},
		{quantity.Grouped(nan, 0), "–"},
		{quantity.Seconds(850e-9), "850 ns"},
		{quantity.Seconds(0.0032), "3.2 ms"},
		{quantity.Seconds(0.9999), "1 s"},
		{quantity.Seconds(1.5), "1.5 s"},
		{quantity.Seconds(125), "2 min 05 s"},
		{quantity.Seconds(3599.9), "1 h 00 min"},
		{quantity.Seconds(3720), "1 h 02 min"},
		{quantity.Seconds(-161), "−2 min 41 s"},
		{quantity.Seconds(0), "0 s"},
		{quantity.Seconds(nan), "–"},
		{quantity.Ratio(1.638), "1.64 ×"},
		{quantity.Percent(0.153), "15.3 %"},
		{quantity.Percent(0.05), "5 %"},
		{quantity.Percent(0), "0 %"},
		{quantity.Percent(12), "1,200 %"},
		{quantity.Bytes(nan), "–"},
	} {
		if c.got != c.want {
			t.Errorf("%q; want %q", c.got, c.want)
		}
	}
}

// TestCount: one is not a plural, and large numbers are in groups.
func TestCount(t *testing.T) {
	for got, want := range map[string]string{
		quantity.Count(0, "row"):               "0 rows",
		quantity.Count(1, "class"):             "1 class",
		quantity.Count(uint64(2), "row"):       "2 rows",
		quantity.Count(int64(1234), "class"):   "1,234 classes",
		quantity.Count(1234567, "lost update"): "1,234,567 lost updates",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTick(t *testing.T) {
	for _, c := range []struct {
		v, step, largest float64
		want             string
	}{
		{0, 5, 20, "0"},
		{1e-9, 5, 20, "0"},
		{15, 5, 20, "15"},
		{1.5, 0.5, 3, "1.5"},
		{2, 0.5, 3, "2.0"},
		{5000, 5000, 20000, "5k"},
		{2500, 2500, 5000, "2,500"},
		{-2e6, 1e6, 2e6, "−2M"},
		{3e-9, 1e-9, 5e-9, "3e−9"},
	} {
		if got := quantity.Tick(c.v, c.step, c.largest); got != c.want {
			t.Errorf("%v of steps of %v up to %v: %q, want %q", c.v, c.step, c.largest, got, c.want)
		}
	}
}
