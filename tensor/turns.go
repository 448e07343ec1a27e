package tensor

import (
	"sync/atomic"
	"time"
)

// Turns share the cores of a machine among processes that compute on one thread each, are more than the cores, and wait for one another
// after each step, as the workers of a parameter server do. See CPU.Among.
//
// Left alone, a core stands idle while two of them want the other: the system moves a thread to a core that has run out of work only if
// the thread has waited for half a millisecond, since what it works on is taken to be in its core's cache, and looks again every 4 ms. Of
// three workers on two cores, with steps of a millisecond, a fifth of all time went that way.
//
// So each process computes where the wrap-around rule says (McNaughton, 1959): the steps of all, laid end to end, are cut into as many equal
// parts as there are cores. A step with a cut in it changes cores there; what is behind the cut comes first, so that the two parts do not
// meet in time. Processes on one core let each other run between nodes, so that none begins late. Between steps the system decides: who waits
// for a message is best woken wherever there is room.
//
// Steps too short for that are computed on a core of the process's own, and it stays there: the system wakes all where one is idle at the
// moment, so that three workers follow one another on one of two cores for whole seconds, beside a server alone on the other.
type Turns struct {
	duty  duty
	home  int // core of steps that are too short to take turns
	sys   system
	busy  atomic.Bool
	stays atomic.Bool // a thread has been left on home

	typical time.Duration // of a step's computing
	steps   int           // that it is of, turnsSteady at most
	kept    bool          // this step is computed where duty says
	moves   time.Duration // when to change cores, in computing time; 0: not any more
	began   time.Duration // the thread's computing time when the step began
	yielded time.Duration // and when others were last let run
}

// A duty is where a process computes a step: the first part of it (1: all) on one core, what is left on another.
type duty struct {
	first, rest int
	part        float64
}

// dutyOf returns that of one process of n > cores.
func dutyOf(index, n, cores int) duty {
	from, to := index*cores, (index+1)*cores // a step is as long as there are cores; a core takes n
	core := from / n
	if cut := (core + 1) * n; to > cut {
		return duty{core + 1, core, float64(to-cut) / float64(cores)}
	}
	return duty{core, core, 1}
}

// system is what Turns needs of the operating system, for the goroutine that calls.
type system interface {
	keep()                   // the goroutine stays on its thread, and threads that are started meanwhile have all cores
	run(core int)            // only there
	free(ran bool)           // as before keep; ran says that the thread is kept on a core, and should not stay there
	leave(core int)          // threads that stayed on this core may run everywhere
	yield()                  // lets run who waits for this core
	computed() time.Duration // by this thread
}

const (
	// turnsWorth is the shortest step that takes turns, and turnsLeft the one below which it does not any more: to change cores makes it longer,
	// by a third where it is short. One of 95 µs lost a twelfth under allreduce. With a parameter server steps of 250 to 500 µs gain 5 % or
	// nothing, and where some processes take turns and others do not, all are a sixth to a fifth slower: so the first is where little is gained yet,
	// and between the two processes whose steps are alike do alike.
	turnsWorth = 500 * time.Microsecond
	turnsLeft  = 400 * time.Microsecond
	// turnsSteady is how many steps tell what is typical. Of the first ones it is the shortest, since many of them fill caches.
	turnsSteady = 16
	// turnLeast is how long a process computes before it lets others run.
	turnLeast = 20 * time.Microsecond
	// turnNear is how much of a step may be missing where it changes cores: a node is not cut.
	turnNear = 0.1
)

// Begin begins a step, of which the last took so much computing. It returns nil where another goroutine's is under way.
func (t *Turns) Begin(took time.Duration) *Turns {
	if t == nil || !t.busy.CompareAndSwap(false, true) {
		return nil
	}
	t.sys.keep()
	t.moves = 0
	switch {
	case took <= 0:
	case t.steps == 0:
		t.steps, t.typical = 1, took
	case t.steps < turnsSteady:
		t.steps, t.typical = t.steps+1, min(t.typical, took)
	default: // one that was held up by much else is not typical
		t.typical += (min(took, 2*t.typical) - t.typical) / turnsSteady
	}
	t.kept = t.typical >= turnsWorth || t.kept && t.steps == turnsSteady && t.typical >= turnsLeft
	switch {
	case t.kept:
		t.sys.run(t.duty.first)
		if t.duty.part < 1 {
			t.moves = time.Duration((t.duty.part - turnNear) * float64(took))
		}
	case took > 0:
		t.stays.Store(true)
		t.sys.run(t.home)
	}
	t.began = t.sys.computed()
	t.yielded = t.began
	return t
}

// Between is called between two nodes of a step.
func (t *Turns) Between() {
	if t == nil || !t.kept {
		return
	}
	now := t.sys.computed()
	switch {
	case t.moves > 0 && now-t.began >= t.moves:
		t.moves = 0
		t.sys.run(t.duty.rest)
	case now-t.yielded >= turnLeast:
		t.sys.yield()
	default:
		return
	}
	t.yielded = now
}

// End ends the step, and returns how much computing it took: 0 where Begin returned nil.
func (t *Turns) End() time.Duration {
	if t == nil {
		return 0
	}
	took := t.sys.computed() - t.began
	t.sys.free(t.kept)
	t.busy.Store(false)
	return took
}

// leave lets threads run everywhere that short steps have left on the process's own core, and those that the runtime has copied from them.
func (t *Turns) leave() {
	if t != nil && t.stays.Load() {
		t.sys.leave(t.home)
	}
}
