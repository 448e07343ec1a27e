package links_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/links"
	"github.com/trivium-ml/trivium/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run measures between n ranks, of which gone have closed their ports.
func run(t *testing.T, n int, gone ...int) (links.Result, []error) {
	t.Helper()
	network := transport.Unix{Dir: t.TempDir()}
	var peers []transport.Name
	for i := range n {
		peers = append(peers, transport.Name{Role: "worker", ID: fmt.Sprint(i)})
	}
	ports := make([]transport.Port, n)
	for i := range n {
		var err error
		if ports[i], err = network.Open(t.Context(), peers[i], transport.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ports[i].Close() })
	}
	for i := range n {
		for j := range n {
			if err := ports[i].Know(peers[j], ports[j].Addr()); i != j && err != nil {
				t.Fatal(err)
			}
		}
	}
	var result links.Result
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			for _, g := range gone {
				if g == i {
					errs[i] = ports[i].Close()
					return
				}
			}
			s := links.New(train.Env{Rank: i, Peers: peers, Port: ports[i]}, links.Options{For: 5 * time.Millisecond, Sizes: []int{1 << 10, 1 << 18}})
			if _, errs[i] = s.Train(t.Context(), nil); i == 0 {
				result = s.Result()
			}
		})
	}
	wait.Wait()
	return result, errs
}

// TestMeasure: every link is measured, and what is found is what a network has. On a busy machine a thread may be taken off for longer
// than one of these rates is measured: what the code does wrong it does wrong in each of some runs.
func TestMeasure(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		var wrong []string
		for range 5 {
			r, errs := run(t, n)
			for i, err := range errs {
				if err != nil {
					t.Fatalf("%d ranks: rank %d: %v", n, i, err)
				}
			}
			if len(r.Links) != n*(n-1) || len(r.Exchange) != n {
				t.Fatalf("%d ranks: %d links, %d rates", n, len(r.Links), len(r.Exchange))
			}
			seen := map[[2]int]bool{}
			for _, l := range r.Links {
				seen[[2]int{l.From, l.To}] = true
				if l.From == l.To || l.RTT[0] <= 0 || l.RTT[1] < l.RTT[0] || l.RTT[2] < l.RTT[1] {
					t.Errorf("link %+v", l)
				}
			}
			if len(seen) != len(r.Links) {
				t.Errorf("%d ranks: a link was measured twice", n)
			}
			if wrong = unlikely(r); len(wrong) == 0 {
				break
			}
		}
		if len(wrong) > 0 {
			t.Errorf("%d ranks: %q", n, wrong)
		}
	}
}

// unlikely says which of r's rates and costs no network has.
func unlikely(r links.Result) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, l := range r.Links {
		for i, rate := range l.Rates {
			if rate < 1e5 || rate > 1e12 {
				bad("%d to %d: %d bytes at %g bytes/s", l.From, l.To, l.Sizes[i], rate)
			}
		}
	}
	n := len(r.Exchange)
	for i, rate := range r.Exchange {
		if n > 1 && rate < 1e5 {
			bad("rank %d of %d exchanged %g bytes/s", i, n, rate)
		}
	}
	if n > 1 && (r.Costs.Alpha <= 0 || r.Costs.Beta <= 0) {
		bad("costs %+v", r.Costs)
	}
	return wrong
}

func TestLostPeer(t *testing.T) {
	_, errs := run(t, 3, 2)
	for i, err := range errs[:2] {
		if err == nil {
			t.Errorf("rank %d measured a link to a peer that is gone", i)
		}
	}
}

func TestBadSizes(t *testing.T) {
	_, err := links.New(train.Env{}, links.Options{Sizes: []int{0}}).Train(t.Context(), nil)
	if err == nil {
		t.Error("a payload of 0 bytes was accepted")
	}
}

// TestNoSizes: an empty list of sizes, as JSON may have it, is none.
func TestNoSizes(t *testing.T) {
	port, err := transport.NewMemory().Open(t.Context(), transport.Name{Role: "worker", ID: "0"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	env := train.Env{Peers: []transport.Name{port.Name()}, Port: port}
	if _, err := links.New(env, links.Options{For: time.Millisecond, Sizes: []int{}}).Train(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
