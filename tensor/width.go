package tensor

import (
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/internal/median"
)

// A Width finds with how many threads of a pool the steps of one goroutine are fastest, by measuring them, and keeps to that many. See
// CPU.Adapt. The methods of a nil Width do nothing.
//
// More threads than that can make a step slower: what one core has written another reads next, and where the two share no cache each line
// takes a hundred nanoseconds. A step of 90 µs on one thread took 140 on two of a virtual machine, and 65 once its host had moved it to cores
// that do share one, as hosts do every few seconds. So it is measured, and measured again.
//
// A comparison is of windows of steps by turns, with the threads that were best so far, and with half or twice as many. What counts is the mean
// step of a window, which is long enough for waits of milliseconds for a thread that has lost its core to another program: they are rare, and
// can be most of what too many threads cost. A comparison ends early where the other width is much slower, and is made again after thirty times
// as long as it lasted: it costs half a percent where that width is half as fast.
type Width struct {
	pool *Pool
	now  func() time.Duration

	began time.Duration // the step under way
	steps int64         // so far
	kept  int64         // of them, with fewer than all threads, since that was best

	best int           // threads
	more bool          // twice as many are tried next, else half as many
	due  time.Duration // when the next comparison may begin
	compared
}

// compared is the comparison under way.
type compared struct {
	other  int // threads; 0: there is none
	since  time.Duration
	window int // even ones are of Width.best
	done   int // steps of it; the first does not count, since it moves what it works on to other cores
	spent  time.Duration
	took   [2][widthRounds]time.Duration // a step, in each window of best, and of other
}

const (
	widthBegins = 16                     // steps before the first comparison: many of them fill caches
	widthRounds = 3                      // windows of either width, of which the middle one counts
	widthWindow = 10 * time.Millisecond  // and at least a step
	widthWorth  = 0.95                   // a width is better that takes less than this part of the time
	widthVain   = 1.2                    // and from this on one window is enough to know that it is not
	widthRests  = 30                     // times as long as a comparison is the time until the next
	widthLeast  = 500 * time.Millisecond // and at least so long
)

func newWidth(p *Pool) *Width {
	start := time.Now()
	return &Width{pool: p, now: func() time.Duration { return time.Since(start) }, best: p.Threads()}
}

// Begin begins a step; one that was begun before and not ended is forgotten.
func (w *Width) Begin() {
	if w == nil {
		return
	}
	n := w.best
	if w.other > 0 && w.window%2 == 1 {
		n = w.other
	}
	w.pool.SetWidth(n)
	w.began = w.now()
}

// Leave forgets a step that was begun and is not ended. What is between steps has all threads.
func (w *Width) Leave() {
	if w != nil {
		w.pool.SetWidth(w.pool.Threads())
	}
}

// End ends the step.
func (w *Width) End() {
	if w == nil {
		return
	}
	now := w.now()
	w.Leave()
	w.steps++
	if w.best < w.pool.Threads() {
		w.kept++
	}
	switch {
	case w.other > 0:
		w.count(now)
	case w.steps >= widthBegins && now >= w.due:
		w.compare(now)
	}
}

// compare begins a comparison.
func (w *Width) compare(now time.Duration) {
	all := w.pool.Threads()
	switch w.best { // there is one direction
	case all:
		w.more = false
	case 1:
		w.more = true
	}
	other := (w.best + 1) / 2
	if w.more {
		other = min(2*w.best, all)
	}
	w.compared = compared{other: other, since: now}
}

// count counts a step of a comparison.
func (w *Width) count(now time.Duration) {
	if w.done++; w.done > 1 {
		w.spent += now - w.began
	}
	if w.done == 1 || w.spent < widthWindow {
		return
	}
	w.took[w.window%2][w.window/2] = w.spent / time.Duration(w.done-1)
	w.window, w.done, w.spent = w.window+1, 0, 0
	if w.window%2 == 1 {
		return
	}
	n := w.window / 2
	best, other := float64(median.Of(w.took[0][:n])), float64(median.Of(w.took[1][:n]))
	if n == widthRounds || other >= widthVain*best {
		w.conclude(now, other < widthWorth*best)
	}
}

// conclude ends a comparison, which other has won or not.
func (w *Width) conclude(now time.Duration, won bool) {
	w.due = now + max(widthRests*(now-w.since), widthLeast)
	if !won {
		w.more = !w.more
	} else if w.best = w.other; w.best > 1 && w.best < w.pool.Threads() { // perhaps the next in the same direction is better still
		w.due = now
	}
	w.other = 0
}

// Found says in a sentence with how many threads steps were made; it is empty where all took all of them, but for comparisons.
func (w *Width) Found() string {
	if w == nil || w.kept == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %% of the steps were made with fewer than the %d threads, the last with %d: short steps can be faster so, which was measured meanwhile",
		100*float64(w.kept)/float64(w.steps), w.pool.Threads(), w.best)
}
