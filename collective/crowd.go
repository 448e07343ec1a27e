package collective

import (
	"context"
	"runtime"
)

// Crowd finds out whether the ranks are all on one host with less than two cores each. Then plans are chosen by the work of all ranks
// together, not by that of the busiest. It is a part of what Calibrate does, in one small operation. All ranks call it, before they start
// others.
func (g *Group) Crowd(ctx context.Context) error {
	crowded, err := g.crowded(ctx)
	if err != nil {
		return err
	}
	c := g.Costs()
	c.Crowded = crowded
	g.SetCosts(c)
	return nil
}

func (g *Group) crowded(ctx context.Context) (bool, error) {
	here := hostNumber()
	far := []float64{here, -here, -float64(runtime.NumCPU())}
	if err := AllReduceInto(ctx, g, far, far, Max); err != nil {
		return false, err
	}
	return far[0] == -far[1] && -far[2] < 2*float64(g.Size()), nil
}
