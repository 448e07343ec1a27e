package fleet

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A State is where a job is on its way.
type State string

// The states of a job. All but the first two are for ever.
const (
	Queued    State = "queued"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Forgotten State = "lost" // the coordinator ended while it ran
)

// Ended tells whether s is for ever.
func (s State) Ended() bool { return s != Queued && s != Running }

// A Need is what a job's workers take.
type Need struct {
	Workers int `json:"workers"`
	Threads int `json:"threads,omitempty"` // cores of each worker; 0: as many as there are, shared out evenly

	// Each is for jobs that are about machines: Workers is then at most one a machine, and 0 is one on each.
	Each bool `json:"each,omitempty"`
}

// A room is what a node has left.
type room struct {
	id   string
	free int // cores
}

// roomsOf is what machines have as long as no job runs there.
func roomsOf(lent []Lent) []room {
	out := make([]room, len(lent))
	for i, n := range lent {
		out[i] = room{n.ID, n.Offer.Cores}
	}
	return out
}

// place returns the node of each worker, by index, and the cores that each gets; nil: there is no room now. Workers go one by one to
// the node with the most free cores, so that they spread, and are numbered node by node: what neighbours tell each other, such as those in
// the tree of exact mode, stays on a machine. rooms are in the order in which ties are broken, and are not changed.
func place(n Need, rooms []room) (nodes []int, threads int) {
	free := make([]int, len(rooms))
	if n.Each && n.Workers == 0 {
		n.Workers = max(1, len(rooms))
	}
	try := func(threads int) (out []int) {
		for i, r := range rooms {
			free[i] = r.free
		}
		var order []int
		count := make([]int, len(rooms))
		for range n.Workers {
			best := -1
			for i, f := range free {
				if n.Each && count[i] > 0 {
					continue
				}
				if f >= threads && (best < 0 || f > free[best]) {
					best = i
				}
			}
			if best < 0 {
				return nil
			}
			if count[best] == 0 {
				order = append(order, best)
			}
			free[best] -= threads
			count[best]++
		}
		for _, i := range order {
			out = append(out, slices.Repeat([]int{i}, count[i])...)
		}
		return out
	}
	if n.Threads > 0 {
		return try(n.Threads), n.Threads
	}
	all := 0
	for _, r := range rooms {
		all += r.free
	}
	// Where so many fit, fewer do: the most are found by halving, whatever machines lend.
	threads = sort.Search(max(0, all/max(1, n.Workers)), func(fewer int) bool { return try(fewer+1) == nil })
	if threads == 0 {
		return nil, 0
	}
	return try(threads), threads
}

// never says why a job could not run even if no other did; empty: it could.
func never(n Need, rooms []room) string {
	if nodes, _ := place(n, rooms); nodes != nil {
		return ""
	}
	if n.Each && n.Workers > len(rooms) {
		return fmt.Sprintf("%d machines are wanted, and %d lent", n.Workers, len(rooms))
	}
	all, largest := 0, 0
	for _, r := range rooms {
		all, largest = all+r.free, max(largest, r.free)
	}
	if len(rooms) == 0 {
		return "no machine is lent yet"
	}
	threads := max(1, n.Threads)
	if threads > largest {
		return fmt.Sprintf("a worker takes %d cores, and the largest machine lends %d", threads, largest)
	}
	return fmt.Sprintf("%s of %s each do not fit on what is lent, %s with %s", quantity.Count(n.Workers, "worker"), quantity.Count(threads, "core"),
		quantity.Count(len(rooms), "machine"), quantity.Count(all, "core"))
}

// A jobQueue is the jobs of a cluster in the order in which they came. It is pure: times come in.
type jobQueue struct {
	jobs []*Job
	next int // number of the next job
}

// A Job is one that was submitted.
type Job struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`          // in words, such as the model
	Run       string    `json:"run,omitempty"` // the name of what it makes; empty: not known yet, or it makes none
	State     State     `json:"state"`
	Why       string    `json:"why,omitempty"` // it waits, or how it ended
	Need      Need      `json:"need"`
	Threads   int       `json:"threads,omitempty"` // that each worker has
	Nodes     []string  `json:"nodes,omitempty"`   // of each worker
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Code      int       `json:"code"`               // exit code of an ended job, as its caller's command would have
	Restarts  int       `json:"restarts,omitempty"` // how often it was put back
	Spec      Spec      `json:"spec"`

	Progress *Progress `json:"progress,omitempty"` // in a status, of one that runs and has said so
}

// A Progress is how far a job is.
type Progress struct {
	Step       int64         `json:"step"`            // updates done
	Steps      int64         `json:"steps,omitempty"` // in all; 0: not known
	SamplesSec float64       `json:"samples_per_second"`
	Left       time.Duration `json:"left"` // negative: not known
}

// Sentence says how j is, and why.
func (j *Job) Sentence() string {
	s := fmt.Sprintf("%s is %s", j.ID, j.State)
	if j.Why != "" {
		s += ": " + j.Why
	}
	return s
}

// restart says which restart of j this is; empty: none.
func (j *Job) restart() string {
	if j.Restarts == 0 {
		return ""
	}
	return fmt.Sprintf("restart %d of %d", j.Restarts, j.Spec.Restarts)
}

// Add puts a job at the end.
func (q *jobQueue) Add(s Spec, now time.Time) *Job {
	q.next++
	j := &Job{ID: fmt.Sprintf("job-%d", q.next), Name: s.Name, Run: s.Run, State: Queued, Need: s.Need, Submitted: now, Spec: s}
	q.jobs = append(q.jobs, j)
	return j
}

// Find returns the job of that id, or nil.
func (q *jobQueue) Find(id string) *Job {
	for _, j := range q.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// waiting is how many jobs have not begun.
func (q *jobQueue) waiting() (n int) {
	for _, j := range q.jobs {
		if j.State == Queued {
			n++
		}
	}
	return n
}

// Jobs returns copies of all jobs, oldest first.
func (q *jobQueue) Jobs() []Job {
	out := make([]Job, len(q.jobs))
	for i, j := range q.jobs {
		out[i] = *j
		out[i].Nodes = slices.Clone(j.Nodes)
	}
	return out
}

// Start starts the next job, if there is room for it beside those that run. Jobs are served first come, first served, so that nobody who
// asks for little overtakes one who asks for much; but one that would not fit even if no other ran is passed over, as long as no machines
// come for it. total is what each node lends. nil: none can start. Each job that waits says why.
func (q *jobQueue) Start(total []room, now time.Time) *Job {
	j, nodes, threads := q.first(total)
	if j == nil {
		return nil
	}
	j.State, j.Started, j.Threads, j.Nodes = Running, now, threads, nil
	for _, n := range nodes {
		j.Nodes = append(j.Nodes, total[n].id)
	}
	return j
}

// first is the job that may start now, and where; nil: none may. It has those that wait before it, or all, say why.
func (q *jobQueue) first(total []room) (j *Job, nodes []int, threads int) {
	rooms := q.left(total)
	var inLine *Job // the first that waits for room
	for _, j := range q.jobs {
		if j.State != Queued {
			continue
		}
		if lacks := never(j.Need, total); lacks != "" {
			j.Why = lacks + "; other jobs go first until that changes"
			continue
		}
		if inLine != nil {
			j.Why = "waits behind " + inLine.ID
			continue
		}
		if nodes, threads := place(j.Need, rooms); nodes != nil {
			j.Why = j.restart()
			return j, nodes, threads
		}
		inLine, j.Why = j, "waits for cores that other jobs use"
	}
	return nil, nil, 0
}

// left is total without what running jobs use.
func (q *jobQueue) left(total []room) []room {
	out := slices.Clone(total)
	for _, j := range q.jobs {
		if j.State != Running {
			continue
		}
		for _, id := range j.Nodes {
			if k := slices.IndexFunc(out, func(r room) bool { return r.id == id }); k >= 0 {
				out[k].free -= j.Threads
			}
		}
	}
	return out
}

// End ends a job.
func (q *jobQueue) End(j *Job, s State, code int, why string, now time.Time) {
	j.State, j.Code, j.Why, j.Ended = s, code, why, now
}

// Again puts a job that was lost back to its place in the line, and reports whether it may begin once more.
func (q *jobQueue) Again(j *Job, why string) bool {
	if j.Restarts >= j.Spec.Restarts {
		return false
	}
	j.Restarts++
	j.State, j.Why, j.Nodes, j.Threads, j.Started = Queued, why, nil, 0, time.Time{}
	return true
}

// keepEnded is how many ended jobs a queue remembers.
const keepEnded = 200

// Forget drops the jobs that ended first of those beyond the ones that are kept, and returns their ids. A job that has just ended is never
// among them, however long ago it came: who followed it has yet to fetch what it left.
func (q *jobQueue) Forget() (gone []string) {
	var ended []*Job
	for _, j := range q.jobs {
		if j.State.Ended() {
			ended = append(ended, j)
		}
	}
	slices.SortStableFunc(ended, func(a, b *Job) int { return a.Ended.Compare(b.Ended) })
	drop := ended[:max(0, len(ended)-keepEnded)]
	q.jobs = slices.DeleteFunc(q.jobs, func(j *Job) bool { return slices.Contains(drop, j) })
	for _, j := range drop {
		gone = append(gone, j.ID)
	}
	return gone
}
