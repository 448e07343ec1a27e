package collective_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/transport"
)

// together runs f as each of some ranks, in this process.
func together(size int, f func(g *collective.Group)) {
	ctx := context.Background()
	m := transport.NewMemory()
	v := collective.View{Epoch: 1}
	streams := make([]transport.Stream, size)
	for r := range size {
		port, _ := m.Open(ctx, transport.Name{Role: "worker", ID: fmt.Sprint(r)}, transport.Options{})
		defer func() { _ = port.Close() }()
		streams[r], _ = port.Stream("collective", transport.StreamOptions{})
		v.Peers = append(v.Peers, port.Name())
	}
	for _, s := range streams {
		for r, n := range v.Peers {
			_ = s.Know(n, "memory:"+fmt.Sprint(r))
		}
	}
	var wg sync.WaitGroup
	for r, s := range streams {
		v := v
		v.Self = r
		wg.Add(1)
		go func() {
			defer wg.Done()
			g, err := collective.New(s, v, collective.Options{})
			if err != nil {
				panic(err)
			}
			defer func() { _ = g.Close() }()
			f(g)
		}()
	}
	wg.Wait()
}

func ExampleGroup_Start() {
	together(3, func(g *collective.Group) {
		ctx := context.Background()
		gradients := [2][]float32{{1, 2}, {10 * float32(g.Rank())}}
		sums := [2][]float32{make([]float32, 2), make([]float32, 1)}
		for i := range gradients {
			g.Start(collective.Op{Label: fmt.Sprint("bucket ", i)}, uint32(i), collective.Of(sums[i]), collective.Of(gradients[i]))
		}
		if err := g.Commit(ctx, g.Step()); err != nil {
			fmt.Println(err)
		}
		if g.Rank() == 0 {
			fmt.Println(sums)
		}
	})
	// Output: [[3 6] [30]]
}

func ExampleBlame() {
	ctx := context.Background()
	// Three ranks over TCP, in this process. All ports are open before anyone sends.
	ports, view := make([]transport.Port, 3), collective.View{Epoch: 1}
	for r := range ports {
		ports[r], _ = transport.TCP{}.Open(ctx, transport.Name{Job: "sum", Role: "worker", ID: fmt.Sprint(r)}, transport.Options{Secret: []byte("ours")})
		view.Peers = append(view.Peers, ports[r].Name())
	}
	var ranks sync.WaitGroup
	failed := make([]error, len(ports))
	for r, port := range ports {
		for _, p := range ports {
			if p != port {
				_ = port.Know(p.Name(), p.Addr()) // such as tcp:127.0.0.1:7401
			}
		}
		ranks.Go(func() {
			defer func() { _ = port.Close() }()
			s, _ := port.Stream("sum", transport.StreamOptions{})
			v := view
			v.Self = r
			g, err := collective.New(s, v, collective.Options{})
			for x := []float32{1}; err == nil && (r != 2 || g.Step() < 10); x[0] = 1 {
				err = collective.AllReduceInto(ctx, g, x, x, collective.Sum)
			}
			failed[r] = err // rank 2 has none: it ends, and says no goodbye
		})
	}
	ranks.Wait()
	for r, err := range failed[:2] {
		var b *collective.Blame
		if errors.As(err, &b) {
			fmt.Printf("rank %d: rank %d is %v, in step %d\n", r, b.Rank, b.Cause, b.Step)
		}
	}
	// Output:
	// rank 0: rank 2 is lost, in step 10
	// rank 1: rank 2 is lost, in step 10
}

func ExampleMismatch() {
	together(2, func(g *collective.Group) {
		x := make([]float32, 4+g.Rank())
		err := collective.AllReduceInto(context.Background(), g, x, x, collective.Sum)
		var m *collective.Mismatch
		if g.Rank() == 1 && errors.As(err, &m) {
			fmt.Println(m)
		}
	})
	// Output: collective: step 0, tag 0: the ranks disagree on the count: rank 0 has 4, rank 1 has 5
}

func ExampleCut() {
	for _, b := range collective.Cut([]int{600_000, 100, 60_000, 10}, 4, 1<<20) {
		fmt.Println(b.From, b.To, b.Tensors)
	}
	// Output:
	// 600000 660110 [3 2 1]
	// 337856 600000 [0]
	// 0 337856 [0]
}

func ExampleHandle_From() {
	together(3, func(g *collective.Group) {
		ctx := context.Background()
		const tag = 0
		if g.Rank() != 0 { // as soon as it has something
			g.Start(collective.Op{Kind: collective.Send, Root: 0}, tag, collective.Buffer{}, collective.Of([]float32{float32(10 * g.Rank())}))
		} else {
			results := make([]float32, g.Size())
			for range g.Size() - 1 {
				x := make([]float32, 1)
				h := g.Start(collective.Op{Kind: collective.Receive, Root: collective.AnyRank}, tag, collective.Of(x), collective.Buffer{})
				if err := h.Wait(ctx); err != nil {
					fmt.Println(err)
					break
				}
				results[h.From()] = x[0]
			}
			fmt.Println(results)
		}
		if err := g.Commit(ctx, g.Step()); err != nil {
			fmt.Println(err)
		}
	})
	// Output: [0 10 20]
}
