package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestSum compares with hash/crc32 at every length and start that the kernel treats in its own way.
func TestSum(t *testing.T) {
	t.Logf("folding in registers: %v", folds)
	if Sum([]byte("123456789")) != 0xe3069283 { // the catalogue's check value of CRC-32C
		t.Errorf("the sum of 123456789 is %#x, want 0xe3069283", Sum([]byte("123456789")))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 2048+64)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	for n := range 2049 {
		for _, from := range []int{0, 1, rng.IntN(64)} {
			p, before := buf[from:from+n], rng.Uint32()
			if got, want := UpdateSum(before, p), crc32.Update(before, castagnoli, p); got != want {
				t.Fatalf("%d bytes from %d on, after %#x: %#x, want %#x", n, from, before, got, want)
			}
		}
	}
}

// TestSumSplit: however a long message is cut, its sum is the same.
func TestSumSplit(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	for range 200 {
		p := buf[rng.IntN(len(buf)):]
		want := crc32.Checksum(p, castagnoli)
		var s uint32
		for rest := p; len(rest) > 0; {
			n := min(1+rng.IntN(1<<(1+rng.IntN(20))), len(rest))
			s, rest = UpdateSum(s, rest[:n]), rest[n:]
		}
		cut := rng.IntN(len(p) + 1)
		if whole := Sum(p[:cut], nil, p[cut:]); s != want || whole != want {
			t.Fatalf("seed %d: %d bytes in pieces: %#x, in two: %#x, want %#x", seed, len(p), s, whole, want)
		}
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("short"), uint16(0), uint8(0), uint32(0))
	f.Add([]byte("a text"), uint16(3000), uint8(5), uint32(7))
	f.Fuzz(func(t *testing.T, p []byte, times uint16, from uint8, before uint32) {
		for len(p) > 0 && len(p) < int(times) {
			p = append(p, p...)
		}
		p = p[min(int(from), len(p)):]
		if got, want := UpdateSum(before, p), crc32.Update(before, castagnoli, p); got != want {
			t.Fatalf("%d bytes after %#x: %#x, want %#x", len(p), before, got, want)
		}
	})
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []struct {
		name  string
		bytes int
	}{{"256", 256}, {"512", 512}, {"1KiB", 1 << 10}, {"4KiB", 4 << 10}, {"128KiB", 128 << 10}, {"4MiB", 4 << 20}} {
		buf := make([]byte, n.bytes)
		for i := range buf {
			buf[i] = byte(i)
		}
		for _, by := range []struct {
			name string
			sum  func([]byte) uint32
		}{
			{"here", func(p []byte) uint32 { return UpdateSum(0, p) }},
			{"hash-crc32", func(p []byte) uint32 { return crc32.Update(0, castagnoli, p) }},
		} {
			b.Run(n.name+"/"+by.name, func(b *testing.B) {
				b.SetBytes(int64(n.bytes))
				for b.Loop() {
					by.sum(buf)
				}
			})
		}
	}
}
