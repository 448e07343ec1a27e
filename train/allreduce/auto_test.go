package allreduce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/transport"
)

// TestPays: a codec runs from 4 KiB on, where both times are predicted and that with it is clearly shorter.
func TestPays(t *testing.T) {
	for _, v := range []struct {
		cells        int
		plain, coded time.Duration
		want         bool
	}{
		{1 << 20, 90 * time.Millisecond, 50 * time.Millisecond, true},
		{1 << 20, 50 * time.Millisecond, 90 * time.Millisecond, false},
		{1 << 20, 119 * time.Millisecond, 100 * time.Millisecond, false}, // which predictions are not sure of
		{1 << 20, 121 * time.Millisecond, 100 * time.Millisecond, true},
		{1024, 2 * time.Millisecond, time.Millisecond, true},
		{1023, 2 * time.Millisecond, time.Millisecond, false},
		{1 << 20, time.Second, 0, false}, // nobody knows
		{1 << 20, 0, time.Second, false},
		{1 << 20, 0, 0, false},
	} {
		if got := (choice{cells: v.cells, plain: v.plain, coded: v.coded}).pays(); got != v.want {
			t.Errorf("%d cells, %v as they are and %v with a codec: it runs: %v", v.cells, v.plain, v.coded, got)
		}
	}
}

// A tardyCodec is a codec on a processor that is slow: each rank finds other rates.
type tardyCodec struct {
	compress.Codec
	takes time.Duration // for a piece
}

// Encode implements compress.Codec.
func (c tardyCodec) Encode(dst []byte, src []float32, e *compress.Residual) ([]byte, error) {
	for begin := time.Now(); time.Since(begin) < c.takes; {
	}
	return c.Codec.Encode(dst, src, e)
}

// TestWeigh: by costs that are made up, a codec runs for what is long where links are slow, and nowhere where they are fast, or the codec is slow at
// any rank; and all ranks choose the same, though each has measured other rates.
func TestWeigh(t *testing.T) {
	layout, err := trivium.NewLayout( // its parts are the tensors
		trivium.Spec{Name: "first", Shape: []int{900}}, trivium.Spec{Name: "rows", Shape: []int{10, 10}, RowSparse: true},
		trivium.Spec{Name: "middle", Shape: []int{1500}}, trivium.Spec{Name: "more rows", Shape: []int{10, 10}, RowSparse: true},
		trivium.Spec{Name: "last", Shape: []int{60_000}},
	)
	if err != nil {
		t.Fatal(err)
	}
	slow, fast := collective.Costs{Alpha: 30e-6, Beta: 80e-9, Gamma: 0.1e-9}, collective.Costs{Alpha: 30e-6, Beta: 0.02e-9, Gamma: 0.1e-9}
	crawling := collective.Costs{Alpha: 30e-6, Beta: 8e-6, Gamma: 0.1e-9} // beside which any codec is fast, also on a busy machine
	middling := collective.Costs{Alpha: 20e-3, Beta: 8e-6, Gamma: 0.1e-9}
	for _, v := range []struct {
		name    string
		costs   collective.Costs
		codec   string
		takes   [2]time.Duration
		sharded bool
		want    []int // cells of the parts that are encoded, the last first
	}{
		{name: "slow links", costs: crawling, codec: "f16", want: []int{60_000, 1500}},
		{name: "slow to begin with", costs: middling, codec: "f16", want: []int{60_000}},
		{name: "fast links", costs: fast, codec: "f16"},
		{name: "rates differ", costs: crawling, codec: "f16", takes: [2]time.Duration{0, 20 * time.Millisecond}, want: []int{60_000}},
		{name: "one is slow", costs: slow, codec: "f16", takes: [2]time.Duration{0, 5 * time.Millisecond}},
		{name: "the other is", costs: slow, codec: "f16", takes: [2]time.Duration{5 * time.Millisecond, 0}},
		{name: "it fits one", costs: crawling, codec: "topk:1000", want: []int{60_000}},
		{name: "it fits none", costs: crawling, codec: "topk:1000000"},
		{name: "sharded", costs: crawling, codec: "topk:0.01", sharded: true, want: []int{60_000, 1500}},
		{name: "sharded, half", costs: slow, codec: "f16", sharded: true}, // as many bytes as half of the sum for each
	} {
		groups := pair(t)
		codec, err := compress.Parse(v.codec)
		if err != nil {
			t.Fatal(err)
		}
		var found [2][]int
		var wait sync.WaitGroup
		for r, g := range groups {
			wait.Go(func() {
				g.SetCosts(v.costs)
				x := &exchange{g: g, workers: len(groups), rank: r}
				c := codec
				if v.takes != [2]time.Duration{} {
					c = tardyCodec{codec, v.takes[r]}
				}
				a, err := x.weigh(context.Background(), layout, c, v.sharded)
				if err != nil {
					t.Error(err)
					return
				}
				parts := 0
				for _, c := range a.choices {
					if parts += c.parts; a.encodes(c.cells) {
						found[r] = append(found[r], c.cells)
					}
				}
				if parts != 3 || a.pays() != (len(v.want) > 0) {
					t.Errorf("%s: rank %d has %+v", v.name, r, a.choices)
				}
			})
		}
		wait.Wait()
		for r := range found {
			if !slices.Equal(found[r], v.want) {
				t.Errorf("%s: rank %d has parts of %v cells encoded, want %v", v.name, r, found[r], v.want)
			}
		}
	}
}

// pair is a group of two ranks in this process. It ends with the test.
func pair(t *testing.T) (groups [2]*collective.Group) {
	network := transport.NewMemory()
	var ports [2]transport.Port
	v := collective.View{Epoch: 1}
	for r := range ports {
		v.Peers = append(v.Peers, transport.Name{Role: "worker", ID: fmt.Sprint(r)})
		var err error
		if ports[r], err = network.Open(t.Context(), v.Peers[r], transport.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for r := range ports {
		if err := ports[r].Know(v.Peers[1-r], ports[1-r].Addr()); err != nil {
			t.Fatal(err)
		}
		s, err := ports[r].Stream("test", transport.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v.Self = r
		if groups[r], err = collective.New(s, v, collective.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for r := range ports {
			_ = groups[r].Close()
			_ = ports[r].Close()
		}
	})
	return groups
}
