package collective_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

// A world is a group of ranks in this process.
type world struct {
	t      testing.TB
	ports  []transport.Port
	groups []*collective.Group
}

// network makes the ports of a world.
type network func(t testing.TB, size int) []transport.Port

func inMemory(t testing.TB, size int) []transport.Port {
	m := transport.NewMemory()
	ports := make([]transport.Port, size)
	for r := range ports {
		p, err := m.Open(t.Context(), transport.Name{Job: "test", Role: "worker", ID: fmt.Sprint(r)}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ports[r] = p
	}
	return ports
}

func open(t testing.TB, n network, size int, o collective.Options) *world {
	return openHosts(t, n, size, o, nil)
}

func openHosts(t testing.TB, n network, size int, o collective.Options, hosts [][]int) *world {
	t.Helper()
	return openWith(t, n, size, o, hosts, func(s transport.Stream) transport.Stream { return s })
}

// openWith opens the groups over what wrap makes of their streams.
func openWith(t testing.TB, n network, size int, o collective.Options, hosts [][]int, wrap func(transport.Stream) transport.Stream) *world {
	t.Helper()
	w := &world{t: t, ports: n(t, size)}
	v := collective.View{Epoch: 1, Hosts: hosts}
	for _, p := range w.ports {
		v.Peers = append(v.Peers, p.Name())
	}
	for r, p := range w.ports {
		s, err := p.Stream("collective", transport.StreamOptions{MaxFrame: o.MaxFrame, Window: o.Window})
		if err != nil {
			t.Fatal(err)
		}
		for q, other := range w.ports {
			if q != r {
				if err := s.Know(other.Name(), other.Addr()); err != nil {
					t.Fatal(err)
				}
			}
		}
		v.Self = r
		g, err := collective.New(wrap(s), v, o)
		if err != nil {
			t.Fatal(err)
		}
		w.groups = append(w.groups, g)
	}
	t.Cleanup(w.close)
	return w
}

func (w *world) close() {
	for _, g := range w.groups {
		_ = g.Close()
	}
	for _, p := range w.ports {
		_ = p.Close()
	}
}

// each calls f for all ranks at once, and returns their errors.
func (w *world) each(f func(r int, g *collective.Group) error) []error {
	errs := make([]error, len(w.groups))
	var wg sync.WaitGroup
	for r, g := range w.groups {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[r] = f(r, g)
		}()
	}
	wg.Wait()
	return errs
}

// must is each, where no error may come.
func (w *world) must(f func(r int, g *collective.Group) error) {
	w.t.Helper()
	if err := errors.Join(w.each(f)...); err != nil {
		w.t.Fatal(err)
	}
}

// run is Start, Wait and Commit.
func run(ctx context.Context, g *collective.Group, op collective.Op, dst, src collective.Buffer) error {
	step := g.Step()
	err := g.Start(op, 0, dst, src).Wait(ctx)
	if c := g.Commit(ctx, step); err == nil {
		err = c
	}
	return err
}

var algorithms = []collective.Algorithm{
	collective.Auto, collective.GatherCast, collective.Ring, collective.Halving, collective.Doubling, collective.Tree, collective.Pairwise, collective.Hierarchy,
}

// case1 gives every rank its number.
func case1(t *testing.T, n network, sizes, lengths []int) {
	for _, size := range sizes {
		w := openHosts(t, n, size, collective.Options{Segment: 1 << 12}, collective.HostsOf(size, 2))
		for _, a := range algorithms {
			for _, n := range lengths {
				w.must(func(r int, g *collective.Group) error {
					src, dst := make([]float32, n), make([]float32, n)
					for i := range src {
						src[i] = float32(r)
					}
					if err := run(t.Context(), g, collective.Op{Plan: a}, collective.Of(dst), collective.Of(src)); err != nil {
						return fmt.Errorf("%v, %d ranks, %d elements: %w", a, size, n, err)
					}
					for i, v := range dst {
						if v != float32(size*(size-1)/2) {
							return fmt.Errorf("%v, %d ranks, %d elements: rank %d has %v at %d", a, size, n, r, v, i)
						}
					}
					return nil
				})
			}
		}
		w.close()
	}
}

func TestCase1EveryRank(t *testing.T) {
	if testing.Short() { // the race detector makes arithmetic slow; from 1025 elements on there is more than one segment
		case1(t, inMemory, []int{1, 2, 3, 5, 8}, []int{0, 1, 10, 1025, 4000})
		case1(t, inMemory, []int{13, 32}, []int{100})
		return
	}
	case1(t, inMemory, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{0, 1, 4, 10, 64, 100, 1000, 1025, 10000})
	case1(t, inMemory, []int{13, 16, 24, 32}, []int{1, 100, 1025})
	case1(t, inMemory, []int{3, 4}, []int{1 << 19})
}
