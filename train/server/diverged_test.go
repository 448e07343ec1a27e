package server_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
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

// TestDivergedEndsAtOnce: where workers keep the optimizer and all find that an update is not finite, rank 0 does not look for those who are
// gone to tell them that no state is wanted. In virtual time.
func TestDivergedEndsAtOnce(t *testing.T) {
	j := traintest.Job()
	j.Optimizer = trivium.OptimizerSpec{Name: "sgd", Rate: 1e25, L2: 1e5}
	c := &crew{env: traintest.Env(t, 1, false), workers: 3, servers: 1, o: server.Options{Mode: ps.BSP, OptimizerAt: server.AtWorker}}
	synctest.Test(t, func(t *testing.T) {
		c.env.CPU = tensor.NewCPU(1, false) // a pool of more looks at the clock while it waits for work
		defer c.env.CPU.Close()
		var told time.Time
		c.env.Watch.Progress = func(train.Progress) { // also when rank 0 ends: then the others have
			time.Sleep(time.Second)
			told = time.Now()
		}
		r, err := c.Train(t.Context(), j)
		if r.Reason != trivium.Diverged || err == nil {
			t.Errorf("%s, %v", r.Reason, err)
		}
		if took := time.Since(told); took > 5*time.Second {
			t.Errorf("it took rank 0 %v to end", took)
		}
	})
}
