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

// cores are those that the processes of a role kept busy, in each good trial in which that was measured.
func (x *Row) cores(role Role) (list []float64) {
	for i := range x.Trials {
		one := &x.Trials[i].Result
		u, ok := one.PerRole[role]
		if one.Error != "" || !ok {
			continue
		}
		if each := u.per(one); each.UserShare+each.SystemShare > 0 { // else it was not measured: none takes nothing
			list = append(list, each.UserShare+each.SystemShare)
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
	switch m {
	case byServing:
		return len(a.cores(ServerRole)) > 0 && len(b.cores(ServerRole)) > 0
	case byWorking, byFollowing:
		return len(a.cores(WorkerRole)) > 0 && len(b.cores(WorkerRole)) > 0
	}
	return true
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
	busy := Judge(each(b.cores(WorkerRole), b.Workers), each(a.cores(WorkerRole), a.Workers))
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
