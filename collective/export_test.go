package collective

import (
	"context"
	"time"
)

// The kinds of the frames that carry data, by which ranks vote, say what they know of a failure, and what they have started.
const (
	KindData    = kindData
	KindVote    = kindVote
	KindReport  = kindReport
	KindStarted = kindStarted
)

// HostsOf lays size ranks out on hosts with each ranks on one, the last perhaps with fewer.
func HostsOf(size, each int) [][]int { return hostsOf(size, each) }

// A Walk is the memory that calibration uses.
type Walk = walk

// TimeBatches is what calibration measures.
func (g *Group) TimeBatches(ctx context.Context, op Op, bytes, count int, w *Walk) ([]float64, error) {
	return g.timeBatches(ctx, op, bytes, warmOps(bytes, 1), count, w)
}

// MeasureGamma is what calibration begins with.
func MeasureGamma() float64 { return measureGamma() }

// Foresee says how much of the time that is left a pass of calibration takes for its cells, if each operation takes so long.
func (g *Group) Foresee(pass int, left, each time.Duration) time.Duration {
	b := &bench{g: g, until: time.Now().Add(left)}
	var cells []cell
	for _, group := range passCells(pass) {
		cells = append(cells, group...)
	}
	for _, c := range cells {
		b.spent[c.line][c.col] = each.Seconds()
	}
	fit := make([]uint8, len(cells))
	b.want(cells, pass, fit)
	var sum time.Duration
	for i, c := range cells {
		sum += time.Duration(fit[i]) * time.Duration(opsOf(timedBytes[c.col], pass)) * each
	}
	return sum
}

// Measured says whether there are times of a among p ranks.
func (c Costs) Measured(a Algorithm, p int) bool { return c.measured(a, p) }
