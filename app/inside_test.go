package app

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// TestThreadsReadTheSame: the data of workers that are threads of one process is opened once, however many they are.
func TestThreadsReadTheSame(t *testing.T) {
	for _, topology := range []string{"allreduce", "average", "server"} {
		var opened atomic.Int64
		open := points(-1, nil)
		options := Options{Sources: data.Sources{"points": func(ctx context.Context, d trivium.Data) (*data.Splits, error) {
			opened.Add(1)
			return open(ctx, d)
		}}}
		command := "train mlp:8 --data points --batch 30 --epochs 2 --workers 3 --topology " + topology
		if got := runWith(t.Context(), t, t.TempDir(), options, strings.Fields(command)...); got.code != Done || opened.Load() != 1 {
			t.Errorf("%s: exits with %d, the data was opened %d times: %s", topology, got.code, opened.Load(), got.err)
		}
	}
}
