package compress_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/trivium-ml/trivium/compress"
)

// The mean over R draws is within four deviations of the value, and error feedback loses nothing.
func TestCase17Unbiased(t *testing.T) {
	const rounds, n = 10000, 24
	x := normal(n, 3)
	for _, codec := range []func(seed uint64) compress.Codec{
		func(s uint64) compress.Codec { return compress.QSGD{Levels: 1, Seed: s} },
		func(s uint64) compress.Codec { return compress.QSGD{Levels: 5, Seed: s} },
		func(s uint64) compress.Codec { return compress.RandomK{Share: 3, Seed: s} },
		func(s uint64) compress.Codec { return compress.RandomK{Share: 0.5, Seed: s} },
	} {
		var mean, square [n]float64
		var p []byte
		y := make([]float32, n)
		for r := range uint64(rounds) {
			c := codec(r)
			p, _ = c.Encode(p[:0], x, nil)
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			for i, v := range y {
				mean[i] += float64(v) / rounds
				square[i] += float64(v) * float64(v) / rounds
			}
		}
		for i := range x {
			sigma := math.Sqrt(max(0, square[i]-mean[i]*mean[i]))
			if diff := math.Abs(mean[i] - float64(x[i])); diff > 4*sigma/math.Sqrt(rounds)+1e-6 {
				t.Errorf("%s: value %d: mean %v of %v, deviation %v", codec(0), i, mean[i], x[i], sigma)
			}
		}
	}
}

// Also what differs between calls of one codec: without a residual, the draw follows the values.
func TestRandomDrawsDiffer(t *testing.T) {
	c := compress.RandomK{Share: 10}
	a, _ := c.Encode(nil, normal(1000, 1), nil)
	b, _ := c.Encode(nil, normal(1000, 2), nil)
	again, _ := c.Encode(nil, normal(1000, 1), nil)
	if bytes.Equal(a[:8], b[:8]) || !bytes.Equal(a, again) {
		t.Error("two vectors have one draw, or one vector has two")
	}
	e := compress.NewResidual(1000)
	a, _ = c.Encode(nil, make([]float32, 1000), e)
	b, _ = c.Encode(nil, make([]float32, 1000), e)
	if bytes.Equal(a[:8], b[:8]) {
		t.Error("two calls with one residual have one draw")
	}
}

func TestCase17Feedback(t *testing.T) {
	const n = 300
	for _, spec := range codecs {
		c := parse(t, spec)
		e := compress.NewResidual(n)
		given, sent := make([]float64, n), make([]float64, n)
		y := make([]float32, n)
		most := 0.0
		for r := range uint64(200) {
			x := normal(n, r)
			p, err := c.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			if len(p) > c.MaxLen(n) {
				t.Fatalf("%s: %d bytes, MaxLen says %d", spec, len(p), c.MaxLen(n))
			}
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			for i := range x {
				given[i] += float64(x[i])
				sent[i] += float64(y[i])
			}
			most = max(most, e.Norm())
		}
		for i, v := range e.Cells() {
			if diff := math.Abs(sent[i] + float64(v) - given[i]); diff > 1e-5*math.Max(10, math.Abs(given[i])) {
				t.Errorf("%s: value %d: given %v, sent %v, kept %v", spec, i, given[i], sent[i], v)
				break
			}
		}
		if most > 40*math.Sqrt(n) {
			t.Errorf("%s: the residual grew to %v", spec, most)
		}
	}
}

func TestCase17PowerSGDExact(t *testing.T) {
	const rows, cols = 40, 30
	for rank := 1; rank <= 4; rank++ {
		m := lowRank(rows, cols, rank, 11)
		c := compress.PowerSGD{Rank: rank, Rows: rows, Cols: cols}
		p, err := c.Encode(nil, m, nil)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, len(m))
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("rank %d", rank), y, m, 1e-4)
	}
}

func lowRank(rows, cols, rank int, seed uint64) []float32 {
	a, b := normal(rows*rank, seed), normal(cols*rank, seed+1)
	m := make([]float32, rows*cols)
	for i := range m {
		for k := range rank {
			m[i] += a[i/cols*rank+k] * b[i%cols*rank+k]
		}
	}
	return m
}

func near(t *testing.T, what string, got, want []float32, within float64) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= within) {
			t.Fatalf("%s: value %d: %v, want %v", what, i, got[i], want[i])
		}
	}
}
