package collective_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
)

// TestCloseAfterCommit: a rank that closes its group as soon as its commit is over has still told the others that it voted.
func TestCloseAfterCommit(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 50
	}
	for round := range rounds {
		w := open(t, inMemory, 3, collective.Options{Deadline: time.Minute})
		errs := make([]error, len(w.groups))
		var all sync.WaitGroup
		for r, g := range w.groups {
			all.Go(func() {
				x := []float32{1, 2}
				errs[r] = collective.AllReduceInto(t.Context(), g, x, x, collective.Sum)
				_ = g.Close()
				if errs[r] == nil && fmt.Sprint(x) != "[3 6]" {
					errs[r] = fmt.Errorf("sum %v", x)
				}
			})
		}
		all.Wait()
		for r, err := range errs {
			if err != nil {
				t.Fatalf("round %d, rank %d: %v", round, r, err)
			}
		}
	}
}
