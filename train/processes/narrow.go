package processes

import (
	"context"
	"runtime"

	"github.com/trivium-ml/trivium/internal/cores"
)

// Narrow returns what keeps this process to the threads that it computes with, for a strategy that knows when that pays; nil where the workers of
// this machine leave cores free, or are on several. Where the workers' threads are as many as the cores, it also keeps each worker to cores of its own,
// until ctx ends or others compute there.
func Narrow(ctx context.Context, a *Assignment) func() {
	threads := max(1, a.Threads)
	if !a.Network.Near() || a.Workers*threads < runtime.NumCPU() {
		return nil
	}
	return func() {
		runtime.GOMAXPROCS(threads)
		if a.Workers*threads == runtime.NumCPU() {
			cores.Keep(ctx, a.Index*threads, threads)
		}
	}
}
