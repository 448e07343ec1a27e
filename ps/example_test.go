package ps_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/transport"
)

// One process is everything here: directory, server and client share its stream. Two threads add to one row, round by round.
func Example() {
	if err := example(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// after round 1 a worker reads [2 2 2 2], value clock 1
	// after round 2 a worker reads [4 4 4 4], value clock 2
	// after round 3 a worker reads [6 6 6 6], value clock 3
}

func example() (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	self := transport.Name{Job: "example", Role: "all", ID: "0"}
	port, err := transport.NewMemory().Open(ctx, self, transport.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, port.Close()) }()
	stream, err := port.Stream("ps", ps.StreamOptions())
	if err != nil {
		return err
	}
	host := ps.Share(stream, nil)
	defer func() { err = errors.Join(err, host.Close()) }()

	placement := ps.Placement{Directory: self, Servers: []transport.Name{self}, Clients: []transport.Name{self}}
	if _, err := host.Direct(placement, ps.DirectoryOptions{}); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- host.Serve(ctx, placement, ps.ServerOptions{}) }()

	table := ps.Spec{Name: "weights", Rows: 1, Cols: 4, Mode: ps.BSP}
	client, err := host.Open(ctx, placement, []ps.Spec{table}, ps.Options{Workers: 2})
	if err != nil {
		return err
	}
	var threads sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		w, err := client.Worker(ctx)
		if err != nil {
			return err
		}
		threads.Go(func() { errs[i] = work(ctx, w) })
	}
	threads.Wait()
	err = errors.Join(append(errs, client.Close())...)
	cancel()
	return errors.Join(err, <-served)
}

func work(ctx context.Context, w *ps.Worker) error {
	weights, err := ps.TableOf[float32](w, "weights")
	if err != nil {
		return err
	}
	row := make([]float32, 4)
	for range 3 {
		if err := weights.DenseInc(0, 0, []float32{1, 1, 1, 1}); err != nil {
			return err
		}
		if _, err := w.Clock(ctx); err != nil {
			return err
		}
		v, err := weights.Get(ctx, 0, row) // waits for the other
		if err != nil {
			return err
		}
		if w.Index() == 0 {
			fmt.Printf("after round %d a worker reads %v, value clock %d\n", w.Now(), row, v)
		}
	}
	return w.Finish(ctx)
}

// A server and two workers over TCP, as processes of their own would be. The workers count in one table, and may be two rounds apart.
func Example_counters() {
	if err := counters(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0 reads [100 100]
	// 1 reads [100 100]
}

func counters() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a wait for who is gone ends by it
	defer cancel()
	open := func(role, id string) (transport.Port, transport.Stream, error) {
		port, err := transport.TCP{}.Open(ctx, transport.Name{Job: "count", Role: role, ID: id}, transport.Options{Secret: []byte("ours")})
		if err != nil {
			return nil, nil, err
		}
		stream, err := port.Stream("ps", ps.StreamOptions())
		return port, stream, err
	}
	server, stream, err := open("server", "0")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	p := ps.Placement{Directory: server.Name(), Servers: []transport.Name{server.Name()}}
	for _, id := range []string{"0", "1"} {
		p.Clients = append(p.Clients, transport.Name{Job: "count", Role: "worker", ID: id})
	}
	host := ps.Share(stream, nil) // the server is the directory too
	defer func() { _ = host.Close() }()
	if _, err := host.Direct(p, ps.DirectoryOptions{}); err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- host.Serve(serving, p, ps.ServerOptions{}) }()

	reads, errs := make([][]int64, len(p.Clients)), make([]error, len(p.Clients))
	var workers sync.WaitGroup
	for i, me := range p.Clients {
		workers.Go(func() {
			port, stream, err := open(me.Role, me.ID)
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = port.Close() }()
			if err = port.Know(server.Name(), server.Addr()); err == nil { // such as tcp:127.0.0.1:7401
				reads[i], err = count(ctx, stream, p)
			}
			errs[i] = err
		})
	}
	workers.Wait()
	for i, row := range reads {
		fmt.Println(i, "reads", row)
	}
	stop()
	return errors.Join(append(errs, <-served)...)
}

// count adds 1 to a cell in each of a hundred rounds, and returns what both workers have counted.
func count(ctx context.Context, s transport.Stream, p ps.Placement) (row []int64, err error) {
	table := ps.Spec{Name: "counters", Rows: 1, Cols: 2, Cell: ps.Int64, Mode: ps.SSP, Staleness: 2}
	c, err := ps.Open(ctx, s, p, []ps.Spec{table}, ps.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	w, err := c.Worker(ctx)
	if err != nil {
		return nil, err
	}
	t, err := ps.TableOf[int64](w, "counters")
	if err != nil {
		return nil, err
	}
	for i := range 100 {
		if err := t.Inc(0, int64(i%2), 1); err != nil {
			return nil, err
		}
		if _, err := w.Clock(ctx); err != nil {
			return nil, err
		}
	}
	for range table.Staleness { // as many empty rounds later, a read lacks nothing of the hundred
		if _, err := w.Clock(ctx); err != nil {
			return nil, err
		}
	}
	row = make([]int64, table.Cols)
	if _, err := t.Get(ctx, 0, row); err != nil {
		return nil, err
	}
	return row, w.Finish(ctx)
}
