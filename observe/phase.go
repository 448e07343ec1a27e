package observe

import (
	"fmt"
	"time"
)

// A Phase is what a training thread is doing. The words are the same in every strategy; one without a phase reports zero.
type Phase uint8

const (
	Load        Phase = iota // the next batch
	Compute                  // loss and gradient
	Serialise                // rows and tensors to and from bytes, compression
	Push                     // what goes out
	Pull                     // what comes in, less the waits
	WaitBarrier              // a peer has not arrived
	WaitStale                // a read is parked by the staleness bound
	Apply                    // the optimizer
	Other                    // the remainder: below 5 % in the shipped strategies, not a bin for what nobody timed
)

// NumPhases is the number of phases.
const NumPhases = 9

var phaseNames = [NumPhases]string{"load", "compute", "serialise", "push", "pull", "wait-barrier", "wait-stale", "apply", "other"}

func (p Phase) String() string {
	if p < NumPhases {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Phases returns all phases in their order.
func Phases() [NumPhases]Phase {
	return [NumPhases]Phase{Load, Compute, Serialise, Push, Pull, WaitBarrier, WaitStale, Apply, Other}
}

// A Role is what a process does in a run.
type Role string

const (
	Worker  Role = "worker"
	Server  Role = "server"
	Driver  Role = "driver"
	Process Role = "process" // what a process as a whole takes of its machine
)

// A Source is one reporting thread or process. Its counters begin at zero with each incarnation.
type Source struct {
	Run         string `json:"run"`
	Strategy    string `json:"strategy"`
	Role        Role   `json:"role"`
	Rank        int    `json:"rank"`
	Incarnation uint64 `json:"incarnation,omitempty"`
}

// String returns role-rank, such as worker-0, which also names the source's files.
func (s Source) String() string { return fmt.Sprintf("%s-%d", s.Role, s.Rank) }

// Same tells whether two sources are the same one, perhaps in different incarnations.
func (s Source) Same(o Source) bool { return s.Run == o.Run && s.Role == o.Role && s.Rank == o.Rank }

// A Step is one finished step: its phases add up to its wall time.
type Step struct {
	Step         int64
	Clock        int64                    // rounds finished, in strategies with a clock
	Start        time.Duration            // since the run began
	Phases       [NumPhases]time.Duration // a partition of the step's wall time
	Overlapped   [NumPhases]time.Duration // background work, beside the partition
	Samples      int64
	Loss         float64 // mean over the step's samples; may be non-finite
	StalenessMax uint16
	BytesOut     uint64
	BytesIn      uint64
	Every        uint32 // one step in Every was kept when this one was; 1: all
}

// Wall returns the sum of the phases.
func (s Step) Wall() time.Duration {
	var sum time.Duration
	for _, d := range s.Phases {
		sum += d
	}
	return sum
}

// An Event is something that happened, worth a line in a log: a checkpoint, an evaluation, a fault, a decision with its reason.
type Event struct {
	Time   time.Time
	Source Source
	Level  Level
	Kind   string // a word a reader filters by: "checkpoint", "straggler", "metrics-incomplete"
	Step   int64  // -1: none
	Text   string // a sentence
}

// A Level is the weight of an event.
type Level string

const (
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)

// A Sink is where a hub's numbers go: a run directory, an event file. It is called from one goroutine, never from a training thread.
// Its first error ends its frames and steps; events are still tried.
type Sink interface {
	Frame(Frame) error
	Step(Source, Step) error
	Event(Event) error
}

// A Flusher is a Sink that buffers; Flush is called after each round of collection.
type Flusher interface{ Flush() error }
