package collective_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// A trainer drives a Machine: in each step it starts three operations, of different algorithms, and commits; or, where mail is set, it sends to the rank
// whose turn it is, which receives from any, as often as there are others. It reports what it learns.
type trainer struct {
	m    *collective.Machine
	rank int
	size int
	step uint64
	dst  [3][]float32
	left int
	over bool
	mail bool
	from []int // who sent, in this step
}

// Facts.
type (
	completed struct {
		step uint64
		rank int
	}
	committed struct {
		step uint64
		rank int
		bits string
	}
	failed struct {
		rank int
		err  string
	}
	wrongMail struct{ text string }
)

const trainerLen = 40

func contribution(rank int, step uint64, tag, i int) float32 {
	return float32(rank+1)*0.1 + float32(step)*0.3 + float32(tag) + float32(i)*0.7
}

func (x *trainer) Step(now time.Duration, in protocol.Event) []protocol.Command {
	if x.over {
		if _, ok := in.(protocol.Start); ok {
			return []protocol.Command{protocol.Report{Fact: failed{x.rank, ""}}}
		}
		return nil
	}
	out := append([]protocol.Command(nil), x.m.Step(now, in)...)
	if _, ok := in.(protocol.Start); ok {
		out = append(out, x.begin(now)...)
	}
	return x.follow(now, out)
}

// follow turns answers to what the trainer asked into what it does next.
func (x *trainer) follow(now time.Duration, in []protocol.Command) []protocol.Command {
	var out []protocol.Command
	for len(in) > 0 {
		cmd := in[0]
		in = in[1:]
		a, ok := cmd.(protocol.Answer)
		if !ok {
			out = append(out, cmd)
			continue
		}
		if a.Err != nil && !x.over {
			x.over = true
			out = append(out, protocol.Report{Fact: failed{x.rank, a.Err.Error()}})
			continue
		}
		switch call := a.Result.(type) {
		case collective.StartCall:
			if text := x.wrong(call); a.Err == nil && text != "" {
				out = append(out, protocol.Report{Fact: wrongMail{text}})
			}
			if x.left--; x.left == 0 {
				out = append(out, protocol.Report{Fact: completed{x.step, x.rank}})
				in = append(in, x.m.Step(now, protocol.Call{ID: 9, Arg: collective.CommitCall{Step: x.step}})...)
			}
		case collective.CommitCall:
			out = append(out, protocol.Report{Fact: committed{x.step, x.rank, fmt.Sprintf("%x", x.dst)}})
			x.step++
			in = append(in, x.begin(now)...)
		}
	}
	return out
}

func (x *trainer) begin(now time.Duration) []protocol.Command {
	var calls []collective.StartCall
	if x.mail {
		calls = x.mails()
	} else {
		calls = x.sums()
	}
	x.left = len(calls)
	var out []protocol.Command
	for i, call := range calls {
		out = append(out, x.m.Step(now, protocol.Call{ID: uint64(i), Arg: call})...)
	}
	return out
}

func (x *trainer) sums() (calls []collective.StartCall) {
	for tag := range 3 {
		x.dst[tag] = make([]float32, trainerLen)
		op := collective.Op{Plan: []collective.Algorithm{collective.Ring, collective.Halving, collective.Tree}[tag]}
		calls = append(calls, collective.StartCall{Op: op, Tag: uint32(tag), Dst: collective.Of(x.dst[tag]), Src: x.contributes(tag)})
	}
	return calls
}

func (x *trainer) contributes(tag int) collective.Buffer {
	src := make([]float32, trainerLen)
	for i := range src {
		src[i] = contribution(x.rank, x.step, tag, i)
	}
	return collective.Of(src)
}

func (x *trainer) mails() (calls []collective.StartCall) {
	x.from = nil
	receiver := int(x.step) % x.size
	if x.rank != receiver {
		return []collective.StartCall{{Op: collective.Op{Kind: collective.Send, Root: receiver}, Tag: 7, Src: x.contributes(0)}}
	}
	for range x.size - 1 {
		op := collective.Op{Kind: collective.Receive, Root: collective.AnyRank}
		calls = append(calls, collective.StartCall{Op: op, Tag: 7, Dst: collective.Of(make([]float32, trainerLen))})
	}
	return calls
}

// wrong says what is wrong with a message that has come, or with who sent those of the step.
func (x *trainer) wrong(call collective.StartCall) string {
	if call.Op.Kind != collective.Receive {
		return ""
	}
	sender := trainer{rank: call.Op.Root, step: x.step}
	if want := sender.contributes(0); !bytes.Equal(call.Dst.Bytes, want.Bytes) {
		return fmt.Sprintf("step %d: from rank %d came %x, want %x", x.step, call.Op.Root, call.Dst.Bytes, want.Bytes)
	}
	if x.from = append(x.from, call.Op.Root); slices.Contains(x.from[:len(x.from)-1], call.Op.Root) || call.Op.Root == x.rank {
		return fmt.Sprintf("step %d: rank %d has received from ranks %d", x.step, x.rank, x.from)
	}
	return ""
}

// trainers fills w with a group, and checks agreement, all or nothing, and, if alike, that all failures have the same words.
func trainers(w *sim.World, size int, alike, mail bool) (steps *uint64, failures map[int]string) {
	v := collective.View{Epoch: 1}
	for r := range size {
		v.Peers = append(v.Peers, protocol.Name{Role: "worker", ID: strconv.Itoa(r)})
	}
	for r, n := range v.Peers {
		w.Add(n, sim.Host{}, func(d sim.Disk) protocol.Machine {
			if d.Boots() > 1 { // a process that starts again is in no view
				return &trainer{rank: r, over: true}
			}
			v := v
			v.Self = r
			m, err := collective.NewMachine(v, collective.Options{Segment: 64, Deadline: time.Second})
			if err != nil {
				panic(err)
			}
			return &trainer{m: m, rank: r, size: size, mail: mail}
		})
	}
	steps = new(uint64)
	failures = map[int]string{}
	results, done := map[uint64]string{}, map[uint64]int{}
	w.Invariant("agreement", func(f sim.Fact) error {
		c, ok := f.Value.(committed)
		if !ok {
			return nil
		}
		*steps = max(*steps, c.step+1)
		if want, ok := results[c.step]; ok && want != c.bits {
			return fmt.Errorf("step %d: rank %d has other bits", c.step, c.rank)
		}
		results[c.step] = c.bits
		return nil
	})
	w.Invariant("mail", func(f sim.Fact) error {
		if x, ok := f.Value.(wrongMail); ok {
			return errors.New(x.text)
		}
		return nil
	})
	w.Invariant("all or nothing", func(f sim.Fact) error {
		switch x := f.Value.(type) {
		case completed:
			done[x.step]++
		case committed:
			if done[x.step] != size {
				return fmt.Errorf("rank %d has committed step %d, which %d of %d ranks have completed", x.rank, x.step, done[x.step], size)
			}
		}
		return nil
	})
	w.Invariant("one blame", func(f sim.Fact) error {
		x, ok := f.Value.(failed)
		if !ok {
			return nil
		}
		for _, other := range failures {
			if alike && other != x.err {
				return fmt.Errorf("rank %d has %q, another %q", x.rank, x.err, other)
			}
		}
		failures[x.rank] = x.err
		return nil
	})
	return steps, failures
}

func TestSimWithoutFaults(t *testing.T)     { withoutFaults(t, false) }
func TestSimMailWithoutFaults(t *testing.T) { withoutFaults(t, true) }

func withoutFaults(t *testing.T, mail bool) {
	for size := 2; size <= 6; size++ {
		w := sim.New(uint64(size), sim.Options{})
		steps, failures := trainers(w, size, true, mail)
		if err := w.Run(nil, 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if *steps < 10 || len(failures) > 0 {
			t.Errorf("%d ranks: %d steps, failures %v", size, *steps, failures)
		}
	}
}

// One rank dies: all the others say so with the same words, at most 10 ms later.
func TestSimOneCrash(t *testing.T)     { oneCrash(t, false) }
func TestSimMailOneCrash(t *testing.T) { oneCrash(t, true) }

func oneCrash(t *testing.T, mail bool) {
	for size := 2; size <= 6; size++ {
		for seed := range uint64(20) {
			w := sim.New(seed, sim.Options{})
			_, failures := trainers(w, size, true, mail)
			at := 5*time.Millisecond + time.Duration(seed)*61*time.Microsecond
			victim := sim.Node(int(seed) % size)
			plan := sim.Plan{{At: at, Kind: sim.Crash, Nodes: []sim.Node{victim}}}
			if err := w.Run(plan, at+10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if len(failures) != size-1 {
				t.Fatalf("seed %d, %d ranks: 10 ms after rank %d died %d ranks know: %v", seed, size, victim, len(failures), failures)
			}
		}
	}
}

// Any fault: agreement and all-or-nothing hold, and nobody hangs beyond the deadline.
func TestSimExplore(t *testing.T)     { explore(t, false) }
func TestSimMailExplore(t *testing.T) { explore(t, true) }

func explore(t *testing.T, mail bool) {
	count := 50
	if testing.Short() {
		count = 12
	}
	sim.Explore(t, sim.Range{Count: count}, func(w *sim.World) (sim.Plan, func(sim.Plan) error) {
		const size = 4
		steps, failures := trainers(w, size, false, mail)
		plan := sim.RandomPlan(w.Seed(), w, sim.Mix{Until: 200 * time.Millisecond, MaxFor: 100 * time.Millisecond, Faults: 3, Kinds: []sim.Kind{
			sim.Crash, sim.Vanish, sim.Pause, sim.Slow, sim.Delay, sim.Jitter, sim.Loss, sim.Reset, sim.Clog, sim.Partition, sim.Mute, sim.Bandwidth,
		}})
		return plan, func(p sim.Plan) error {
			if err := w.Run(p, 250*time.Millisecond); err != nil {
				return err
			}
			w.Heal(nil)
			before := *steps
			return w.Converges(4*time.Second, func() bool { return *steps > before || len(failures) == size })
		}
	})
}
