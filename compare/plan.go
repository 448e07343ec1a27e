package compare

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
)

// A Plan is what is to be compared. Its directory keeps what is finished, so that an interrupted plan goes on.
type Plan struct {
	Tasks   []Task
	Links   []Link // empty: one unshaped link, in namespaces where they are permitted
	Systems []System
	Workers []int   // empty: 2
	Batches []Batch // of each worker; empty: 100. The user's own job has its own
	Repeats int     // 0: see Within

	// Within says how long all trials of a comparison may take whose Repeats are 0, as foreseen: it has 7 repeats, or as many as that allows, 3 at
	// least. One with trials goes on with as many as it has. 0: 3 repeats.
	Within time.Duration

	Quick  bool
	Full   bool // the cells that the evaluation names, in place of all combinations; see cells
	Only   Part // of these; zero: all
	Faults bool // kill and stop processes of each row, after all trials
	Dir    string

	Host    Host
	Seconds float64       // to measure at least; 0: 5
	WarmUp  float64       // 0: 2
	Most    int           // snapshots of a trial; 0: 200
	Limit   time.Duration // of a trial; 0: 10 minutes
	Cores   []int         // nil: those that this process may use
	Command string        // as the user typed it
	Python  string        // with NumPy, for check.py; empty: looked for

	Watch Watch
	open  bool // Repeats are to be settled
	now   func() time.Time
	fault faultTimes
}

// Watch is told how a plan goes on. Nil funcs are off.
type Watch struct {
	Note    func(text string)        // what a user should know before
	Status  func(s Status)           // several times a second
	Trialed func(t Trialed, s Table) // a trial is over, and what its table is by now
}

// A Status is a trial under way, or what comes before the first.
type Status struct {
	Cell        Cell
	Repeat      int // from 1
	Done, Total int // trials; Total is 0 at a fault, and while systems are asked for their versions: then Cell has the system's name alone
	Phase       string
	Rate        float64 // samples a second so far; 0: not yet known
	Elapsed     time.Duration
	Left        time.Duration // of all; negative: not known
}

// A Trialed is a trial with its result.
type Trialed struct {
	Cell   Cell
	Repeat int
	Result Result
}

func (p *Plan) defaults() {
	if len(p.Workers) == 0 {
		p.Workers = []int{2}
	}
	if len(p.Batches) == 0 {
		p.Batches = []Batch{100}
	}
	if p.Links = slices.Clone(p.Links); len(p.Links) == 0 {
		p.Links = []Link{{}}
	}
	p.open = p.Repeats == 0 && p.Within > 0
	p.Repeats = cmp.Or(p.Repeats, leastRepeats)
	p.Seconds = cmp.Or(p.Seconds, fullSeconds)
	p.WarmUp = cmp.Or(p.WarmUp, 2)
	p.Most = cmp.Or(p.Most, snapshots)
	p.Limit = cmp.Or(p.Limit, trialLimit)
	if p.Cores == nil {
		p.Cores = ownCores()
	}
	if p.fault == (faultTimes{}) {
		p.fault = faultTimes{time.Second, faultStop, 15 * time.Second}
	}
	if p.now == nil {
		p.now = time.Now
	}
	note, status, trialed := p.Watch.Note, p.Watch.Status, p.Watch.Trialed
	p.Watch = Watch{
		Note: func(s string) {
			if note != nil {
				note(s)
			}
		},
		Status: func(s Status) {
			if status != nil {
				status(s)
			}
		},
		Trialed: func(t Trialed, s Table) {
			if trialed != nil {
				trialed(t, s)
			}
		},
	}
}

// coreCount is how many cores a row has: those that it is bound to, or, where the system binds no process, those of the machine.
func (p *Plan) coreCount() int {
	if len(p.Cores) > 0 {
		return len(p.Cores)
	}
	return runtime.NumCPU()
}

const (
	// mostRepeats is as many as the exact test of a verdict takes seconds for: its memory grows with their third power.
	mostRepeats = 100
	// A new comparison has so many repeats where the plan leaves it open: the fewer show a spread, the more may prove which of a dozen rows is ahead.
	leastRepeats, provingRepeats = 3, 7
	// mostWorkers is of a row: all of them are processes of one machine. The help of --workers says it.
	mostWorkers = 64
	// fullSeconds is what a trial of the full run measures at least.
	fullSeconds = 5.0
)

// A PlanError is a mistake in what was asked for: the user's to mend.
type PlanError struct{ Err error }

func (e *PlanError) Error() string { return e.Err.Error() }

func (e *PlanError) Unwrap() error { return e.Err }

// mistakes is nil where there are none.
func mistakes(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return &PlanError{errors.Join(errs...)}
}

// validate reports every mistake in p, as a PlanError.
func (p *Plan) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("compare: "+format, args...)) }
	if len(p.Tasks) == 0 {
		bad("there is no task")
	}
	if len(p.Systems) == 0 {
		bad("there is no system")
	}
	for _, n := range p.Workers {
		if n < 1 || n > mostWorkers {
			bad("workers: want 1 to %d, found %d", mostWorkers, n)
		}
	}
	if len(p.Links) == 0 {
		bad("there is no link")
	}
	for _, l := range p.Links {
		if l.Mbit < 0 || l.Mbit > 100_000 {
			bad("links: want 1 to 100000 Mbit/s, found %d", l.Mbit)
		}
	}
	for _, b := range p.Batches {
		if b < 1 && b != trivium.FullBatch {
			bad("batch: want 1 row or more, or full; found %d", b)
		}
	}
	if p.Repeats < 1 || p.Repeats > mostRepeats {
		bad("repeats: want 1 to %d, found %d", mostRepeats, p.Repeats)
	}
	if p.Dir == "" {
		bad("there is no directory for the report")
	}
	seen := map[string]bool{}
	once := func(name string) {
		if seen[name] {
			bad("%s is named twice", name)
		}
		seen[name] = true
	}
	for _, t := range p.Tasks { // trials would count twice
		once("task " + t.Name)
	}
	for _, s := range p.Systems {
		once("system " + s.Name())
	}
	for _, n := range p.Workers {
		once(fmt.Sprint("workers ", n))
	}
	for _, b := range p.Batches {
		once("batch " + b.String())
	}
	for _, l := range p.Links {
		once("link " + l.String())
	}
	if len(errs) == 0 && len(p.groups()) == 0 {
		why := cmp.Or(p.unprogrammed(), "rows with clocks are for logistic regression, and some rows take the full batch alone or never")
		bad("none of those systems trains any of those tasks at such a batch: %s", why)
	}
	return mistakes(errs)
}
