package compare

import "testing"

// TestSecondsWord: times that differ by a tenth are told apart, however short they are.
func TestSecondsWord(t *testing.T) {
	for x, want := range map[float64]string{0.00045: "0.45 ms", 0.00112: "1.12 ms", 0.0123: "12.3 ms", 0.2204: "220 ms", 1.234: "1.23 s", 123.4: "123 s"} {
		if got := secondsWord(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}
