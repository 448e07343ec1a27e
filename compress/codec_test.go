package compress_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

// codecs are all codecs, with those of a share at a tenth.
var codecs = []string{"f16", "bf16", "int8", "int8:64", "1bit", "1bit:l2", "topk:0.1", "randomk:0.1", "qsgd:1", "qsgd:7", "qsgd:127", "powersgd:1"}

func parse(t testing.TB, spec string) compress.Codec {
	t.Helper()
	c, err := compress.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func normal(n int, seed uint64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(draw.Normal(seed, 77, uint64(i)))
	}
	return x
}

func Example() {
	c, _ := compress.Parse("topk:1")
	e := compress.NewResidual(3)
	sum := make([]float32, 3)
	for range 3 {
		p, _ := c.Encode(nil, []float32{1, 0.75, 0}, e)
		_ = c.DecodeAdd(sum, p)
		fmt.Println(sum, e.Cells())
	}
	// Output:
	// [1 0 0] [0 0.75 0]
	// [1 1.5 0] [1 0 0]
	// [3 1.5 0] [0 0.75 0]
}

func TestParse(t *testing.T) {
	for _, spec := range codecs {
		if c := parse(t, spec); c.String() != spec {
			t.Errorf("Parse(%q) prints %q", spec, c)
		}
	}
	for _, spec := range []string{"", "none"} {
		if c, err := compress.Parse(spec); c != nil || err != nil {
			t.Errorf("Parse(%q) = %v, %v", spec, c, err)
		}
	}
}

// Case B8 of the bad inputs, and case 18: refused at the start.
func TestParseRefusals(t *testing.T) {
	for _, bad := range []string{
		"zip", "f16:3", "topk", "topk:", "topk:0", "topk:-1", "topk:-0.5", "topk:NaN", "topk:Inf", "topk:1.5", "topk:1e12", "topk:x", "randomk:0", "randomk:NaN",
		"qsgd", "qsgd:0", "qsgd:-1", "qsgd:128", "qsgd:1.5", "qsgd:NaN", "powersgd:0", "powersgd", "powersgd:-2", "int8:0", "int8:-1", "int8:x", "1bit:l3", "1bit:",
	} {
		c, err := compress.Parse(bad)
		if err == nil {
			t.Errorf("Parse(%q) = %v", bad, c)
		} else if !strings.HasPrefix(err.Error(), "compress: ") {
			t.Errorf("Parse(%q): %v", bad, err)
		}
	}
}

func TestCase15OneBitAndTopK(t *testing.T) {
	for _, v := range []struct {
		codec compress.Codec
		x     []float32
		sent  []float32
		kept  []float32
	}{
		{compress.OneBit{}, []float32{1, -3, 2, -2}, []float32{2, -2, 2, -2}, []float32{-1, -1, 0, 0}},
		{compress.OneBit{L2: true}, []float32{1, -3, 2, -2}, []float32{2.1213203, -2.1213203, 2.1213203, -2.1213203}, []float32{-1.1213203, -0.87867975, -0.12132025, 0.12132025}},
		{compress.TopK{Share: 2}, []float32{1, -3, 2, -2}, []float32{0, -3, 2, 0}, []float32{1, 0, 0, -2}},
		{compress.TopK{Share: 0.5}, []float32{1, -1, 1, -1}, []float32{1, -1, 0, 0}, []float32{0, 0, 1, -1}},
	} {
		e := compress.NewResidual(len(v.x))
		p, err := v.codec.Encode(nil, v.x, e)
		if err != nil {
			t.Fatal(err)
		}
		sent := make([]float32, len(v.x))
		if err := v.codec.Decode(sent, p); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(sent) != fmt.Sprint(v.sent) || fmt.Sprint(e.Cells()) != fmt.Sprint(v.kept) {
			t.Errorf("%s of %v: sent %v, kept %v; want %v, %v", v.codec, v.x, sent, e.Cells(), v.sent, v.kept)
		}
	}
}

func TestCase16Error(t *testing.T) {
	x := normal(128*128*64, 5)
	x[7], x[9] = 0, float32(math.Copysign(0, -1))
	for _, v := range []struct {
		spec  string
		bound float64
	}{{"f16", 5e-8}, {"int8", 8e-4}} {
		c := parse(t, v.spec)
		p, err := c.Encode(nil, x, nil)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, len(x))
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		var sum float64
		for i := range x {
			sum += float64(x[i]-y[i]) * float64(x[i]-y[i])
		}
		if mean := sum / float64(len(x)); !(mean < v.bound) {
			t.Errorf("%s: mean squared error %.3g, want below %g", v.spec, mean, v.bound)
		}
	}
	for _, spec := range codecs {
		c := parse(t, spec)
		p, err := c.Encode(nil, make([]float32, 1000), nil)
		if err != nil {
			t.Fatal(err)
		}
		y := normal(1000, 1)
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		for i, v := range y {
			if v != 0 {
				t.Fatalf("%s: zero %d became %v", spec, i, v)
			}
		}
	}
}

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

// A group's sum of rank r is exact too, and what one party misses is in its residual.
func TestFactor(t *testing.T) {
	const rows, cols, rank, parties = 20, 33, 2, 3
	total := make([]float32, rows*cols)
	fs := make([]*compress.Factor, parties)
	ms := make([][]float32, parties)
	for k := range fs {
		f, err := compress.PowerSGD{Rank: rank}.Factor(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		fs[k], ms[k] = f, normal(rows*cols, uint64(k))
	}
	// The parts are of full rank; their sum is not.
	want := lowRank(rows, cols, rank, 3)
	for i := range want {
		ms[2][i] = want[i] - ms[0][i] - ms[1][i]
	}
	sumOf := func(vs [][]float32) {
		for i := range vs[0] {
			s := vs[0][i] + vs[1][i] + vs[2][i]
			for k := range vs {
				vs[k][i] = s
			}
		}
	}
	step := func() [][]float32 {
		left, right, out := make([][]float32, parties), make([][]float32, parties), make([][]float32, parties)
		for k, f := range fs {
			l, err := f.Left(ms[k])
			if err != nil {
				t.Fatal(err)
			}
			left[k] = l
		}
		sumOf(left)
		for k, f := range fs {
			right[k] = f.Right()
		}
		sumOf(right)
		for k, f := range fs {
			out[k] = make([]float32, rows*cols)
			if err := f.Sum(out[k]); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	out := step()
	for k := range out {
		near(t, fmt.Sprintf("party %d", k), out[k], want, 1e-4)
		if fmt.Sprint(out[k]) != fmt.Sprint(out[0]) {
			t.Fatal("two parties have different sums")
		}
	}
	// Σ sent + Σ e = Σ g over more steps of full rank.
	for i := range total {
		total[i] = want[i] - out[0][i]
	}
	for s := range uint64(20) {
		for k := range ms {
			ms[k] = normal(rows*cols, 100+10*s+uint64(k))
			for i, v := range ms[k] {
				total[i] += v
			}
		}
		for i, v := range step()[0] {
			total[i] -= v
		}
	}
	for i := range total {
		for _, f := range fs {
			total[i] -= f.Residual().Cells()[i]
		}
	}
	near(t, "the residuals", total, make([]float32, len(total)), 2e-4)
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

func TestCase18Edges(t *testing.T) {
	x := normal(10, 1)
	for _, c := range []compress.Codec{
		compress.TopK{},
		compress.TopK{Share: 11},
		compress.TopK{Share: -1},
		compress.TopK{Share: compress.Share(math.NaN())},
		compress.RandomK{},
		compress.RandomK{Share: 11},
		compress.QSGD{},
		compress.QSGD{Levels: -1},
		compress.QSGD{Levels: 1000},
		compress.PowerSGD{},
		compress.PowerSGD{Rank: 4},
		compress.PowerSGD{Rank: 3, Rows: 2, Cols: 5},
		compress.PowerSGD{Rank: 1, Rows: 3, Cols: 5},
		compress.Int8{Block: -1},
	} {
		if err := compress.Fits(c, len(x)); err == nil {
			t.Errorf("%#v fits 10 values", c)
		}
		e := compress.NewResidual(10)
		if p, err := c.Encode([]byte("x"), x, e); err == nil || string(p) != "x" || e.Norm() != 0 {
			t.Errorf("%#v: Encode returned %q, %v; residual %v", c, p, err, e.Norm())
		}
	}
	for _, spec := range codecs {
		c := parse(t, spec)
		if _, err := c.Encode(nil, x, compress.NewResidual(9)); err == nil {
			t.Errorf("%s takes a residual of another length", spec)
		}
		for _, n := range []int{0, 1, 2, 7, 8, 9, 255, 256, 257, 511, 512, 513, 1030} {
			if compress.Fits(c, n) != nil {
				continue
			}
			x := normal(n, uint64(n))
			p, err := c.Encode(nil, x, nil)
			if err != nil || len(p) > c.MaxLen(n) {
				t.Fatalf("%s: %d values: %d bytes of %d, %v", spec, n, len(p), c.MaxLen(n), err)
			}
			y := normal(n, 1)
			z := append([]float32(nil), y...)
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			if err := c.DecodeAdd(z, p); err != nil {
				t.Fatal(err)
			}
			for i, v := range normal(n, 1) {
				if v+y[i] != z[i] {
					t.Fatalf("%s: value %d: Decode gives %v, DecodeAdd %v over %v", spec, i, y[i], z[i], v)
				}
			}
			// Every cut is refused, and leaves dst alone.
			for cut := range p {
				y := normal(n, 2)
				if err := c.Decode(y, p[:cut]); err == nil {
					t.Fatalf("%s: %d of %d bytes are taken for %d values", spec, cut, len(p), n)
				}
				if fmt.Sprint(y) != fmt.Sprint(normal(n, 2)) {
					t.Fatalf("%s: a refused message has changed dst", spec)
				}
				if cut > 40 {
					break
				}
			}
			if c.Decode(make([]float32, n), append(p, 0)) == nil {
				t.Fatalf("%s: a byte too many is taken for %d values", spec, n)
			}
		}
	}
}

// A value that is not finite shows in what is decoded, and never stays in a residual.
func TestNotFinite(t *testing.T) {
	for _, spec := range codecs {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			c := parse(t, spec)
			x := normal(100, 4)
			x[50] = bad
			e := compress.NewResidual(100)
			p, err := c.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, 100)
			if err := c.Decode(y, p); err != nil {
				t.Fatal(err)
			}
			seen := math.IsNaN(float64(y[50])) || math.IsInf(float64(y[50]), 0)
			if !seen && !strings.HasPrefix(spec, "randomk") && !strings.HasPrefix(spec, "powersgd") {
				t.Errorf("%s: %v became %v", spec, bad, y[50])
			}
			if n := e.Norm(); n-n != 0 {
				t.Errorf("%s: %v: the residual's norm is %v", spec, bad, n)
			}
		}
	}
}

func TestTopKAgainstSort(t *testing.T) {
	for seed := range uint64(300) {
		n := 1 + int(draw.Below(seed, 1, 0, 200))
		k := 1 + int(draw.Below(seed, 1, 1, uint64(n)))
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(int(draw.Below(seed, 2, uint64(i), 9))-4) * 1e-3 // many ties
		}
		left := map[int]bool{}
		for i := range x {
			larger := 0
			for j := range x {
				if a, b := math.Abs(float64(x[j])), math.Abs(float64(x[i])); a > b || a == b && j < i {
					larger++
				}
			}
			left[i] = larger < k
		}
		c := compress.TopK{Share: compress.Share(k)}
		p, err := c.Encode(nil, x, nil)
		if err != nil {
			t.Fatal(err)
		}
		y := make([]float32, n)
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		for i := range x {
			if want := x[i]; left[i] != (y[i] != 0) && want != 0 {
				t.Fatalf("seed %d: top-%d of %v is %v", seed, k, x, y)
			}
		}
	}
}

// Without replacement: k of n values sent means k different ones.
func TestRandomKCovers(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 16, 17, 100, 1000} {
		x := make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		for _, k := range []int{1, (n + 1) / 2, n} {
			p, err := compress.RandomK{Share: compress.Share(k)}.Encode(nil, x, compress.NewResidual(n))
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, n)
			if err := (compress.RandomK{Share: 1}).DecodeAdd(y, p); err != nil {
				t.Fatal(err)
			}
			sent := 0
			for _, v := range y {
				if v != 0 && v != 1 {
					t.Fatalf("%d of %d: a value was sent %v times", k, n, v)
				}
				sent += int(v)
			}
			if sent != k {
				t.Fatalf("%d of %d: %d were sent", k, n, sent)
			}
		}
	}
}

// TestRandomKSamePlaces: parties that have made as many calls send the same places, so that a sum of what they send can be encoded again
// without loss.
func TestRandomKSamePlaces(t *testing.T) {
	const n, calls = 100, 50
	c := compress.RandomK{Share: 0.1}
	ranks := []*compress.Residual{compress.NewResidual(n), compress.NewResidual(n), compress.NewResidual(n)}
	owner := compress.NewResidual(n)
	var sent, given float64
	for call := range calls {
		sum := make([]float32, n)
		for r, e := range ranks {
			x := normal(n, uint64(call*len(ranks)+r))
			for i := range x {
				x[i] = float32(math.Round(float64(100 * x[i]))) // whole numbers add up without rounding
				given += float64(x[i])
			}
			p, err := c.Encode(nil, x, e)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.DecodeAdd(sum, p); err != nil {
				t.Fatal(err)
			}
		}
		p, err := c.Encode(nil, sum, owner)
		if err != nil {
			t.Fatal(err)
		}
		if norm := owner.Norm(); norm != 0 {
			t.Fatalf("call %d: encoding the sum again lost %v", call, norm)
		}
		y := make([]float32, n)
		if err := c.Decode(y, p); err != nil {
			t.Fatal(err)
		}
		for _, v := range y {
			sent += float64(v)
		}
	}
	for _, e := range ranks {
		for _, v := range e.Cells() {
			sent += float64(v)
		}
	}
	if sent != given {
		t.Errorf("%v was sent or is kept, of %v", sent, given)
	}
}
