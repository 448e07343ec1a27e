package tensor

import (
	"strings"
	"testing"
	"time"
)

// A stepped is a Width in virtual time.
type stepped struct {
	*Width
	at   time.Duration
	cost func(threads int, at time.Duration, step int64) time.Duration
	by   map[int]int // steps by threads
}

func newStepped(t *testing.T, threads int, cost func(threads int, at time.Duration, step int64) time.Duration) *stepped {
	p := NewPool(threads)
	t.Cleanup(p.Close)
	s := &stepped{Width: newWidth(p), cost: cost, by: map[int]int{}}
	s.now = func() time.Duration { return s.at }
	return s
}

// until makes steps up to a moment.
func (s *stepped) until(t *testing.T, end time.Duration) {
	t.Helper()
	for s.at < end {
		s.Begin()
		n := s.pool.Width()
		s.by[n]++
		s.at += s.cost(n, s.at, s.steps)
		s.End()
		if n := s.pool.Width(); n != s.pool.Threads() {
			t.Fatalf("between steps %d threads take part, want all %d", n, s.pool.Threads())
		}
	}
}

// costs are of 1, 2, … threads, in microseconds.
func costs(micros ...int) func(int, time.Duration, int64) time.Duration {
	return func(n int, _ time.Duration, _ int64) time.Duration {
		return time.Duration(micros[n-1]) * time.Microsecond
	}
}

// TestWidthFinds: steps come to be made with the threads that make them fastest, and comparing costs little.
func TestWidthFinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		micros []int
		want   int
		lost   float64 // part of the time
	}{
		{"two are faster", []int{90, 65}, 2, 0.01},
		{"one is faster", []int{90, 140}, 1, 0.01},
		{"one is hardly faster", []int{90, 91}, 2, 0.02}, // not worth a change
		{"two of eight", []int{120, 90, 95, 105, 120, 130, 150, 170}, 2, 0.01},
		{"three of three", []int{120, 90, 70}, 3, 0.01},
		{"two of three", []int{120, 80, 90}, 2, 0.01},
		{"long steps", []int{20e3, 10e3}, 2, 0.02},
	} {
		s := newStepped(t, len(c.micros), costs(c.micros...))
		s.until(t, 20*time.Second)
		if s.best != c.want {
			t.Errorf("%s: %d threads, want %d; steps by threads: %v", c.name, s.best, c.want, s.by)
		}
		least := c.micros[c.want-1]
		for _, m := range c.micros {
			least = min(least, m)
		}
		if lost := 1 - float64(s.steps)*float64(least)/float64(s.at.Microseconds()); lost > c.lost {
			t.Errorf("%s: %.4f of the time is lost, want at most %v; steps by threads: %v", c.name, lost, c.lost, s.by)
		}
		if found := s.Found(); (found == "") != (c.want == len(c.micros)) || found != "" && !strings.Contains(found, "fewer than the") {
			t.Errorf("%s: %q", c.name, found)
		}
	}
}

// TestWidthFollows: what is fastest changes when the host moves the machine's processors.
func TestWidthFollows(t *testing.T) {
	near, far := costs(90, 65), costs(90, 140)
	s := newStepped(t, 2, func(n int, at time.Duration, step int64) time.Duration {
		if at/(5*time.Second)%2 == 0 {
			return near(n, at, step)
		}
		return far(n, at, step)
	})
	for i, want := range []int{2, 1, 2, 1} {
		s.until(t, time.Duration(i)*5*time.Second+1200*time.Millisecond)
		if s.best != want {
			t.Errorf("1.2 s after the processors were moved for the %d. time: %d threads, want %d", i, s.best, want)
		}
	}
}

// TestWidthWaits: what counts of too many threads is also that a step waits for one of them now and then.
func TestWidthWaits(t *testing.T) {
	s := newStepped(t, 2, func(n int, _ time.Duration, step int64) time.Duration {
		if n == 2 && step%40 == 0 {
			return 3 * time.Millisecond // for a thread that has lost its core
		}
		return time.Duration(130-30*n) * time.Microsecond
	})
	s.until(t, 10*time.Second)
	if ones := float64(s.by[1]) / float64(s.steps); ones < 0.97 {
		t.Errorf("%.3f of the steps have one thread, want nearly all", ones)
	}
}

// TestWidthDisturbed: a step that something else held up decides nothing.
func TestWidthDisturbed(t *testing.T) {
	even := costs(100, 60)
	s := newStepped(t, 2, func(n int, at time.Duration, step int64) time.Duration {
		if step%997 == 0 {
			return 5 * time.Millisecond
		}
		return even(n, at, step)
	})
	for s.at < 20*time.Second {
		s.until(t, s.at+1)
		if s.best != 2 {
			t.Fatalf("at %v one thread", s.at)
		}
	}
	if s.by[1] == 0 {
		t.Error("nothing was compared")
	}
}

// TestWidthLeaves: a step that is begun and not ended leaves all threads to what follows.
func TestWidthLeaves(t *testing.T) {
	s := newStepped(t, 2, costs(90, 140))
	s.until(t, time.Second)
	s.Begin()
	if n := s.pool.Width(); n != 1 {
		t.Fatalf("a step has %d threads, want 1", n)
	}
	s.Leave()
	if n := s.pool.Width(); n != 2 {
		t.Errorf("after it %d threads take part, want 2", n)
	}
	var none *CPU
	none.Width().Begin()
	none.Width().Leave()
	none.Width().End()
	if text := none.Width().Found(); text != "" {
		t.Error(text)
	}
	one := NewCPU(1, false)
	if one.Adapt(); one.Width() != nil {
		t.Error("one thread has nothing to choose from")
	}
}
