package collective_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A mob is a group of machines whose messages arrive in any order that links allow: control frames of one rank for another in their order, and its
// other frames in theirs. Time passes where nothing is under way. A rank that is killed takes with it what is in its links, from any place on,
// and the others hear that in any order.
type mob struct {
	rand   *rand.Rand
	now    time.Duration
	m      []*collective.Machine
	dead   []bool
	links  map[[3]int][]protocol.Event // by from, to, control or not
	timers []time.Duration             // never: none
	calls  func(rank int, step uint64) []collective.StartCall
	eager  bool                        // a rank may commit before its operations are complete
	last   uint64                      // step
	ended  func(rank int, step uint64) // is told of commits; nil: nobody is
	step   []uint64
	left   []int
	waits  []map[string]string // what each rank was told of each operation and commit
	over   []bool
}

const mobLen = 24

const mobNever = time.Duration(1 << 62)

func newMob(seed uint64, size int, hosts [][]int, calls func(rank int, step uint64) []collective.StartCall) *mob {
	x := &mob{
		rand: rand.New(rand.NewPCG(seed, 1)), m: make([]*collective.Machine, size), dead: make([]bool, size), links: map[[3]int][]protocol.Event{},
		timers: slices.Repeat([]time.Duration{mobNever}, size), calls: calls, last: 60,
		step: make([]uint64, size), left: make([]int, size), waits: make([]map[string]string, size), over: make([]bool, size),
	}
	v := collective.View{Epoch: 1, Hosts: hosts}
	for r := range size {
		v.Peers = append(v.Peers, protocol.Name{Role: "worker", ID: strconv.Itoa(r)})
	}
	for r := range size {
		v.Self = r
		var err error
		if x.m[r], err = collective.NewMachine(v, collective.Options{Segment: 64, Deadline: 10 * time.Second}); err != nil {
			panic(err)
		}
		x.waits[r] = map[string]string{}
	}
	return x
}

func (x *mob) begin(r int) {
	calls := x.calls(r, x.step[r])
	x.left[r] = len(calls)
	for i, call := range calls {
		x.do(r, protocol.Call{ID: uint64(i), Arg: call})
	}
	if len(calls) == 0 || x.left[r] > 0 && x.eager && x.rand.IntN(2) == 0 {
		x.left[r] = -1
		x.commit(r)
	}
}

func (x *mob) commit(r int) {
	x.do(r, protocol.Call{ID: 9, Arg: collective.CommitCall{Step: x.step[r]}})
}

// do has a rank take an event.
func (x *mob) do(r int, in protocol.Event) {
	for _, cmd := range slices.Clone(x.m[r].Step(x.now, in)) {
		switch cmd := cmd.(type) {
		case protocol.Send:
			to, _ := strconv.Atoi(cmd.To.ID)
			if x.dead[to] {
				continue
			}
			kind := 0
			if b := cmd.Body.(collective.FrameBody); b.F.Priority == transport.Control {
				kind = 1
			}
			k := [3]int{r, to, kind}
			x.links[k] = append(x.links[k], protocol.Message{From: protocol.Name{Role: "worker", ID: strconv.Itoa(r)}, Body: cmd.Body})
		case protocol.SetTimer:
			x.timers[r] = x.now + cmd.After
		case protocol.Answer:
			x.answered(r, cmd)
		}
	}
}

func (x *mob) answered(r int, a protocol.Answer) {
	text := ""
	if a.Err != nil {
		text = a.Err.Error()
	}
	switch call := a.Result.(type) {
	case collective.StartCall:
		x.waits[r][fmt.Sprintf("step %d, operation %d", x.step[r], call.Tag)] = text
		if x.left[r]--; x.left[r] == 0 {
			x.commit(r)
		}
	case collective.CommitCall:
		x.waits[r][fmt.Sprintf("step %d, commit", x.step[r])] = text
		if x.ended != nil {
			x.ended(r, x.step[r])
		}
		var b *collective.Blame
		if x.over[r] = errors.As(a.Err, &b) && b.Cause == collective.Lost || x.step[r] >= x.last; x.over[r] {
			return
		}
		x.step[r]++
		x.begin(r)
	}
}

// kill ends a rank.
func (x *mob) kill(r int) {
	x.dead[r] = true
	for to := range x.m {
		if to == r || x.dead[to] {
			continue
		}
		for kind := range 2 {
			k := [3]int{r, to, kind}
			if list := x.links[k]; len(list) > 0 {
				x.links[k] = list[:x.rand.IntN(len(list)+1)]
			}
		}
		k := [3]int{r, to, 1}
		x.links[k] = append(x.links[k], protocol.LinkLost{Peer: protocol.Name{Role: "worker", ID: strconv.Itoa(r)}, Err: errors.New("it is dead")})
	}
}

// start has all begin.
func (x *mob) start() {
	for r := range x.m {
		x.begin(r)
	}
}

// turn delivers something, or lets time pass.
func (x *mob) turn() {
	var busy [][3]int
	for from := range x.m {
		for to := range x.m {
			for kind := range 2 {
				if k := [3]int{from, to, kind}; len(x.links[k]) > 0 && !x.dead[to] {
					busy = append(busy, k)
				}
			}
		}
	}
	if len(busy) == 0 {
		first := 0
		for r := range x.m {
			if !x.dead[r] && (x.dead[first] || x.timers[r] < x.timers[first]) {
				first = r
			}
		}
		if x.timers[first] < mobNever {
			x.now = max(x.now, x.timers[first])
			x.timers[first] = mobNever
			x.do(first, protocol.Timer{})
		}
		return
	}
	k := busy[x.rand.IntN(len(busy))]
	ev := x.links[k][0]
	x.links[k] = x.links[k][1:]
	if lost, ok := ev.(protocol.LinkLost); ok {
		from, _ := strconv.Atoi(lost.Peer.ID)
		x.links[[3]int{from, k[1], 0}] = nil
	}
	x.do(k[1], ev)
}

// training says whether a rank that lives does not know yet of a loss.
func (x *mob) training() bool {
	for r := range x.m {
		if !x.dead[r] && !x.over[r] {
			return true
		}
	}
	return false
}

// differences are where survivors were told different errors.
func (x *mob) differences() (list []string) {
	told := map[string]map[string][]int{}
	for r := range x.m {
		if x.dead[r] {
			continue
		}
		if !x.over[r] {
			list = append(list, fmt.Sprintf("rank %d does not know", r))
		}
		for what, text := range x.waits[r] {
			if told[what] == nil {
				told[what] = map[string][]int{}
			}
			told[what][text] = append(told[what][text], r)
		}
	}
	for what, texts := range told {
		if what[len(what)-6:] != "commit" {
			delete(texts, "") // complete there, and provisional
		}
		if len(texts) > 1 {
			list = append(list, fmt.Sprintf("%s: %v", what, texts))
		}
	}
	slices.Sort(list)
	return list
}

// TestTwoFaults: two ranks that die, or one that dies and another that asks for something else, have all survivors return the same error from each
// operation and each commit, and soon.
func TestTwoFaults(t *testing.T)       { twoFaults(t, false) }
func TestTwoFaultsOfMail(t *testing.T) { twoFaults(t, true) }

func mobBuffer(n int) collective.Buffer { return collective.Of(make([]float32, n)) }

// mobSums are three sums, the second of so many elements more.
func mobSums(more int) (calls []collective.StartCall) {
	for tag, plan := range []collective.Algorithm{collective.Ring, collective.Halving, collective.Tree} {
		n := mobLen
		if tag == 1 {
			n += more
		}
		calls = append(calls, collective.StartCall{Op: collective.Op{Plan: plan}, Tag: uint32(tag), Dst: mobBuffer(n), Src: mobBuffer(n)})
	}
	return calls
}

// mobMails: in each step, one rank receives from any what all others send.
func mobMails(r, size int, step uint64, more int) (calls []collective.StartCall) {
	receiver := int(step) % size
	if r != receiver {
		return []collective.StartCall{{Op: collective.Op{Kind: collective.Send, Root: receiver}, Tag: 1, Src: mobBuffer(mobLen + more)}}
	}
	for range size - 1 {
		calls = append(calls, collective.StartCall{Op: collective.Op{Kind: collective.Receive, Root: collective.AnyRank}, Tag: 1, Dst: mobBuffer(mobLen + more)})
	}
	return calls
}

func twoFaults(t *testing.T, mail bool) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	// Seed 951 fails the group at a rank that has yet to begin the next step, of which an operation is void already.
	for _, kind := range []string{"one dies", "two die", "one dies, one differs"} {
		for size := 3; size <= 6; size++ {
			for seed := range seeds + 1 {
				if seed == seeds {
					seed = 951
				}
				odd := [2]int{-1, -1} // a rank and a step: there it begins another operation 1
				x := newMob(seed, size, nil, func(r int, step uint64) []collective.StartCall {
					more := 0
					if odd == [2]int{r, int(step)} {
						more = 1
					}
					if mail {
						return mobMails(r, size, step, more)
					}
					return mobSums(more)
				})
				x.start()
				a, b := int(seed)%size, int(seed/16)%size
				if a == b {
					b = (b + 1) % size
				}
				if kind == "one dies, one differs" {
					odd = [2]int{b, 1 + x.rand.IntN(2)}
				}
				first := x.rand.IntN(60 * size)
				last := first
				if kind == "two die" {
					last += x.rand.IntN(40)
				}
				var killed time.Duration
				for turn := 0; turn <= last || x.training() && turn < 6000; turn++ {
					if turn == first {
						x.kill(a)
					}
					if turn == last {
						if last > first {
							x.kill(b)
						}
						killed = x.now
					}
					x.turn()
				}
				if took := x.now - killed; took > 10*time.Millisecond {
					t.Errorf("%s: seed %d, %d ranks, of which %d dies, then %d: it took %v", kind, seed, size, a, b, took)
				}
				for _, d := range x.differences() {
					t.Errorf("%s: seed %d, %d ranks, of which %d dies, then %d: %s", kind, seed, size, a, b, d)
				}
			}
		}
	}
}
