package collective

import (
	"context"
	"time"

	"github.com/trivium-ml/trivium/tensor"
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

// ShareHere has groups of this process share memory, as Share has processes: each rank gets an equal part of all.
func ShareHere(groups []*Group, all []byte) {
	const unit = 4 * tensor.Align // a region is a quarter
	each := len(all) / len(groups) / unit * unit
	for r, g := range groups {
		g.h.mu.Lock()
		g.c.arena = &arena{all: all, each: each, self: r}
		clear(g.c.known)
		g.h.mu.Unlock()
	}
}

// A Walk is the memory that calibration uses.
type Walk = walk

// TimeBatches is what calibration measures.
func (g *Group) TimeBatches(ctx context.Context, op Op, bytes, count int, w *Walk) ([]float64, error) {
	return g.timeBatches(ctx, op, bytes, warmOps(bytes, 1), count, w)
}

// MeasureGamma is what calibration begins with.
func MeasureGamma() float64 { return measureGamma(atWork) }

// MeasureGammaLate is MeasureGamma where the machine let it begin when its time was up.
func MeasureGammaLate() float64 { return measureGamma(0) }

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
