package sim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

func plan(t testing.TB, text string) sim.Plan {
	t.Helper()
	p, err := sim.ParsePlan(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// num is a numbered frame of 952 bytes, with its header 1,000.
type num uint64

func (num) Size() int { return 952 }

// stream is what of 100 frames, one a millisecond from 0 to 1, arrives at 1, with their times.
func stream(t *testing.T, link sim.Link, text string) (got []num, at []time.Duration, lost int) {
	t.Helper()
	w := sim.New(7, sim.Options{Link: link})
	a, b := name("a"), name("b")
	next := num(0)
	w.Add(a, sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in.(type) {
			case protocol.Start, protocol.Timer:
				if next == 100 {
					return nil
				}
				next++
				return []protocol.Command{protocol.Send{To: b, Body: next - 1}, protocol.SetTimer{After: time.Millisecond}}
			case protocol.LinkLost:
				lost++
			}
			return nil
		})
	})
	w.Add(b, sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			if m, ok := in.(protocol.Message); ok {
				got, at = append(got, m.Body.(num)), append(at, w.Now())
			}
			return nil
		})
	})
	if err := w.Run(plan(t, text), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	return got, at, lost
}

func TestLinkFaults(t *testing.T) {
	ms := time.Millisecond
	plain := sim.Link{Delay: ms}
	datagram := sim.Link{Delay: ms, Datagram: true}
	ordered := func(t *testing.T, got []num) {
		t.Helper()
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("frames arrived as %d: want in order and at most once", got)
		}
	}
	t.Run("none", func(t *testing.T) {
		got, at, lost := stream(t, plain, "")
		ordered(t, got)
		if len(got) != 100 || lost != 0 || at[0] != ms || at[99] != 100*ms {
			t.Errorf("%d frames, %d times lost, from %v to %v: want 100 from 1ms to 100ms", len(got), lost, at[0], at[99])
		}
	})
	t.Run("delay", func(t *testing.T) {
		got, at, _ := stream(t, plain, "50.5ms delay for 10ms arg 0.005")
		ordered(t, got)
		if len(got) != 100 || at[50] != 51*ms || at[51] != 57*ms || at[60] != 66*ms || at[61] != 66*ms {
			t.Errorf("arrivals %v: want 5ms more from frame 51 to 60, and none to overtake", at[48:64])
		}
	})
	t.Run("jitter", func(t *testing.T) {
		got, at, _ := stream(t, plain, "0s jitter arg 0.003")
		ordered(t, got)
		different := map[time.Duration]bool{}
		for i := range at {
			d := at[i] - time.Duration(i)*ms
			if d < ms || d >= 4*ms {
				t.Errorf("frame %d took %v: want 1ms to 4ms", i, d)
			}
			different[d] = true
		}
		if len(different) < 20 {
			t.Errorf("only %d different times", len(different))
		}
	})
	t.Run("bandwidth", func(t *testing.T) {
		got, at, _ := stream(t, plain, "0s bandwidth arg 100000") // 1,000 bytes take 10 ms
		ordered(t, got)
		if len(got) != 100 || at[99]-at[0] != 990*ms {
			t.Errorf("%d frames within %v, want 100 within 990ms", len(got), at[len(at)-1]-at[0])
		}
	})
	t.Run("loss breaks a link", func(t *testing.T) {
		got, _, lost := stream(t, plain, "0s loss arg 0.05")
		ordered(t, got)
		if len(got) == 100 || lost == 0 {
			t.Errorf("%d frames and %d times LinkLost: want fewer than 100, and some", len(got), lost)
		}
	})
	t.Run("corruption breaks a link", func(t *testing.T) {
		got, _, lost := stream(t, plain, "0s corrupt 0 arg 0.05")
		ordered(t, got)
		if len(got) == 100 || lost == 0 {
			t.Errorf("%d frames and %d times LinkLost: want fewer than 100, and some", len(got), lost)
		}
	})
	t.Run("duplicates and reordering leave a link alone", func(t *testing.T) {
		got, _, lost := stream(t, plain, "0s duplicate arg 0.5; 0s reorder arg 0.5")
		ordered(t, got)
		if len(got) != 100 || lost != 0 {
			t.Errorf("%d frames and %d times LinkLost: want 100 and 0", len(got), lost)
		}
	})
	t.Run("datagrams are lost", func(t *testing.T) {
		got, _, lost := stream(t, datagram, "0s loss arg 0.2")
		ordered(t, got)
		if len(got) < 60 || len(got) > 95 || lost != 0 {
			t.Errorf("%d frames and %d times LinkLost: want about 80 and 0", len(got), lost)
		}
	})
	t.Run("datagrams are doubled", func(t *testing.T) {
		got, _, _ := stream(t, datagram, "0s duplicate arg 0.2")
		if len(got) < 105 || len(got) > 140 {
			t.Errorf("%d frames: want about 120", len(got))
		}
	})
	t.Run("datagrams are reordered", func(t *testing.T) {
		got, _, _ := stream(t, datagram, "0s reorder 0,1 arg 0.2")
		if len(got) != 100 || slices.IsSorted(got) {
			t.Errorf("%d frames, in order: %v: want 100, not in order", len(got), slices.IsSorted(got))
		}
	})
	t.Run("clog", func(t *testing.T) {
		got, at, lost := stream(t, plain, "50.5ms clog for 20ms")
		ordered(t, got)
		if len(got) != 100 || lost != 0 || at[51] != 71500*time.Microsecond || at[70] != at[51] {
			t.Errorf("%d frames, %d times LinkLost, arrivals %v: want all, 51 to 70 at 71.5ms", len(got), lost, at[50:72])
		}
	})
	t.Run("reset", func(t *testing.T) {
		got, _, lost := stream(t, plain, "50.5ms reset 0,1")
		ordered(t, got)
		if len(got) != 89 || lost != 2 { // one under way and 10 while it was down
			t.Errorf("%d frames and %d times LinkLost: want 89 and 2", len(got), lost)
		}
	})
}

// reach is who hears whom, of n nodes that all say hello to all at 0, 100 ms and 200 ms, under a fault from 50 ms to 150 ms: the
// frames of 100 ms count.
func reach(t *testing.T, n int, text string) string {
	t.Helper()
	w := sim.New(3, sim.Options{})
	heard := make([][]bool, n)
	for i := range n {
		heard[i] = make([]bool, n)
		w.Add(name(fmt.Sprint(i)), sim.Host{}, func(sim.Disk) protocol.Machine {
			return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
				switch in := in.(type) {
				case protocol.Start, protocol.Timer:
					out := []protocol.Command{protocol.SetTimer{After: 100 * time.Millisecond}}
					for j := range n {
						out = append(out, protocol.Send{To: name(fmt.Sprint(j)), Body: num(0)})
					}
					return out
				case protocol.Message:
					if w.Now() > 90*time.Millisecond && w.Now() < 140*time.Millisecond {
						var from int
						_, _ = fmt.Sscan(in.From.ID, &from)
						heard[i][from] = true
					}
				}
				return nil
			})
		})
	}
	if err := w.Run(plan(t, text), 250*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, h := range heard {
		row := ""
		for _, ok := range h {
			row += map[bool]string{true: "x", false: "."}[ok]
		}
		rows = append(rows, row)
	}
	return strings.Join(rows, " ")
}

func TestPartitions(t *testing.T) {
	for _, c := range []struct{ plan, want string }{
		{"", "xxxxx xxxxx xxxxx xxxxx xxxxx"},
		{"50ms partition 2 for 100ms", "xx.xx xx.xx ..x.. xx.xx xx.xx"},
		{"50ms partition 0,1 for 100ms", "xx... xx... ..xxx ..xxx ..xxx"},
		{"50ms mute 0 for 100ms", "xxxxx .xxxx .xxxx .xxxx .xxxx"},
		{"50ms deafen 0 for 100ms", "x.... xxxxx xxxxx xxxxx xxxxx"},
		{"50ms bridge 2,0,1 for 100ms", "xxx.. xxx.. xxxxx ..xxx ..xxx"},
		{"50ms ring for 100ms", "xx..x xxx.. .xxx. ..xxx x..xx"},
		{"50ms ring 4,3,2,1,0 for 100ms", "xx..x xxx.. .xxx. ..xxx x..xx"},
		{"50ms partition 0 for 100ms; 50ms partition 0,1 for 100ms", "x.... .x... ..xxx ..xxx ..xxx"},
	} {
		if got := reach(t, 5, c.plan); got != c.want {
			t.Errorf("%q: heard\n%s, want\n%s", c.plan, got, c.want)
		}
	}
	// Each side of a swizzled network hears from all in the end, and not at once.
	got, at, _ := stream(t, sim.Link{Delay: time.Millisecond}, "20.5ms swizzle for 60ms")
	if len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("swizzle: %d frames, in order: %v", len(got), slices.IsSorted(got))
	}
	if held := slices.IndexFunc(at, func(a time.Duration) bool { return a%time.Millisecond != 0 }); held < 0 {
		t.Error("swizzle held nothing")
	}
}

func TestHostFaults(t *testing.T) {
	ms := time.Millisecond
	// A node that computes 10 ms again and again, and ticks each 10 ms of its clock.
	type seen struct {
		computed, ticks []time.Duration
		clocks          []time.Duration
		boots           int
	}
	run := func(t *testing.T, h sim.Host, text string) (s seen) {
		t.Helper()
		w := sim.New(1, sim.Options{})
		w.Add(name("a"), h, func(d sim.Disk) protocol.Machine {
			s.boots = d.Boots()
			return script(func(now time.Duration, in protocol.Event) []protocol.Command {
				switch in.(type) {
				case protocol.Start:
					return []protocol.Command{protocol.Compute{For: 10 * ms}, protocol.SetTimer{After: 10 * ms}}
				case protocol.Computed:
					s.computed = append(s.computed, w.Now())
					return []protocol.Command{protocol.Compute{For: 10 * ms}}
				case protocol.Timer:
					s.ticks, s.clocks = append(s.ticks, w.Now()), append(s.clocks, now)
					return []protocol.Command{protocol.SetTimer{After: 10 * ms}}
				}
				return nil
			})
		})
		if err := w.Run(plan(t, text), 100*ms+ms/2); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name            string
		host            sim.Host
		plan            string
		computed, ticks int
		boots           int
		last            time.Duration // what the clock showed at the last tick
	}{
		{"plain", sim.Host{}, "", 10, 10, 1, 100 * ms},
		{"fast", sim.Host{Speed: 2}, "", 20, 10, 1, 100 * ms},
		{"slow", sim.Host{}, "0s slow 0 arg 2", 5, 10, 1, 100 * ms},
		{"pause", sim.Host{}, "35ms pause 0 for 50ms", 5, 5, 1, 95 * ms}, // both wait at 40 ms, and go on at 85 ms
		{"skew of the host", sim.Host{Skew: 1}, "", 10, 20, 1, 200 * ms},
		{"skew", sim.Host{}, "0s skew 0 arg 1", 10, 20, 1, 200 * ms},
		{"jump", sim.Host{}, "55ms jump 0 arg 0.5", 10, 10, 1, 595 * ms},
		{"crash", sim.Host{}, "55ms crash 0 for 20ms", 7, 7, 2, 20 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := run(t, c.host, c.plan)
			if len(s.computed) != c.computed || len(s.ticks) != c.ticks || s.boots != c.boots {
				t.Errorf("computed %d times, ticked %d times, booted %d times: want %d, %d, %d\n%v\n%v", len(s.computed), len(s.ticks), s.boots,
					c.computed, c.ticks, c.boots, s.computed, s.ticks)
			}
			last := s.clocks[len(s.clocks)-1]
			if d := last - c.last; d < -ms || d > ms {
				t.Errorf("the clock shows %v in the end, want %v", last, c.last)
			}
		})
	}
}

// writer stores 1, 2, 3 ..., eight bytes each, and keeps what is told of each.
type writer struct {
	next uint64
	told *[]error
}

func (r *writer) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	switch in := in.(type) {
	case protocol.Stored:
		*r.told = append(*r.told, in.Err)
	case protocol.Start:
	case protocol.Timer:
	default:
		return nil
	}
	if _, ok := in.(protocol.Stored); ok {
		return []protocol.Command{protocol.SetTimer{After: time.Millisecond}}
	}
	r.next++
	return []protocol.Command{protocol.Store{ID: r.next, Key: "count", Value: binary.BigEndian.AppendUint64(nil, r.next*0x0101010101010101)}}
}

func TestDiskFaults(t *testing.T) {
	for _, c := range []struct {
		name, plan string
		err        error // of the last write
		size       func(int) bool
		restarted  bool
	}{
		{"none", "", nil, func(n int) bool { return n == 8 }, false},
		{"kept over a crash", "50ms crash 0 for 10ms", nil, func(n int) bool { return n == 8 }, true},
		{"lost with the disk", "50ms wipe 0 for 10ms", nil, func(n int) bool { return n < 0 }, true},
		{"torn", "50ms torn-disk 0 for 10ms", nil, func(n int) bool { return n >= 0 && n < 8 }, true},
		{"short", "50ms short-disk 0", io.ErrShortWrite, func(n int) bool { return n >= 0 && n < 8 }, false},
		{"failing", "50ms failing-disk 0", errors.New("the write failed"), func(n int) bool { return n == 8 }, false},
		{"full", "50ms full-disk 0", errors.New("no space left"), func(n int) bool { return n == 8 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := sim.New(5, sim.Options{})
			var told []error
			size := -1
			var disk sim.Disk
			look := func() {
				size = -1
				if v, ok := disk.Get("count"); ok {
					size = len(v)
				}
			}
			n := w.Add(name("a"), sim.Host{}, func(d sim.Disk) protocol.Machine {
				disk = d
				look()
				if d.Boots() > 1 {
					return script(func(time.Duration, protocol.Event) []protocol.Command { return nil })
				}
				return &writer{told: &told}
			})
			if err := w.Run(plan(t, c.plan), 100*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if !c.restarted {
				look()
			}
			if !c.size(size) {
				t.Errorf("the disk keeps %d bytes", size)
			}
			last := told[len(told)-1]
			if (last == nil) != (c.err == nil) || c.err != nil && !strings.Contains(last.Error(), c.err.Error()) {
				t.Errorf("the last write ended with %v, want %v", last, c.err)
			}
			if !w.Up(n) {
				t.Error("the node is down")
			}
		})
	}
	t.Run("one that fails, and a crash before it is told", func(t *testing.T) {
		for seed := range uint64(20) { // a write under way at a crash rests or does not, as the seed says
			w := sim.New(seed, sim.Options{StoreTime: 10 * time.Millisecond})
			kept := false
			w.Add(name("a"), sim.Host{}, func(d sim.Disk) protocol.Machine {
				_, kept = d.Get("count")
				return &writer{told: new([]error)}
			})
			if err := w.Run(plan(t, "0s failing-disk 0; 5ms crash 0 for 1ms"), 8*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if kept {
				t.Fatalf("seed %d: a write that fails rests after a crash", seed)
			}
		}
	})
	t.Run("a small one", func(t *testing.T) {
		w := sim.New(5, sim.Options{})
		var told []error
		w.Add(name("a"), sim.Host{DiskBytes: 4}, func(sim.Disk) protocol.Machine { return &writer{told: &told} })
		if err := w.Run(nil, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if len(told) == 0 || told[0] == nil {
			t.Errorf("8 bytes rest on a disk of 4: %v", told)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
