package compress_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/draw"
)

// A run that is saved and resumed sends the same bytes as one that goes on.
func TestResidualState(t *testing.T) {
	const n = 64
	for _, spec := range codecs {
		c := parse(t, spec)
		e := compress.NewResidual(n)
		step := func(e *compress.Residual, s uint64) []byte {
			e.SetRate(1 / float64(1+s))
			p, err := c.Encode(nil, normal(n, s), e)
			if err != nil {
				t.Fatal(err)
			}
			for from := 0; from < n; from += n / 2 { // and in pieces
				if p, err = c.Encode(p, normal(n/2, s), e.Range(from, from+n/2)); err != nil {
					t.Fatal(err)
				}
			}
			return p
		}
		for s := range uint64(5) {
			step(e, s)
		}
		resumed := compress.NewResidual(n)
		if err := resumed.SetState(e.AppendState(nil)); err != nil {
			t.Fatal(err)
		}
		for s := uint64(5); s < 8; s++ {
			if a, b := step(e, s), step(resumed, s); !bytes.Equal(a, b) {
				t.Fatalf("%s: the resumed run differs in step %d", spec, s)
			}
		}
	}
}

// TestResidualSnapshot: what was encoded since is as if it had not been, and the next encoding sends what it would have sent.
func TestResidualSnapshot(t *testing.T) {
	const n = 64
	for _, spec := range codecs {
		c := parse(t, spec)
		e := compress.NewResidual(n)
		encode := func(s uint64) []byte {
			p, err := c.Encode(nil, normal(n, s), e)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		encode(0)
		before := e.AppendState(nil)
		restore := e.Snapshot(make([]float32, n))
		first := encode(1)
		encode(2)
		restore()
		if !bytes.Equal(e.AppendState(nil), before) {
			t.Errorf("%s: the residual is another", spec)
		}
		if !bytes.Equal(encode(1), first) {
			t.Errorf("%s: the same values are encoded otherwise", spec)
		}
	}
}

// TestResidualStates: the states of several are taken all or none, also where the first would fit.
func TestResidualStates(t *testing.T) {
	list := func(lens ...int) (list []*compress.Residual) {
		for i, n := range lens {
			e := compress.NewResidual(n)
			e.Take(normal(n, uint64(i)))
			list = append(list, e)
		}
		return list
	}
	saved := compress.AppendStates(nil, list(5, 7))
	now := []*compress.Residual{compress.NewResidual(5), compress.NewResidual(7)}
	if err := compress.SetStates(now, saved); err != nil || !bytes.Equal(compress.AppendStates(nil, now), saved) {
		t.Errorf("what was saved has not come back: %v", err)
	}
	broken := bytes.Clone(saved)
	broken[len(broken)-1]++ // the number of parts of the last
	for name, v := range map[string]struct {
		list []*compress.Residual
		p    []byte
	}{
		"the second is longer":    {list(5, 8), saved},
		"there are more":          {list(5, 7, 1), saved},
		"there are fewer":         {list(5), saved},
		"the end is missing":      {list(5, 7), saved[:len(saved)-1]},
		"a length is cut":         {list(5, 7), saved[:7]},
		"the second is malformed": {list(5, 7), broken},
	} {
		for _, e := range v.list {
			e.Take(e.Cells()) // other values than the saved ones
		}
		before := compress.AppendStates(nil, v.list)
		if err := compress.SetStates(v.list, v.p); err == nil {
			t.Errorf("%s: no error", name)
		}
		if !bytes.Equal(compress.AppendStates(nil, v.list), before) {
			t.Errorf("%s: refused, and some are others now", name)
		}
	}
}

// TestSnapshotOfReleased: what was released since a snapshot is kept again after it, and is released once more.
func TestSnapshotOfReleased(t *testing.T) {
	e := compress.NewResidual(4)
	e.Take([]float32{1, 2, 3, 4})
	restore := e.Snapshot(make([]float32, 4))
	e.Release(make([]float32, 4))
	restore()
	x := make([]float32, 4)
	if e.Release(x); !slices.Equal(x, []float32{1, 2, 3, 4}) {
		t.Errorf("released %v", x)
	}
}

func TestResidualRefusals(t *testing.T) {
	e := compress.NewResidual(3)
	copy(e.Cells(), []float32{1, 2, 3})
	state := e.AppendState(nil)
	for _, bad := range [][]byte{nil, state[:len(state)-1], append(state[:len(state):len(state)], 0), compress.NewResidual(4).AppendState(nil)} {
		if err := e.SetState(bad); err == nil {
			t.Errorf("%x is taken", bad)
		}
	}
	if fmt.Sprint(e.Cells()) != "[1 2 3]" {
		t.Errorf("refused state changed the residual to %v", e.Cells())
	}
}

// What was dropped at rate 0.1 counts as much when the rate is 0.05: twice the gradient.
func TestResidualRate(t *testing.T) {
	e := compress.NewResidual(2)
	e.SetRate(0.1)
	copy(e.Cells(), []float32{1, -4})
	e.SetRate(0.05)
	e.SetRate(0)
	e.SetRate(0.05)
	if fmt.Sprint(e.Cells()) != "[2 -8]" {
		t.Errorf("found %v", e.Cells())
	}
}

// A residual moves in any cut of its cells: the pieces go where the cells go.
func TestResidualMoves(t *testing.T) {
	e := compress.NewResidual(10)
	copy(e.Cells(), normal(10, 1))
	a, b := compress.NewResidual(4), compress.NewResidual(6)
	copy(a.Cells(), e.Cells()[:4])
	copy(b.Cells(), e.Cells()[4:])
	if got := fmt.Sprint(append(append([]float32(nil), a.Cells()...), b.Cells()...)); got != fmt.Sprint(e.Cells()) {
		t.Error(got)
	}
	if p := e.Range(2, 5); &p.Cells()[0] != &e.Cells()[2] || e.Range(2, 5) != p || e.Range(0, 10) != e {
		t.Error("a range does not share its cells, or is made twice")
	}
}

// TestRangeOfRestored: a range of a range of a residual that was restored is where it was.
func TestRangeOfRestored(t *testing.T) {
	e, again := compress.NewResidual(10), compress.NewResidual(10)
	copy(e.Cells(), normal(10, 1))
	e.Range(4, 9)
	if err := again.SetState(e.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	if p := again.Range(4, 9).Range(1, 3); len(p.Cells()) != 2 || &p.Cells()[0] != &again.Cells()[5] || p != again.Range(5, 7) {
		t.Errorf("cells 5 and 6 of %v are %v", again.Cells(), p.Cells())
	}
}

// TestResidualComesBack: after a cut of other ranges, a range that is summed again gives back what was kept of it meanwhile; and what is
// encoded of a range of a range is saved with the whole.
func TestResidualComesBack(t *testing.T) {
	e, c := compress.NewResidual(100), parse(t, "1bit")
	encode := func(from, to int) {
		t.Helper()
		if _, err := c.Encode(nil, normal(to-from, 3), e.Range(from, to)); err != nil {
			t.Fatal(err)
		}
	}
	release := func(from, to int) {
		t.Helper()
		want, got := slices.Clone(e.Cells()[from:to]), make([]float32, to-from)
		e.Range(from, to).Release(got)
		if !slices.Equal(got, want) || slices.ContainsFunc(e.Cells()[from:to], func(v float32) bool { return v != 0 }) {
			t.Fatalf("of [%d, %d) came back %v, and %v is still kept; want %v and zeros", from, to, got, e.Cells()[from:to], want)
		}
	}
	encode(50, 100)
	release(0, 50)
	release(50, 100)
	for _, cut := range [][2]int{{0, 30}, {30, 60}, {49, 50}, {0, 100}} {
		encode(cut[0], cut[1])
		release(0, 50)
		release(50, 100)
		release(0, 100)
	}
	e.Range(40, 60).Take(normal(20, 4))
	release(0, 50)
	release(50, 100)
	encode(20, 70)
	if _, err := parse(t, "randomk:0.1").Encode(nil, normal(10, 3), e.Range(20, 70).Range(5, 15)); err != nil {
		t.Fatal(err)
	}
	release(0, 100)
	encode(20, 70)
	resumed := compress.NewResidual(100)
	if err := resumed.SetState(e.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	if e.Range(20, 70).Range(5, 15) != e.Range(25, 35) {
		t.Error("one range has two residuals")
	}
	a, _ := parse(t, "randomk:0.1").Encode(nil, normal(10, 3), e.Range(25, 35))
	b, _ := parse(t, "randomk:0.1").Encode(nil, normal(10, 3), resumed.Range(25, 35))
	if !bytes.Equal(a, b) {
		t.Error("what was encoded of a range of a range is not in the state")
	}
}

// TestResidualStateZeros: runs of zeros of every length come back, zeros below zero too, and long ones take no room.
func TestResidualStateZeros(t *testing.T) {
	for n := range 70 {
		for seed := range uint64(20) {
			e, again := compress.NewResidual(n), compress.NewResidual(n)
			for i := range e.Cells() {
				switch draw.Below(seed, 6, uint64(i)/(1+seed), 3) { // runs of seed + 1
				case 0:
					e.Cells()[i] = float32(i)
				case 1:
					e.Cells()[i] = float32(math.Copysign(0, -1))
				}
			}
			if err := again.SetState(e.AppendState(nil)); err != nil {
				t.Fatalf("%d cells, seed %d: %v", n, seed, err)
			}
			for i, v := range e.Cells() {
				if math.Float32bits(again.Cells()[i]) != math.Float32bits(v) {
					t.Fatalf("%d cells, seed %d: cell %d is %v, was %v", n, seed, i, again.Cells()[i], v)
				}
			}
		}
	}
	e := compress.NewResidual(100_000)
	copy(e.Cells()[50_000:], normal(1000, 1))
	if n := len(e.AppendState(nil)); n > 4100 {
		t.Errorf("%d bytes for 1000 values among zeros", n)
	}
}
