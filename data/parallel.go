package data

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls f for consecutive ranges of step rows that cover [0, n), on as many goroutines as there are processors, and returns
// the error of the earliest range that failed, so that the outcome does not depend on which goroutine came first.
func parallel(ctx context.Context, n, step int64, f func(from, to int64) error) error {
	workers := min(int64(runtime.GOMAXPROCS(0)), (n+step-1)/step)
	var (
		wg     sync.WaitGroup
		next   atomic.Int64
		mu     sync.Mutex
		failed = n // start of the earliest range that failed
		first  error
	)
	fail := func(at int64, err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil || at < failed {
			failed, first = at, err
		}
		next.Store(n) // hand out no further ranges; those before this one are with someone already
	}
	work := func() {
		for {
			from := next.Add(step) - step
			if from >= n {
				return
			}
			if err := ctx.Err(); err != nil {
				fail(from, err)
				return
			}
			if err := f(from, min(from+step, n)); err != nil {
				fail(from, err)
				return
			}
		}
	}
	for range workers - 1 {
		wg.Go(work)
	}
	if workers > 0 {
		work()
	}
	wg.Wait()
	return first
}
