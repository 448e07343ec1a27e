package collective_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/transport"
)

// A slowCodec takes its time for each piece, which passes in a bubble of synctest alone.
type slowCodec struct {
	compress.BF16
	encode, decode time.Duration
}

// Encode implements compress.Codec.
func (c slowCodec) Encode(dst []byte, src []float32, e *compress.Residual) ([]byte, error) {
	time.Sleep(c.encode)
	return c.BF16.Encode(dst, src, e)
}

// DecodeAdd implements compress.Codec.
func (c slowCodec) DecodeAdd(dst []float32, src []byte) error {
	time.Sleep(c.decode)
	return c.BF16.DecodeAdd(dst, src)
}

// A slowStream sends one byte after the other.
type slowStream struct {
	transport.Stream
	each time.Duration // for 1,024 bytes
	link chan struct{} // whose one place who sends has: to wait for a mutex stops the time of a bubble
}

// Send implements transport.Stream.
func (s *slowStream) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	s.link <- struct{}{}
	time.Sleep(s.each * time.Duration(len(f.Payload)) / 1024)
	<-s.link
	return s.Stream.Send(ctx, to, f)
}

// TestMeasureCodec: ranks that find different costs of a codec agree on those of the slowest, for each length; where they share hosts, also on what
// sums cost within them.
func TestMeasureCodec(t *testing.T) {
	for name, hosts := range map[string][][]int{"": nil, "two and two": {{0, 1}, {2, 3}}, "three and one": {{1, 2, 3}, {0}}, "one each": {{0}, {1}, {2}, {3}}} {
		synctest.Test(t, func(t *testing.T) {
			const size = 4
			lens := []int{40_000, 2000, 4 << 20}
			if testing.Short() {
				lens = lens[:2] // the last takes a second, in the full run
			}
			costs := make([][]collective.Coding, size)
			w := openWith(t, inMemory, size, collective.Options{}, hosts, func(s transport.Stream) transport.Stream {
				return &slowStream{Stream: s, each: 10 * time.Microsecond, link: make(chan struct{}, 1)}
			})
			defer w.close()
			w.must(func(r int, g *collective.Group) (err error) {
				codec := slowCodec{encode: time.Duration(1+r) * time.Millisecond, decode: time.Duration(9-r) * time.Millisecond}
				costs[r], err = g.MeasureCodec(t.Context(), codec, lens)
				return err
			})
			piece := [3]float64{10_000, 500, 1 << 19} // what a rank owns, or as much as fits a frame
			within := [2]float64{}
			switch name {
			case "two and two": // each rank of a host carries a half to the other, and a half back
				within = [2]float64{1, 1.2}
			case "three and one": // the first carries a half of everything; a host's sum goes up a tree, and down
				piece, within = [3]float64{20_000, 500, 1 << 19}, [2]float64{1.5, 5}
			}
			for r := range costs {
				if len(costs[r]) != len(lens) {
					t.Fatalf("%s: rank %d has %d results", name, r, len(costs[r]))
				}
				for i, x := range costs[r] {
					if x != costs[0][i] {
						t.Errorf("%s: rank %d has %+v, rank 0 %+v", name, r, x, costs[0][i])
					}
					if !(math.Abs(x.Encode*piece[i]-4e-3) <= 1e-6) || !(math.Abs(x.Decode*piece[i]-9e-3) <= 1e-6) || x.Share != 0.5 {
						t.Errorf("%s: of %d values, in pieces of %v: %+v", name, lens[i], piece[i], x)
					}
					if d := x.Within / (10e-6 / 1024); d < within[0] || d > within[1] {
						t.Errorf("%s: a byte within a host costs %v of what it costs a link", name, d)
					}
				}
			}
			w.must(func(_ int, g *collective.Group) error { // it goes on
				y := []float32{1}
				err := g.AllReduce32(t.Context(), y)
				if err == nil && y[0] != size {
					err = fmt.Errorf("the sum is %v", y[0])
				}
				return err
			})
		})
	}
}

// TestMeasureCodecOfNone: lengths that there are none of cost nothing, and a length of which nothing is left is an error at all ranks.
func TestMeasureCodecOfNone(t *testing.T) {
	w := open(t, inMemory, 2, collective.Options{})
	defer w.close()
	w.must(func(_ int, g *collective.Group) error {
		step := g.Step()
		if list, err := g.MeasureCodec(t.Context(), compress.F16{}, nil); err != nil || list != nil || g.Step() != step {
			return fmt.Errorf("%v, %w, step %d", list, err, g.Step()-step)
		}
		return nil
	})
	for r, err := range w.each(func(_ int, g *collective.Group) error {
		_, err := g.MeasureCodec(t.Context(), compress.F16{}, []int{0})
		return err
	}) {
		if err == nil {
			t.Errorf("rank %d measures nothing", r)
		}
	}
}

// TestPredict: on a slow link a sum is predicted to be faster with a codec, on a fast one without; of a part of it for each rank it takes half.
func TestPredict(t *testing.T) {
	const n = 1 << 18
	half := collective.Coding{Encode: 0.3e-9, Decode: 0.3e-9, Share: 0.5}
	w := open(t, inMemory, 2, collective.Options{})
	defer w.close()
	for _, v := range []struct {
		beta float64
		pays bool
	}{{80e-9, true}, {8e-9, true}, {0.1e-9, false}} {
		w.must(func(_ int, g *collective.Group) error {
			g.SetCosts(collective.Costs{Alpha: 20e-6, Beta: v.beta, Gamma: 0.1e-9})
			plain, coded := g.Predict(collective.Op{}, n, collective.Coding{}), g.Predict(collective.Op{Codec: compress.F16{}}, n, half)
			part := g.Predict(collective.Op{Kind: collective.ReduceScatter}, n, collective.Coding{})
			if plain == 0 || coded == 0 || (coded < plain) != v.pays {
				return fmt.Errorf("%v s for a byte: predicted %v, with a codec %v", v.beta, plain, coded)
			}
			if want := g.Costs().PredictKind(collective.ReduceScatter, 2, 4*n, 1); part != want {
				return fmt.Errorf("%v s for a byte: a part of the sum %v, want %v", v.beta, part, want)
			}
			return nil
		})
	}
	if w.groups[0].Shares() {
		t.Error("the ranks share memory")
	}
	collective.ShareHere(w.groups, make([]byte, 1<<20))
	if !w.groups[1].Shares() {
		t.Error("the ranks share no memory")
	}
}
