package server_test

import (
	"errors"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestInfiniteUpdateDiverges: an update that is not finite, of a gradient and a loss that are, is a divergence of that tensor, wherever the
// optimizer is. Here the second is: the first makes parameters of 1e28, whose L2 the rate multiplies once more.
func TestInfiniteUpdateDiverges(t *testing.T) {
	for _, at := range []server.Place{server.AtServer, server.AtWorker} {
		j := traintest.Job()
		j.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1e25, L2: 1e5}
		c := &crew{env: traintest.Env(t, 1, false), workers: 2, servers: 1, o: server.Options{Mode: ps.BSP, OptimizerAt: at}}
		r, err := c.Train(t.Context(), j)
		e, ok := errors.AsType[*trivium.DivergedError](err)
		if !ok || r.Reason != trivium.Diverged || e.Tensor != "weight" || e.Step < 2 || e.Step > 3 {
			t.Errorf("optimizer at the %v: %s, %v", at, r.Reason, errors.Join(c.errs...))
		}
	}
}
