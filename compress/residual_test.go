package compress_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/trivium-ml/trivium/compress"
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
