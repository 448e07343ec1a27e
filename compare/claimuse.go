package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A beside says in which table the second row of a pair is. In another than the first row's, it is the same system's.
type beside int

const (
	sameTable    beside = iota
	largerBatch         // the next larger one that there is, of the same task, workers and link
	moreWorkers         // the next larger number, of the same task, batch of each, and link
	smallerModel        // the next smaller of MNIST's, on the same data, of the same workers, batch and link
)

// beside is the table of the second row, where t is that of the first; nil: there is none.
func (r *Report) beside(t *Table, which beside) (next *Table) {
	if which == sameTable {
		return t
	}
	smaller := t.smallerTask()
	for _, u := range r.Tables {
		batch, workers := u.Batch == t.Batch, u.Workers == t.Workers
		switch {
		case u.Link != t.Link || t.Batch < 1:
		case which == largerBatch && u.Task == t.Task && workers && u.Batch > t.Batch && (next == nil || u.Batch < next.Batch),
			which == moreWorkers && u.Task == t.Task && batch && u.Workers > t.Workers && (next == nil || u.Workers < next.Workers),
			which == smallerModel && smaller != "" && u.Task == smaller && u.Data == t.Data && batch && workers:
			next = u
		}
	}
	return next
}

// smallerTask is the task of the next smaller of MNIST's models; empty: there is none.
func (t *Table) smallerTask() string {
	name, tenth := strings.CutSuffix(t.Task, "-10k")
	i := slices.Index(mnist, name)
	switch {
	case i < 1:
		return ""
	case tenth:
		return mnist[i-1] + "-10k"
	}
	return mnist[i-1]
}

// against is how the second row is called, which is in table u.
func (p *pair) against(u *Table) string {
	switch p.in {
	case largerBatch:
		return fmt.Sprintf("itself at batch %s", u.Batch)
	case moreWorkers:
		return "itself with " + quantity.Count(u.Workers, "worker")
	case smallerModel:
		return "itself on " + u.Task
	}
	return p.behind
}

// growing are the comparisons of a row with itself at more workers: by what its servers take, and by whether its workers follow their speed.
func growing(system string) (list []pair) {
	for _, by := range []measure{byServing, byServingSystem, byServingCalls, byFollowing} {
		list = append(list, pair{ahead: system, behind: system, by: by, in: moreWorkers})
	}
	return list
}

// figure is what m compares of what a role takes; nil: it compares something else.
func (m measure) figure() (Role, func(PerUse) float64) {
	cores := func(u PerUse) float64 { return u.UserShare + u.SystemShare }
	switch m {
	case byServing:
		return ServerRole, cores
	case byServingSystem:
		return ServerRole, func(u PerUse) float64 { return u.SystemUpdate }
	case byServingCalls:
		return ServerRole, func(u PerUse) float64 { return u.TransfersUpdate }
	case byWorking, byFollowing:
		return WorkerRole, cores
	}
	return "", nil
}

// used is what m compares of a row's processes, in each good trial in which that was measured.
func (m measure) used(x *Row) (list []float64) {
	role, of := m.figure()
	for i := range x.Trials {
		one := &x.Trials[i].Result
		u, ok := one.PerRole[role]
		if one.Error != "" || !ok {
			continue
		}
		if v := of(u.per(one)); v > 0 { // else it was not measured: none takes nothing
			list = append(list, v)
		}
	}
	return list
}

// each is x shared out among n.
func each(x []float64, n int) (list []float64) {
	for _, v := range x {
		list = append(list, v/float64(n))
	}
	return list
}

// known reports whether there is what a pair of rows is compared by.
func (m measure) known(a, b *Row) bool {
	_, of := m.figure()
	return of == nil || len(m.used(a)) > 0 && len(m.used(b)) > 0
}

// wanted names what is not measured where that is not known.
func (m measure) wanted() string {
	if m == byServingCalls {
		return "number of system calls"
	}
	return "processor time"
}

// judge compares row a of table t with row b of table u.
func (m measure) judge(a, b *Row, t, u *Table) Verdict {
	if m == byFollowing {
		return follows(a, b)
	}
	took, _ := m.of(a, t)
	other, _ := m.of(b, u)
	return Judge(took, other)
}

// follows judges whether the cores that a worker keeps busy go with its speed: Faster where a worker of one row is faster and busier than one of the
// other, Slower where it is faster and less busy. The ratio is that of the busy cores, and p the larger of the two tests', as both must say so.
func follows(a, b *Row) Verdict {
	speed := Judge(inverse(each(a.Rate.Values, a.Workers)), inverse(each(b.Rate.Values, b.Workers)))
	busy := Judge(each(byWorking.used(b), b.Workers), each(byWorking.used(a), a.Workers))
	busy.P = max(busy.P, speed.P)
	switch {
	case speed.Outcome == NoDifference || busy.Outcome == NoDifference:
		busy.Outcome = NoDifference
	case speed.Outcome == busy.Outcome:
		busy.Outcome = Faster
	default:
		busy.Outcome = Slower
	}
	return busy
}

// waiting is why the workers of a row keep fewer cores busy with the next larger model, or more: how much longer an update takes there, how many
// more bytes it moves, and how much more a worker computes in it. Empty: that was not measured for two models.
func (r *Report) waiting(system string) string {
	var words []string
	for _, t := range r.Tables {
		u := r.beside(t, smallerModel)
		if system == "" || u == nil {
			continue
		}
		big, small := t.row(system).update(), u.row(system).update()
		if big == nil || small == nil {
			continue
		}
		computes, takes := big.computes/small.computes, big.takes/small.takes
		text := fmt.Sprintf("%s: an update of %s takes %.2g × as long as on %s (%s and %s)", t.title(), system, takes, u.Task, quantity.Seconds(big.takes), quantity.Seconds(small.takes))
		if big.moves > 0 && small.moves > 0 {
			text += fmt.Sprintf(", moves %.2g × the bytes", big.moves/small.moves)
		}
		text += fmt.Sprintf(", and costs a worker %.2g × the processor time (%s and %s): ", computes, quantity.Seconds(big.computes), quantity.Seconds(small.computes))
		switch {
		case takes <= clearlyLonger*computes:
			text += "it waits for no larger part of it"
		case computes >= 1:
			text += "it computes no less, and waits for a larger part of it"
		default:
			text += "it computes less"
		}
		words = append(words, text)
	}
	return strings.Join(words, "; ")
}

// clearlyLonger is how much more an update's time must grow than its computing, before it is called waiting: two rows' medians differ by some percent.
const clearlyLonger = 1.25

// An updateCost is what one update of all workers takes, in seconds, what of the processor it costs each of them, and the bytes that it moves; 0: these
// are not known.
type updateCost struct{ takes, computes, moves float64 }

// update is what one costs; nil: the row is not there, or it was not measured.
func (x *Row) update() *updateCost {
	if x == nil || x.Good == 0 {
		return nil
	}
	u := x.Use[WorkerRole]
	if u.MicrosSample == 0 || x.Effective < 1 {
		return nil
	}
	samples := float64(x.Effective)
	c := &updateCost{takes: samples / x.Rate.Median, computes: u.MicrosSample / 1e6 * samples / float64(x.Workers)}
	if u.NotCounted == "" {
		c.moves = u.BytesSample * samples
	}
	return c
}
