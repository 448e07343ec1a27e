// Package compare runs one task under every topology, and in the systems that the literature compares, and lays the numbers side by side.
//
// A [Task] is a job with a target. A [System] is one row: a strategy of ours, or a peer. [Run] carries out a [Plan]: it starts each
// row's processes on the same cores, keeps warm-up and evaluation out of the clock, takes the rows in turns (ABC ABC …, not AAA BBB),
// and writes what it found to the plan's directory, from which an interrupted plan goes on:
//
//	report, err := compare.Run(ctx, compare.Plan{Tasks: tasks, Systems: systems, Workers: []int{2}, Repeats: 7, Dir: dir, ...})
//	err = report.Text(os.Stdout)
//
// Samples per second compare nothing where the systems compute different things. So each synchronous row proves, by the loss of the
// parameters that it saved, that it computed what local does at the same effective batch; rows rank by the time to the target; and
// [Judge] and [Holm] say which differences are more than chance.
package compare

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
)

// A Task is what every row of a table trains: a job, and the point at which it counts as done.
type Task struct {
	Name   string      `json:"name"`
	Job    trivium.Job `json:"job"`
	Target Target      `json:"target"`

	Batches []Batch `json:"batches,omitempty"` // that the full run measures
	Own     bool    `json:"own,omitempty"`     // the user's own: its batch is that of all workers together, whatever their number
	Cap     int     `json:"cap"`               // epochs within which the target counts, if Job.Steps is not sooner; 0: as many as Job.Steps takes
	File    string  `json:"file,omitempty"`    // the user's, as he named it
	Data    string  `json:"data,omitempty"`    // in place of the file's, likewise
}

// A Batch is the rows of one worker in one update; trivium.FullBatch: all rows, shared out.
type Batch int

func (b Batch) String() string {
	if b == trivium.FullBatch {
		return "full"
	}
	return fmt.Sprint(int(b))
}

// A Mode says who waits for whom.
type Mode struct {
	Kind      string `json:"kind"` // sync, async, ssp
	Staleness int    `json:"staleness,omitempty"`
}

// The modes.
var (
	Sync  = Mode{Kind: "sync"}
	Async = Mode{Kind: "async"}
)

// Stale is SSP with that bound.
func Stale(s int) Mode { return Mode{"ssp", s} }

func (m Mode) String() string {
	if m.Kind == "ssp" {
		return fmt.Sprintf("ssp %d", m.Staleness)
	}
	return m.Kind
}

// A System is one row: a strategy of ours, or a peer.
type System interface {
	Name() string
	// About says what the row is, before anything is started.
	About() About
	// Detect returns versions. An *AbsentError says what was looked for and where.
	Detect(ctx context.Context) (Facts, error)
	// Start starts the row's processes. The caller calls Stop, whatever comes.
	Start(ctx context.Context, s Spec) (Trial, error)
}

// An About is what a table says of a row.
type About struct {
	Title  string
	Mode   Mode
	Peer   bool   // another system
	Alone  bool   // it has one worker, however many the plan has
	Server int    // processes beside the workers
	Approx string // why it does not compute what local does, such as a codec; empty: it must prove that it does
	Full   bool   // it can take all rows in one update
	Whole  bool   // it can do nothing else
	Clocks int    // per-sample SGD on a copy of each worker's own, which meets the others so often an epoch; 0: it is not that
	Shared bool   // its processes share memory, where the others talk TCP
}

// Exact reports whether the row must pass the equality proof.
func (a About) Exact() bool { return a.Mode == Sync && a.Approx == "" }

// Facts are versions by the name of what has them.
type Facts map[string]string

// An AbsentError says that a system is not on this machine.
type AbsentError struct {
	System, Looked string // what was looked for, and where
	Mend           string // the command that installs it
}

func (e *AbsentError) Error() string {
	return fmt.Sprintf("not installed: looked for %s (%s)", e.Looked, e.Mend)
}

// A Spec is one trial.
type Spec struct {
	Task      Task
	Workers   int
	Servers   int
	Threads   int // of a worker
	Batch     Batch
	Mode      Mode
	Cores     []int // the row's; nil: all
	Link      Link
	Updates   int64   // to measure at least
	Seconds   float64 // to measure at least
	WarmUp    float64 // seconds at least
	Snapshots []int64 // updates after which the parameters are kept
	OutDir    string  // exists, and is empty
	DataDir   string  // what peers read: see prepare
	InitPath  string  // safetensors

	spaces  *spaces // of the processes; nil: none
	limit   time.Duration
	reserve float64 // a trial of ours is planned for so many times Seconds; 0: once
	rows    int64   // to train on
	input   trivium.InputSpec
	classes int
}

// Effective returns the rows of all workers in one update, trivium.FullBatch for all there are.
func (s *Spec) Effective() int { return effective(&s.Task, s.Batch, s.Workers) }

func effective(t *Task, b Batch, workers int) int {
	switch {
	case t.Own:
		return t.Job.Batch
	case b == trivium.FullBatch:
		return trivium.FullBatch
	}
	return int(b) * workers
}

// A Link is how processes reach each other. The zero value is this machine's own loopback, unshaped.
type Link struct {
	Mbit int `json:"mbit,omitempty"` // shaped to so many; 0: not shaped
	// Apart gives each process a network namespace of its own.
	Apart bool `json:"apart,omitempty"`
}

func (l Link) String() string {
	switch {
	case l.Mbit >= 1000 && l.Mbit%1000 == 0:
		return fmt.Sprintf("%d Gbit/s", l.Mbit/1000)
	case l.Mbit > 0:
		return fmt.Sprintf("%d Mbit/s", l.Mbit)
	case l.Apart:
		return "unshaped veth"
	}
	return "loopback"
}

// A Trial is one row at work.
type Trial interface {
	// Events walks what the trial says, until it is over; single use. An error is the last.
	Events() iter.Seq2[Event, error]
	// Processes are those of the row, once Ready was seen.
	Processes() []Process
	// Stop ends the whole process group, and returns when it is gone. It may be called twice.
	Stop(ctx context.Context) error
}

// The kinds of Event.
const (
	Ready    = "ready"    // data and system are loaded
	Warmed   = "warmed"   // the warm-up is over
	Begin    = "begin"    // the clock starts
	Updated  = "update"   // so many are done
	End      = "end"      // the clock stands still
	Snapshot = "snapshot" // parameters were saved
	Finished = "done"     // all is well
)

// An Event is what a trial says.
type Event struct {
	Kind    string
	Update  int64
	Seconds float64 // on the trial's clock
	Path    string  // Snapshot
	Samples int64   // Finished: consumed in Seconds, by all workers
	Clocks  []float64
	Phases  map[string]float64 // Finished: seconds of all workers together
	Stale   map[string]float64 // Finished: updates by staleness, where it is known
	Warm    int64              // Finished: updates of the warm-up
}

// An eventStream is what a trial says, as it says it. Whoever is through with it closes events.
type eventStream struct {
	ctx    context.Context // once it is done, nobody listens any more
	events chan Event
	err    error // set before events is closed
}

// say hands an event on; where nobody listens any more it is dropped.
func (s *eventStream) say(e Event) {
	select {
	case s.events <- e:
	case <-s.ctx.Done():
	}
}

// Events implements Trial.
func (s *eventStream) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for e := range s.events {
			if !yield(e, nil) {
				return
			}
		}
		if s.err != nil {
			yield(Event{}, s.err)
		}
	}
}

// A Role is what a process does.
type Role string

// The roles.
const (
	WorkerRole    Role = "worker"
	ServerRole    Role = "server"
	SchedulerRole Role = "scheduler" // or a driver
)

// A Process is one of a trial's.
type Process struct {
	Role  Role
	Rank  int
	PID   int
	Iface string // whose bytes are this process's alone, in its network namespace; empty: it has none of its own
}

// Use is what the processes of one role took, all together, from the clock's start until it stands still: see Result.Window.
type Use struct {
	Processes  int     `json:"processes"`
	User       float64 `json:"user_seconds"`
	System     float64 `json:"system_seconds"`
	MeanBytes  float64 `json:"mean_bytes"` // proportional set size, so that shared pages count once
	PeakBytes  float64 `json:"peak_bytes"`
	Readings   int     `json:"memory_readings,omitempty"` // of the process whose memory was read the fewest times; 0: not known
	In         int64   `json:"bytes_in"`
	Out        int64   `json:"bytes_out"`
	NotCounted string  `json:"not_measured,omitempty"` // why bytes in and out, or the memory, are not known

	Calls        *Calls `json:"calls,omitempty"` // nil: they were not counted
	CallsUnknown string `json:"calls_not_measured,omitempty"`
}

// Calls are numbers of system calls in the warm-up.
type Calls struct {
	All       int64 `json:"all"`
	Transfers int64 `json:"transfers"` // of these, such as move bytes: read, write, send and receive, by whichever name
	Updates   int64 `json:"updates"`   // of the warm-up
}

// A Point is one place of a loss curve.
type Point struct {
	Update  int64   `json:"update"`
	Seconds float64 `json:"seconds"`
	Samples int64   `json:"samples"`
	Loss    float64 `json:"loss"`  // of the training rows; NaN where it was not looked at
	Value   float64 `json:"value"` // of the target's metric
}

// A Result is what one trial came to.
type Result struct {
	SamplesPerSec   float64            `json:"samples_per_second"`
	SecondsToTarget float64            `json:"seconds_to_target,omitempty"`
	SamplesToTarget int64              `json:"samples_to_target,omitempty"`
	StartSeconds    float64            `json:"start_seconds"`
	Reached         bool               `json:"reached"`
	Best            float64            `json:"best"` // value of the target's metric
	Updates         int64              `json:"updates"`
	Samples         int64              `json:"samples"`
	Seconds         float64            `json:"seconds"`
	PerRole         map[Role]Use       `json:"per_role,omitempty"`
	Window          float64            `json:"window_seconds,omitempty"` // wall time that PerRole was counted in: the clock's, and while it stood still meanwhile; see window
	Curve           []Point            `json:"-"`
	Phases          map[string]float64 `json:"phases,omitempty"`
	Staleness       map[string]float64 `json:"staleness,omitempty"`
	Deviation       float64            `json:"deviation"`              // of the loss from local's, over 1 + loss; the largest
	Proof           string             `json:"proof,omitempty"`        // empty: not asked for; "equal", or what differs
	Wall            map[string]float64 `json:"wall_seconds,omitempty"` // where the trial's own time went: prepare, start, warm up, train, stop, evaluate
	Cut             bool               `json:"cut,omitempty"`          // the time limit left room for fewer updates than the target may take
	Sitting         int                `json:"sitting,omitempty"`      // of the comparison, from 1: see Sitting
	Flags           []string           `json:"flags,omitempty"`        // why the repeat is doubtful
	Error           string             `json:"error,omitempty"`
	Refused         bool               `json:"refused,omitempty"`    // Error is the job's, or the row's: every repeat would say it again
	Last            []string           `json:"last_lines,omitempty"` // of a system that failed
}

// A TrialError is what ended a trial before its time.
type TrialError struct {
	Why  string
	Last []string // lines that the process said last
	Err  error    // what Why is the text of; nil: nothing that a caller could tell
}

func (e *TrialError) Error() string { return e.Why }

func (e *TrialError) Unwrap() error { return e.Err }

// why is err as a row shows it: on one line, since joined errors have several, and a row has one. A job that the row's topology refuses is
// no accident of one trial.
func why(err error) (text string, last []string, refused bool) {
	text = err.Error()
	if e, ok := errors.AsType[*TrialError](err); ok {
		text, last = e.Why, e.Last
	}
	_, refused = errors.AsType[*train.JobError](err)
	return strings.ReplaceAll(text, "\n", "; "), last, refused
}

// limits of a trial.
const (
	trialLimit  = 10 * time.Minute // a system that hangs is a result, not a report that hangs
	warmUpdates = 20
	warmFull    = 2   // of the full batch
	limitShare  = 0.9 // of the limit may be training: the rest is for what belongs to a trial beside it
	snapshots   = 200 // at most
)
