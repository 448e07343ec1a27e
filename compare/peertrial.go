package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A peerTrial drives the processes of another system by lines, and is the barrier between them.
type peerTrial struct {
	eventStream

	cancel context.CancelCauseFunc
	stop   func() // of the time limit
	began  time.Time
	lines  chan peerSays
	wait   sync.WaitGroup
	once   sync.Once
	thread chan func() // runs on the thread that starts children: Linux kills a child when that ends
	idle   chan struct{}
	remove string // the copy of the programs
	out    string // folder of the trial
	mode   Mode
	lead   Role               // that commands go to
	clocks int                // an epoch has, in place of batches; see About
	clock  []float64          // of each that leads, since reset, as it said last; nil: none has run
	copies map[int64]peerCopy // that worker 0 was told to keep, by update
	driven chan struct{}      // closed once drive is at its end: they failed, or left the group in good order
	list   []*peerProcess
}

// A peerProcess is one of them.
type peerProcess struct {
	Process
	cmd    *exec.Cmd
	in     io.WriteCloser
	stdout io.Closer
	stderr lastLines
	out    string // folder that its snapshots are in
	space  string // its network namespace; empty: it has none
	exited chan struct{}
	state  error
}

// A peerSays is a line of a process, or its end.
type peerSays struct {
	from *peerProcess
	word peerWord
	err  error
}

// A peerWord is what is needed of an event as a peer prints it.
type peerWord struct {
	Event   string  `json:"event"`
	Update  int64   `json:"update"`
	Seconds float64 `json:"seconds"`
	Path    string  `json:"path"`

	heard time.Time
}

// A peerCommand is a line to a worker.
type peerCommand struct {
	Do        string  `json:"do"`
	Updates   int64   `json:"updates,omitempty"`
	Snapshots []int64 `json:"snapshots,omitempty"`
}

// longestLine bounds what a process may print without an end of line.
const longestLine = 1 << 20

func newPeerTrial(ctx context.Context, limit time.Duration) *peerTrial {
	if limit == 0 {
		limit = trialLimit
	}
	t := &peerTrial{
		eventStream: eventStream{events: make(chan Event)}, began: time.Now(), lines: make(chan peerSays), thread: make(chan func()), idle: make(chan struct{}),
		driven: make(chan struct{}), copies: map[int64]peerCopy{},
	}
	timed, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it hangs: no end after %v", limit))
	t.stop = stop
	t.ctx, t.cancel = context.WithCancelCause(timed)
	go func() {
		runtime.LockOSThread() // never unlocked: what was changed of the thread ends with it
		defer close(t.idle)
		for f := range t.thread {
			f()
		}
	}()
	return t
}

// start starts one process and gives it its Spec.
func (t *peerTrial) start(role Role, rank int, words []string, dir, space string, cores []int, spec []byte) error {
	p := &peerProcess{Process: Process{Role: role, Rank: rank}, exited: make(chan struct{}), out: filepath.Join(t.out, fmt.Sprintf("%s-%d", role, rank)), space: space}
	if space != "" {
		p.Iface = spaceInterface
	}
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.Dir, p.cmd.Stderr = dir, &p.stderr
	p.cmd.WaitDelay = time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	done := make(chan struct{})
	t.thread <- func() {
		defer close(done)
		err = startIn(p.cmd, space, cores)
	}
	<-done
	if err != nil {
		return err
	}
	p.PID, p.stdout = p.cmd.Process.Pid, stdout
	t.list = append(t.list, p)
	t.wait.Go(func() { t.listen(p, stdout) })
	if _, err := p.in.Write(append(spec, '\n')); err != nil {
		return fmt.Errorf("%s %d takes no Spec: %w", role, rank, err)
	}
	return nil
}

// listen hands on what a process prints, and then how it ended.
func (t *peerTrial) listen(p *peerProcess, stdout io.Reader) {
	say := func(s peerSays) bool {
		select {
		case t.lines <- s:
			return true
		case <-t.ctx.Done():
			return false
		}
	}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		s := peerSays{from: p}
		s.word.heard = time.Now()
		if err := json.Unmarshal([]byte(text), &s.word); err != nil || s.word.Event == "" {
			s.err = fmt.Errorf("%s %d prints what is no event: %.80q", p.Role, p.Rank, printable(text))
		}
		if !say(s) || s.err != nil {
			break
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		say(peerSays{from: p, err: fmt.Errorf("%s %d prints what is no event: a line of more than %s", p.Role, p.Rank, quantity.Bytes(longestLine))})
	case err != nil && !errors.Is(err, os.ErrClosed):
		say(peerSays{from: p, err: fmt.Errorf("%s %d: %w", p.Role, p.Rank, err)})
	}
	_, _ = io.Copy(io.Discard, stdout) // until its end: a process must not wait for a reader
	p.state = p.cmd.Wait()
	close(p.exited)
	say(peerSays{from: p, err: errEnded})
}

var errEnded = errors.New("it ended")

// drive is the trial's life.
func (t *peerTrial) drive(s Spec) {
	defer close(t.events)
	defer close(t.driven) // first: who sees the end of the events, and stops it, sees this end too
	if err := t.follow(s); err != nil {
		if cause := context.Cause(t.ctx); cause != nil {
			err = cause
		}
		t.err = &TrialError{Why: err.Error(), Last: t.last()}
	}
}

// last are the last lines of the process that has some, workers first.
func (t *peerTrial) last() (all []string) {
	for _, role := range []Role{WorkerRole, ServerRole, SchedulerRole} {
		for _, p := range t.list {
			if p.Role != role {
				continue
			}
			for _, l := range p.stderr.lines() {
				all = append(all, fmt.Sprintf("%s %d: %s", p.Role, p.Rank, l))
			}
		}
	}
	return all[max(0, len(all)-keptLines):]
}

// follow gives the commands: warm up, reset, run, save, quit.
func (t *peerTrial) follow(s Spec) error {
	if _, err := t.gather("ready", nil); err != nil {
		return err
	}
	t.say(Event{Kind: Ready, Seconds: time.Since(t.began).Seconds()})
	t.say(Event{Kind: Updated}) // taken once they are counted: from then on they may begin
	n := int64(warmUpdates)
	if s.Batch < 0 {
		n = warmFull
	}
	per, before, warm := 0.0, 0.0, int64(0)
	for n > 0 {
		warm += n
		words, err := t.train(peerCommand{Do: "run", Updates: n}, nil)
		if err != nil {
			return err
		}
		if err := counted(words, warm); err != nil {
			return err
		}
		spent := longest(words)
		per, before = (spent-before)/float64(n), spent // of the last: the first updates are slow
		n = 0
		if left := s.WarmUp - spent; left > 0.05*s.WarmUp && per > 0 {
			n = int64(math.Ceil(left / per))
		}
	}
	t.say(Event{Kind: Warmed})
	t.say(Event{Kind: Updated}) // likewise
	if _, err := t.command(peerCommand{Do: "reset"}, "ready", nil); err != nil {
		return err
	}
	clear(t.clock)
	n = s.Updates
	if per > 0 {
		n = atMost(max(n, int64(math.Ceil(s.Seconds/per))), limitShare*s.limit.Seconds(), time.Since(t.began), per)
	}
	t.say(Event{Kind: Begin})
	words, err := t.clockRun(s.Snapshots, 0, n)
	if err != nil {
		return err
	}
	for per = shortest(words) / float64(n); per > 0 && shortest(words) < s.Seconds; { // it is faster than it was
		more := atMost(int64(math.Ceil(1.05*(s.Seconds-shortest(words))/per)), limitShare*s.limit.Seconds(), time.Since(t.began), per)
		if words, err = t.clockRun(s.Snapshots, n, n+more); err != nil {
			return err
		}
		n += more
		if time.Since(t.began) > time.Duration(limitShare*float64(s.limit)) {
			break
		}
	}
	t.say(Event{Kind: End})
	t.say(Event{Kind: Updated}) // taken once the reading at the end is over: from then on processes may go
	if err := counted(words, n); err != nil {
		return err
	}
	kept, err := t.save()
	if err != nil {
		return err
	}
	for _, k := range kept {
		t.say(k)
	}
	done := Event{Kind: Finished, Update: n, Warm: warm, Samples: n * int64(s.Batch) * int64(s.Workers)}
	switch {
	case t.clocks > 0:
		done.Samples = n * s.rows / int64(t.clocks)
	case s.Batch < 0:
		done.Samples = n * s.rows
	}
	for _, w := range words {
		done.Clocks = append(done.Clocks, w.Seconds)
	}
	done.Seconds = together(t.mode, done.Clocks)
	if !(done.Seconds > 0) {
		return fmt.Errorf("its clock says that %d updates took %v s", n, done.Seconds)
	}
	if _, err := t.command(peerCommand{Do: "quit"}, "done", nil); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	t.say(done)
	return nil
}

// counted makes sure that all workers did as many updates as they were told to.
func counted(words []peerWord, want int64) error {
	for rank, w := range words {
		if w.Update != want {
			return fmt.Errorf("worker %d says that it made %d updates, and was told to make %d", rank, w.Update, want)
		}
	}
	return nil
}

func shortest(words []peerWord) float64 {
	seconds := math.Inf(1)
	for _, w := range words {
		seconds = min(seconds, w.Seconds)
	}
	return seconds
}

func longest(words []peerWord) (seconds float64) {
	for _, w := range words {
		seconds = max(seconds, w.Seconds)
	}
	return seconds
}

// together is a trial's clock: that of rank 0, which stood still for snapshots; where workers do not wait for each other, the one at which
// all together would have done their parts at the rate that each had.
func together(mode Mode, clocks []float64) float64 {
	if mode != Async || len(clocks) < 2 {
		return clocks[0]
	}
	var rate float64
	for _, c := range clocks {
		rate += 1 / c
	}
	return float64(len(clocks)) / rate
}

// command sends a line to all that lead at once, and waits for the answer of each.
func (t *peerTrial) command(c peerCommand, answer string, other func(*peerProcess, peerWord) error) ([]peerWord, error) {
	line, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	for _, p := range t.list {
		if p.Role != t.lead {
			continue
		}
		if _, err := p.in.Write(append(line, '\n')); err != nil {
			return nil, fmt.Errorf("%s %d takes no command: %w%s", p.Role, p.Rank, err, p.how())
		}
	}
	return t.gather(answer, other)
}

// gather waits until each that leads has said answer, once.
func (t *peerTrial) gather(answer string, other func(*peerProcess, peerWord) error) ([]peerWord, error) {
	workers := 0
	for _, p := range t.list {
		if p.Role == t.lead {
			workers++
		}
	}
	words := make([]peerWord, workers)
	said := make([]bool, workers)
	for left := workers; left > 0; {
		var s peerSays
		select {
		case s = <-t.lines:
		case <-t.ctx.Done():
			return nil, context.Cause(t.ctx)
		}
		switch {
		case errors.Is(s.err, errEnded):
			if answer == "done" {
				return words, errEnded
			}
			return nil, fmt.Errorf("%s %d ended before it was told to%s", s.from.Role, s.from.Rank, s.from.how())
		case s.err != nil:
			return nil, s.err
		case s.from.Role != t.lead:
		case s.word.Event == answer && said[s.from.Rank]:
			return nil, fmt.Errorf("%s %d says %q twice", s.from.Role, s.from.Rank, answer)
		case s.word.Event == answer:
			words[s.from.Rank], said[s.from.Rank] = s.word, true
			left--
		case other != nil:
			if err := other(s.from, s.word); err != nil {
				return nil, err
			}
		}
	}
	return words, nil
}

// how says how a process ended, where it has.
func (p *peerProcess) how() string {
	select {
	case <-p.exited:
	case <-time.After(time.Second): // it is about to
		return ""
	}
	if p.state == nil {
		return ": exit code 0"
	}
	return ": " + p.state.Error()
}

// Processes implements Trial.
func (t *peerTrial) Processes() []Process {
	var list []Process
	for _, p := range t.list {
		list = append(list, p.Process)
	}
	return list
}

// leaveWait is how long processes have to end by themselves once their input is closed, and what they printed to come to its end once they are
// killed.
const leaveWait = 2 * time.Second

// Stop implements Trial.
func (t *peerTrial) Stop(context.Context) error {
	var err error
	t.once.Do(func() {
		for _, p := range t.list {
			_ = p.in.Close() // the process may be gone
		}
		late := time.After(leaveWait)
		select {
		case <-t.driven: // an interpreter takes up to 2 s to put itself away, with nothing left to lose
			late = time.After(0)
		case <-t.ctx.Done():
			late = time.After(0)
		default:
		}
		t.cancel(context.Canceled)
		var spaces []string
		for _, p := range t.list {
			select {
			case <-p.exited:
			case <-late:
				late = time.After(0)
			}
			killGroup(p.PID) // with what it started
			if p.space != "" {
				spaces = append(spaces, p.space)
			}
		}
		killIn(spaces) // with what left its group
		late = time.After(leaveWait)
		for _, p := range t.list {
			select {
			case <-p.exited:
			case <-late: // what left its group keeps its output open
				late = time.After(0)
				_ = p.stdout.Close() // whoever reads it may be at its end
			}
		}
		t.wait.Wait()
		t.stop()
		close(t.thread)
		<-t.idle
		if t.remove != "" {
			err = os.RemoveAll(t.remove)
		}
	})
	return err
}

// freeAddresses are addresses on which the processes may listen: in namespaces any port is free; else ports that were free a moment ago.
func freeAddresses(s *spaces, n int) ([]string, error) {
	var list []string
	for i := range n {
		if s != nil {
			list = append(list, fmt.Sprintf("%s:%d", s.at(i), 4000+i))
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are held until the last is found
		list = append(list, l.Addr().String())
	}
	return list, nil
}
