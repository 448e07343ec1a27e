package graph_test

import (
	"fmt"
	"testing"

	. "github.com/trivium-ml/trivium/graph"
)

// The cost of a node must not depend on how many there are: compare ns/node of the sizes.
func BenchmarkBuildEncodeDecode(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(chain(b, n).Encode()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/node")
		})
	}
}
