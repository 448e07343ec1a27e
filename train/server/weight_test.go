package server_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestWeightlessUpdates: an update whose rows all weigh nothing steps nothing and is counted, as in one process, to the bit.
func TestWeightlessUpdates(t *testing.T) {
	for _, spec := range []trivium.OptimizerSpec{
		{Name: "adam", Rate: 0.05}, {Name: "sgd", Rate: 0.5, Schedule: "linear:20"}, {Name: "ftrl", Rate: 0.5},
	} {
		j := traintest.Job()
		j.Data.Order, j.Data.ClassWeight = "index", "0=0,1=0" // row i is of class i mod 3: the first of every three updates weighs nothing
		j.Exact, j.Batch, j.Epochs, j.Steps, j.Optimizer = true, 2, 0, 14, spec
		env := traintest.Env(t, 1, true)
		want := alone(t, env, j)
		for n := 1; n <= 3; n++ {
			c := &crew{env: env, workers: n, servers: 2, o: server.Options{Mode: ps.BSP}}
			got, err := c.Train(t.Context(), j)
			if err != nil {
				t.Fatal(errors.Join(c.errs...))
			}
			traintest.Same(t, fmt.Sprintf("%s, %d workers", spec.Name, n), got, want)
		}
	}
}
