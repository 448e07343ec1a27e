package compare

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A sampler measures the processes of a trial from outside: processor time between the clock's start and its end, memory on the way,
// bytes on the network where each process has its own. What cannot be measured is said, and never guessed.
type sampler struct {
	trial Trial
	cores []int // of the row; nil: all
	mu    sync.Mutex
	began bool
	first reading
	last  reading
	peaks map[int]*memory // by process
	stop  chan struct{}
	wait  sync.WaitGroup

	warmUp warmUp
}

// A reading is what the machine says at one moment.
type reading struct {
	at        time.Time
	processes []Process
	cpu       map[int]cpuTime // by process
	net       map[int][2]int64
	missing   string // why net is not known
	machine   machineTime
	self      cpuTime
	throttled time.Duration
	hot       int64 // events of thermal throttling
}

type cpuTime struct{ user, system float64 }

// A machineTime is the processor seconds of the machine so far, over the row's cores.
type machineTime struct{ busy, steal, all float64 }

// A memory is the proportional set size of one process over time.
type memory struct{ sum, n, peak float64 }

const (
	memoryEvery = 100 * time.Millisecond
	// memoryShare bounds what the look at memory may take of one core: a process of 400 MB has 100,000 pages to walk.
	memoryShare = 0.004
)

// newSampler measures t, which runs on those cores.
func newSampler(t Trial, cores []int) *sampler {
	return &sampler{trial: t, cores: cores, peaks: map[int]*memory{}, stop: make(chan struct{})}
}

// begin is called when the trial's clock starts.
func (s *sampler) begin() {
	s.first = readMachine(s.trial.Processes(), s.cores)
	s.began = true
	s.wait.Go(func() {
		s.warmUp.close()
		pause := memoryEvery
		for {
			timer := time.NewTimer(pause)
			select {
			case <-s.stop:
				timer.Stop()
				return
			case <-timer.C:
			}
			began := time.Now()
			s.look(s.first.processes)
			pause = max(memoryEvery, time.Duration(float64(time.Since(began))/memoryShare))
		}
	})
}

// look adds what the processes have in memory.
func (s *sampler) look(processes []Process) {
	for pid, bytes := range residentBytes(processes) {
		s.mu.Lock()
		m := s.peaks[pid]
		if m == nil {
			m = new(memory)
			s.peaks[pid] = m
		}
		m.sum, m.n, m.peak = m.sum+bytes, m.n+1, max(m.peak, bytes)
		s.mu.Unlock()
	}
}

// end is called when the trial's clock stands still.
func (s *sampler) end() {
	if !s.began || !s.last.at.IsZero() {
		return
	}
	s.last = readMachine(s.first.processes, s.cores)
	close(s.stop)
	s.wait.Wait()
	s.look(s.first.processes) // at least once
}

// close ends what begin began, where there was no end.
func (s *sampler) close() {
	if s.began && s.last.at.IsZero() {
		close(s.stop)
		s.wait.Wait()
		s.last.at = time.Now()
	}
	s.warmUp.close()
}

// window is the time between the readings that use subtracts, in seconds; 0: there was none at the end.
func (s *sampler) window() float64 {
	if s.last.cpu == nil {
		return 0
	}
	return s.last.at.Sub(s.first.at).Seconds()
}

// use is what each role took.
func (s *sampler) use() map[Role]Use {
	if s.last.cpu == nil {
		return nil
	}
	out := map[Role]Use{}
	for _, p := range s.first.processes {
		u := out[p.Role]
		u.Processes++
		a, b := s.first.cpu[p.PID], s.last.cpu[p.PID]
		u.User += max(0, b.user-a.user)
		u.System += max(0, b.system-a.system)
		if m := s.peaks[p.PID]; m != nil && m.n > 0 {
			u.MeanBytes += m.sum / m.n
			u.PeakBytes += m.peak
			u.Readings = lessRead(u.Readings, int(m.n))
		}
		x, began := s.first.net[p.PID]
		y, ended := s.last.net[p.PID]
		switch {
		case began && ended:
			u.In += y[0] - x[0]
			u.Out += y[1] - x[1]
		case began:
			u.NotCounted = fmt.Sprintf("%s %d had ended before its bytes were read", p.Role, p.Rank)
		default:
			u.NotCounted = s.first.missing
		}
		u.call(s.warmUp.of(p))
		out[p.Role] = u
	}
	return out
}

// What others may take before a repeat is doubtful: other programs, of the row's cores, and the hypervisor, of the machine's time.
const (
	foreignMost = 0.05
	stealMost   = 0.02
)

// flags says what makes the repeat doubtful: what other programs, the hypervisor or a limit took during it.
func (s *sampler) flags() (list []string) {
	if s.last.cpu == nil {
		return nil
	}
	d := s.last.machine.minus(s.first.machine)
	wall := s.last.at.Sub(s.first.at).Seconds()
	if d.all <= 0 || wall <= 0 {
		return nil
	}
	var ours float64
	for _, u := range s.use() {
		ours += u.User + u.System
	}
	ours += s.last.self.user + s.last.self.system - s.first.self.user - s.first.self.system
	if foreign := (d.busy - ours) / (wall * float64(max(1, len(s.cores)))); foreign > foreignMost {
		list = append(list, fmt.Sprintf("other programs took %.0f %% of the cores", 100*foreign))
	}
	if share := d.steal / d.all; share > stealMost {
		list = append(list, fmt.Sprintf("the hypervisor took %.1f %% of the time", 100*share))
	}
	if d := s.last.throttled - s.first.throttled; d > 0 {
		list = append(list, fmt.Sprintf("the control group was throttled for %s", quantity.Seconds(d.Seconds())))
	}
	if n := s.last.hot - s.first.hot; n > 0 {
		list = append(list, fmt.Sprintf("the processors were throttled for heat %d times", n))
	}
	return list
}

func (m machineTime) minus(o machineTime) machineTime {
	return machineTime{m.busy - o.busy, m.steal - o.steal, m.all - o.all}
}

// quiet waits that long and says whether those cores were busy with something else.
func quiet(d time.Duration, cores []int, sleep func(time.Duration)) (flag string) {
	a := readMachine(nil, cores)
	sleep(d)
	b := readMachine(nil, cores)
	x := b.machine.minus(a.machine)
	if x.all <= 0 {
		return ""
	}
	if share := (x.busy + x.steal) / (float64(max(1, len(cores))) * b.at.Sub(a.at).Seconds()); share > 0.05 && !math.IsInf(share, 0) {
		return fmt.Sprintf("the machine was %.0f %% busy before", 100*min(share, 1))
	}
	return ""
}
