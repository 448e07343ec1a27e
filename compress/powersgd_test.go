package compress_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
)

// TestPowerSGDAgainstDefinition: the left factor in a message is orthonormal, the right one is Mᵀ·P, what is decoded is P·Qᵀ and what is
// kept the rest: of flat vectors, whose last row may be short, and of matrices of all forms.
func TestPowerSGDAgainstDefinition(t *testing.T) {
	for _, c := range []struct{ n, rows, cols, rank int }{
		{1, 0, 0, 1},
		{3, 0, 0, 1},
		{100, 0, 0, 3},
		{101, 0, 0, 3},
		{7001, 0, 0, 4},
		{30_000, 0, 0, 9},
		{200, 2, 100, 2},
		{200, 100, 2, 2},
		{5000, 1, 5000, 1},
		{5000, 5000, 1, 1},
		{2278, 67, 34, 34},
	} {
		name := fmt.Sprintf("%+v", c)
		codec := compress.PowerSGD{Rank: c.rank, Rows: c.rows, Cols: c.cols}
		rows, cols := c.rows, c.cols
		if rows == 0 {
			cols = int(math.Ceil(math.Sqrt(float64(c.n))))
			rows = (c.n + cols - 1) / cols
		}
		e := compress.NewResidual(c.n)
		for round := range uint64(2) {
			x := normal(c.n, round+uint64(c.n))
			m := make([]float32, c.n)
			for i, v := range x {
				m[i] = v + e.Cells()[i]
			}
			message, err := codec.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			f := make([]float32, len(message)/4)
			for i := range f {
				f[i] = math.Float32frombits(binary.LittleEndian.Uint32(message[4*i:]))
			}
			p, q := f[:rows*c.rank], f[rows*c.rank:]
			for k := range c.rank {
				for l := range k + 1 {
					var dot float64
					for i := range rows {
						dot += float64(p[i*c.rank+k]) * float64(p[i*c.rank+l])
					}
					if want := float64(min(1, 1-min(1, k-l))); !(math.Abs(dot-want) <= 1e-6) {
						t.Fatalf("%s: columns %d and %d of the left factor have the product %v", name, k, l, dot)
					}
				}
			}
			for j := range cols {
				for k := range c.rank {
					var want float64
					for i := range rows {
						if at := i*cols + j; at < c.n {
							want += float64(m[at]) * float64(p[i*c.rank+k])
						}
					}
					if d := math.Abs(float64(q[j*c.rank+k]) - want); d > 1e-4 {
						t.Fatalf("%s: the right factor has %v at %d, %d; Mᵀ·P has %v", name, q[j*c.rank+k], j, k, want)
					}
				}
			}
			y, z := make([]float32, c.n), normal(c.n, 5)
			if err := codec.Decode(y, message); err != nil {
				t.Fatal(err)
			}
			if err := codec.DecodeAdd(z, message); err != nil {
				t.Fatal(err)
			}
			for i, before := range normal(c.n, 5) {
				var s float32 // each product rounded, and added in order
				for k := range c.rank {
					s += float32(p[i/cols*c.rank+k] * q[i%cols*c.rank+k])
				}
				if y[i] != s || z[i] != before+s || e.Cells()[i] != m[i]-s {
					t.Fatalf("%s: value %d of P·Qᵀ is %v: decoded %v, added to %v %v, kept of %v %v", name, i, s, y[i], before, z[i], m[i], e.Cells()[i])
				}
			}
		}
	}
}

// TestPowerSGDOverflow: a matrix whose product with the start overflows is no zero, of which nothing would ever be sent.
func TestPowerSGDOverflow(t *testing.T) {
	x := make([]float32, 10_000)
	for i := 0; i < len(x); i += 101 { // the diagonal
		x[i] = 3e38
	}
	c := compress.PowerSGD{Rank: 1}
	p, err := c.Encode(nil, x, compress.NewResidual(len(x)))
	if err != nil {
		t.Fatal(err)
	}
	y := make([]float32, len(x))
	if err := c.Decode(y, p); err != nil {
		t.Fatal(err)
	}
	if y[0] == y[0] {
		t.Errorf("%v became %v", x[0], y[0])
	}
}

// TestPowerSGDScale: what is sent of larger or smaller matrices is larger or smaller, and nothing else, from call to call.
func TestPowerSGDScale(t *testing.T) {
	const n, rounds = 400, 4
	c := compress.PowerSGD{Rank: 2}
	sent := func(scale float32) (all []float32) {
		e := compress.NewResidual(n)
		for round := range rounds {
			x := normal(n, uint64(round))
			for i := range x {
				x[i] *= scale
			}
			p, err := c.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, n)
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			all = append(all, y...)
		}
		return all
	}
	want := sent(1)
	for _, scale := range []float32{0x1p-80, 0x1p-70, 0x1p70, 0x1p100} { // about 1e-24 to 1e30
		for i, v := range sent(scale) {
			if v != want[i]*scale {
				t.Fatalf("times %g: value %d of round %d is %v, want %v", scale, i%n, i/n, v, want[i]*scale)
			}
		}
	}
}
