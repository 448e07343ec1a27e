package ps_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
