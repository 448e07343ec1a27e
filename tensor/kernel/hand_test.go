package kernel

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestHandOver(t *testing.T) {
	src := make([]byte, 64*handMost+1000)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	dst := make([]byte, len(src)+200)
	ways := []func(dst, src []byte){HandOver, func(dst, src []byte) { around(dst, src[:len(dst)]) }}
	for _, n := range []int{0, 1, 63, 64, 65, 127, 128, 1000, 64 * handMost, 64*handMost + 999} {
		for _, at := range []int{0, 1, 32, 63, 64} {
			for _, from := range []int{0, 1, 20} {
				if n+from > len(src) {
					continue
				}
				for i, way := range ways {
					clear(dst)
					way(dst[at:at+n], src[from:])
					if !bytes.Equal(dst[at:at+n], src[from:from+n]) || bytes.Count(dst[:at], []byte{0}) != at || bytes.Count(dst[at+n:], []byte{0}) != len(dst)-at-n {
						t.Errorf("way %d, %d bytes from %d to %d: not what they were, or more", i, n, from, at)
					}
				}
			}
		}
	}
}

// BenchmarkHandOver writes what another core reads, in turns: the time of both, by HandOver and by copy.
func BenchmarkHandOver(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("not run here: it takes two cores")
	}
	for _, n := range []int{64 << 10, 318 << 10, 4 << 20} {
		for _, how := range []string{"HandOver", "copy"} {
			b.Run(fmt.Sprintf("%dKiB/%s", n>>10, how), func(b *testing.B) {
				src, dst, own := make([]byte, n), make([]byte, n), make([]byte, n)
				var turn atomic.Int64 // odd: the reader's; negative: it ends
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						switch k := turn.Load(); {
						case k < 0:
							return
						case k%2 == 1:
							copy(own, dst)
							turn.Store(k + 1)
						}
					}
				}()
				best := time.Hour
				for b.Loop() {
					start := time.Now()
					if how == "copy" {
						copy(dst, src)
					} else {
						HandOver(dst, src)
					}
					for k := turn.Add(1); turn.Load() == k; {
					}
					best = min(best, time.Since(start))
				}
				turn.Store(-1)
				<-done
				b.ReportMetric(float64(best.Nanoseconds())/1e3, "best-µs")
			})
		}
	}
}
