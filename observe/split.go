package observe

import (
	"fmt"
	"time"
)

// splitDepth bounds the stack of suspended phases. A phase within a phase within a phase is already rare.
const splitDepth = 8

// A Split partitions one thread's steps into phases. It is pure: time comes in, as duration since the run began, and must not run
// backwards. Invariant: between Begin and End exactly one phase is open, so the phases of the Step sum to End − Begin in integer
// nanoseconds.
type Split struct {
	step    Step
	since   time.Duration // when the open phase was entered or resumed
	open    Phase
	depth   int8 // suspended phases
	running bool // inside a step
	passing bool // the open phase is over, and ends at the next reading of the clock
	stack   [splitDepth]Phase

	anomalies uint64
	excess    time.Duration
}

// Begin opens a step. What no Enter claims is Other.
func (s *Split) Begin(step int64, now time.Duration) {
	if s.running {
		panic(fmt.Sprintf("observe: Begin of step %d inside step %d", step, s.step.Step))
	}
	s.step = Step{Step: step, Start: now, Every: 1}
	s.since, s.open, s.depth, s.running, s.passing = now, Other, 0, true, false
}

// Enter suspends the open phase and opens p.
func (s *Split) Enter(p Phase, now time.Duration) {
	if s.passing {
		s.settle(now)
	}
	if !s.running || p >= NumPhases || s.depth == splitDepth {
		s.refuseEnter(p)
	}
	s.step.Phases[s.open] += now - s.since
	s.stack[s.depth&(splitDepth-1)] = s.open
	s.depth++
	s.open, s.since = p, now
}

func (s *Split) refuseEnter(p Phase) {
	switch {
	case p >= NumPhases:
		panic(fmt.Sprintf("observe: Enter of unknown %v", p))
	case !s.running:
		panic(fmt.Sprintf("observe: Enter of phase %v outside of a step", p))
	}
	panic(fmt.Sprintf("observe: Enter of phase %v: %d phases are already suspended in step %d", p, splitDepth, s.step.Step))
}

// Leave closes the open phase and resumes the one that it suspended.
func (s *Split) Leave(now time.Duration) {
	if s.passing {
		s.settle(now)
	}
	if !s.running || s.depth == 0 {
		s.refuseLeave()
	}
	s.step.Phases[s.open] += now - s.since
	s.depth--
	s.open, s.since = s.stack[s.depth&(splitDepth-1)], now
}

// Pass is Leave without a reading of the clock: the phase ends with the next Enter, Leave or End, at the time that one is given. It is for
// phases that follow one another at once; what lies between is booked as the first.
func (s *Split) Pass() {
	if s.passing {
		panic(fmt.Sprintf("observe: Pass after Pass in step %d, phase %v", s.step.Step, s.open))
	}
	if !s.running || s.depth == 0 {
		s.refuseLeave()
	}
	s.passing = true
}

// settle is the Leave that a Pass put off.
func (s *Split) settle(now time.Duration) {
	s.passing = false
	s.Leave(now)
}

func (s *Split) refuseLeave() {
	if !s.running {
		panic("observe: Leave outside of a step")
	}
	panic(fmt.Sprintf("observe: Leave without Enter in step %d, phase %v", s.step.Step, s.open))
}

// Move books d of phase from as phase to: a wait that a server reports inside what looked like a transfer. The open phase can only
// give what is booked already, so call it after the Leave of from (after its Pass is too early). More than there is cannot be moved: the rest is counted as an
// anomaly.
func (s *Split) Move(from, to Phase, d time.Duration) {
	if !s.running || from >= NumPhases || to >= NumPhases {
		panic(fmt.Sprintf("observe: Move from %v to %v outside of a step or of the phases", from, to))
	}
	have := s.step.Phases[from]
	if d < 0 || d > have {
		s.anomalies++
		if d > have {
			s.excess += d - have
		}
		d = min(max(d, 0), have)
	}
	s.step.Phases[from] -= d
	s.step.Phases[to] += d
}

// Overlap counts work that another thread did for this step: beside the partition, never in it.
func (s *Split) Overlap(p Phase, d time.Duration) {
	if p >= NumPhases {
		panic(fmt.Sprintf("observe: Overlap of unknown %v", p))
	}
	s.step.Overlapped[p] += d
}

// End closes the step. The sum of its Phases is now − Begin.
func (s *Split) End(now time.Duration) Step {
	s.close(now)
	return s.step
}

// close ends the step in place, for callers who do not want a copy.
func (s *Split) close(now time.Duration) {
	if !s.running {
		panic("observe: End without Begin")
	}
	if s.passing {
		s.settle(now)
	}
	if s.depth != 0 {
		panic(fmt.Sprintf("observe: End of step %d inside phase %v", s.step.Step, s.open))
	}
	s.step.Phases[Other] += now - s.since
	s.running = false
}

// Abandon forgets an open step, for a thread that leaves its loop with an error.
func (s *Split) Abandon() { s.running, s.passing = false, false }

// Anomalies returns how many Moves asked for more than there was, and how much more in all.
func (s *Split) Anomalies() (count uint64, excess time.Duration) { return s.anomalies, s.excess }

// WaitPhase returns the phase of a wait for parameters under a staleness bound: with bound 0 it is a barrier.
func WaitPhase(staleness int) Phase {
	if staleness == 0 {
		return WaitBarrier
	}
	return WaitStale
}
