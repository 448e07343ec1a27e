// Package transporttest holds what every network of package transport must do, as tests.
//
//	func TestMemory(t *testing.T) {
//		transporttest.Run(t, transporttest.Kit{
//			Open: func(*testing.T) transport.Network { return transport.NewMemory() },
//		})
//	}
//
// Each case opens a network of its own, ends all its ports, and then looks for goroutines that were left behind. A case asserts order
// and outcome, never how long something took: what waits, waits on an event with a deadline far beyond any sane machine.
package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/transport"
)

// A Kit says how to open the network under test, and what it differs in.
type Kit struct {
	Open    func(t *testing.T) transport.Network
	Options transport.Options // of every port: a Secret, for one

	// Bubble runs each case inside testing/synctest: for networks that wait on nothing but channels, with virtual time.
	Bubble bool

	// Allocs is how many allocations a frame may take in steady state, sender and receiver together; negative: not tested. The case
	// is left out under the race detector, which allocates.
	Allocs float64

	// Cut breaks the link between two ports, both of which stay open, as a cable does. Nil: the network cannot, and the case says so.
	Cut func(t *testing.T, a, b transport.Port)

	// Skip names cases that the network cannot pass, each with the reason, which is printed.
	Skip map[string]string
}

// deadline is for whoever waits: far beyond what a busy machine takes.
const deadline = 60 * time.Second

// Run runs all cases.
func Run(t *testing.T, k Kit) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if why := k.Skip[c.name]; why != "" {
				t.Skip("not run here: " + why)
			}
			body := func(t *testing.T) {
				defer leftBehind(t, goroutines())
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				s := &scene{T: t, ctx: ctx, kit: k, net: k.Open(t)}
				defer s.close()
				c.run(s)
			}
			if k.Bubble {
				synctest.Test(t, body)
			} else {
				body(t)
			}
		})
	}
}

var cases = []struct {
	name string
	run  func(s *scene)
}{
	{"Order", order},
	{"Sizes", sizes},
	{"Fields", fields},
	{"TooLong", tooLong},
	{"TooLongThere", tooLongThere},
	{"OpenTwice", openTwice},
	{"StreamTwice", streamTwice},
	{"UnknownPeer", unknownPeer},
	{"AnswerWithoutKnow", answerWithoutKnow},
	{"PostBefore", postBefore},
	{"PostAfter", postAfter},
	{"PostWrongLength", postWrongLength},
	{"PostTwice", postTwice},
	{"Unpost", unpost},
	{"CreditBlocks", creditBlocks},
	{"CreditUnblocks", creditUnblocks},
	{"ControlCredit", controlCredit},
	{"More", more},
	{"GivenUp", givenUp},
	{"ControlPasses", controlPasses},
	{"UrgentFirst", urgentFirst},
	{"StreamNotOpenYet", streamNotOpenYet},
	{"StreamsApart", streamsApart},
	{"ManyNotOpen", manyNotOpen},
	{"FenceOlder", fenceOlder},
	{"FenceNewer", fenceNewer},
	{"FenceReceived", fenceReceived},
	{"FenceMembers", fenceMembers},
	{"FenceFalls", fenceFalls},
	{"DoneOnce", doneOnce},
	{"DoneOnLoss", doneOnLoss},
	{"NoDone", noDone},
	{"ReleaseTwice", releaseTwice},
	{"CloseWakes", closeWakes},
	{"StreamClose", streamClose},
	{"StreamAgain", streamAgain},
	{"ContextEnds", contextEnds},
	{"LinkLost", linkLost},
	{"LinkLostAfterFrames", linkLostAfterFrames},
	{"LinkBack", linkBack},
	{"NextIncarnation", nextIncarnation},
	{"Refused", refused},
	{"Cut", cut},
	{"Forget", forget},
	{"Heard", heard},
	{"Stats", stats},
	{"AllToAll", allToAll},
	{"ConcurrentSenders", concurrentSenders},
	{"HeldFrames", heldFrames},
	{"Bounded", bounded},
	{"BothWays", bothWays},
	{"ManyStreams", manyStreams},
	{"UnpostRace", unpostRace},
	{"FenceRace", fenceRace},
	{"FenceNobody", fenceNobody},
	{"PostOutlivesLink", postOutlivesLink},
	{"Chaos", chaos},
	{"Allocations", allocations},
}

// A scene is a network with its ports, for one case.
type scene struct {
	*testing.T
	ctx   context.Context
	kit   Kit
	net   transport.Network
	ports []transport.Port
	sends atomic.Int64 // frames that Send took with a Done
	dones atomic.Int64 // their Dones
}

// name returns the name of peer i.
func name(i int) transport.Name { return transport.Name{Job: "kit", Role: "peer", ID: fmt.Sprint(i)} }

// open opens a port for n, which the other ports then know, and it them.
func (s *scene) open(n transport.Name) transport.Port {
	s.Helper()
	p := s.openAlone(n)
	for _, q := range s.ports {
		if q != p {
			s.must(q.Know(p.Name(), p.Addr()))
			s.must(p.Know(q.Name(), q.Addr()))
		}
	}
	return p
}

func (s *scene) openAlone(n transport.Name) transport.Port {
	s.Helper()
	o := s.kit.Options
	if o.Handshake == 0 {
		o.Handshake = deadline // a busy machine may take seconds, and a link that is lost fails a case
	}
	p, err := s.net.Open(s.ctx, n, o)
	s.must(err)
	s.ports = append(s.ports, p)
	return p
}

// shut closes p now, instead of at the end of the case.
func (s *scene) shut(p transport.Port) {
	s.Helper()
	for i, q := range s.ports {
		if q == p {
			s.ports = append(s.ports[:i:i], s.ports[i+1:]...)
			break
		}
	}
	s.must(p.Close())
}

// close ends all ports: then every Done must have been called.
func (s *scene) close() {
	for _, p := range s.ports {
		if err := p.Close(); err != nil {
			s.Errorf("close %v: %v", p.Name(), err)
		}
	}
	if sends, dones := s.sends.Load(), s.dones.Load(); sends != dones && !s.Failed() {
		s.Errorf("%d frames were taken with a Done, which was called %d times after all ports are closed", sends, dones)
	}
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) stream(p transport.Port, name string, o transport.StreamOptions) transport.Stream {
	s.Helper()
	st, err := p.Stream(name, o)
	s.must(err)
	return st
}

// pair returns two ports with a stream each.
func (s *scene) pair(o transport.StreamOptions) (a, b transport.Stream) {
	s.Helper()
	return s.stream(s.open(name(0)), "kit", o), s.stream(s.open(name(1)), "kit", o)
}

// send sends f, with a Done that is counted unless f has one.
func (s *scene) send(ctx context.Context, from transport.Stream, to transport.Name, f transport.Frame) error {
	called := new(atomic.Bool)
	done := f.Done
	f.Done = func(err error) {
		s.dones.Add(1)
		if called.Swap(true) {
			s.Errorf("Done of frame %v was called twice", f.Key)
		}
		if done != nil {
			done(err)
		}
	}
	s.sends.Add(1)
	err := from.Send(ctx, to, f)
	if err != nil {
		s.sends.Add(-1) // it gets no Done
	}
	return err
}

func (s *scene) mustSend(from, to transport.Stream, f transport.Frame) {
	s.Helper()
	if err := s.send(s.ctx, from, to.Self(), f); err != nil {
		s.Fatalf("send %v to %v: %v", f.Key, to.Self(), err)
	}
}

// recv returns the next event, which must be a frame.
func (s *scene) recv(at transport.Stream) transport.Event {
	s.Helper()
	ev := s.event(at)
	if ev.What != transport.Received {
		s.Fatalf("%v received event %d from %v (%v), want a frame", at.Self(), ev.What, ev.From, ev.Err)
	}
	return ev
}

func (s *scene) event(at transport.Stream) transport.Event {
	s.Helper()
	ev, err := at.Recv(s.ctx)
	if err != nil {
		s.Fatalf("%v: receive: %v", at.Self(), err)
	}
	return ev
}

// link waits for a link event of the peer; frames that come before it are released.
func (s *scene) link(at transport.Stream, what transport.EventKind, from transport.Name) transport.Event {
	s.Helper()
	for {
		ev := s.event(at)
		if ev.What == what && ev.From == from {
			return ev
		}
		ev.Release()
	}
}

// blocked calls f, which must end by its context if it does not succeed: the context ends when f has done nothing but wait for a
// moment.
func (s *scene) blocked(f func(ctx context.Context) error) error {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = f(ctx)
	}()
	s.settled(ended)
	cancel()
	<-ended
	if err != nil && !errors.Is(err, context.Canceled) {
		s.Fatalf("want it to block until the context ends, found the error %v", err)
	}
	return err
}

// settle waits until all goroutines wait. Without virtual time nobody can tell what is on its way between sockets: then it waits until
// nothing of this module has run for a moment, and what the case asserts afterwards must hold however short that was.
func (s *scene) settle() { s.settled(nil) }

// settled is settle that also ends with ended.
func (s *scene) settled(ended <-chan struct{}) {
	if s.kit.Bubble {
		synctest.Wait()
		return
	}
	for quiet := 0; quiet < 5; quiet++ {
		select {
		case <-time.After(time.Millisecond): // nobody tells when a goroutine waits
		case <-ended:
			return
		case <-s.ctx.Done():
			return
		}
		for i, g := range stacks() {
			if i > 0 && strings.Contains(g, "trivium/transport") && !waits(g) { // the first is this one
				quiet = -1
				break
			}
		}
	}
}

// waits reports whether a goroutine waits for another, or for a connection, by its stack's first line: "goroutine 7 [select]:".
func waits(stack string) bool {
	_, state, _ := strings.Cut(stack, "[")
	for _, s := range []string{"select", "chan receive", "sync.Cond.Wait", "sync.WaitGroup.Wait", "IO wait"} {
		if strings.HasPrefix(state, s) {
			return true
		}
	}
	return false
}

// key is the key of the i-th frame.
func key(i int) transport.Key { return transport.Key{Op: 7<<20 | 3, Chunk: uint32(i)} }

// content is what the i-th frame carries: noise, from a place that i and n choose. Drawn for each frame, it was a sixth of the time of the tests
// under the race detector.
func content(i, n int) []byte {
	p := make([]byte, n)
	at := rand.New(rand.NewPCG(uint64(i), uint64(n))).IntN(len(noise) / 2)
	for q := p; len(q) > 0; at = 0 {
		q = q[copy(q, noise[at:]):]
	}
	return p
}

var noise = func() []byte {
	p := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}()

func (s *scene) same(what string, want, found []byte) {
	s.Helper()
	if !bytes.Equal(want, found) {
		at := 0
		for at < min(len(want), len(found)) && want[at] == found[at] {
			at++
		}
		s.Fatalf("%s: %d bytes were sent, %d came, they differ from byte %d", what, len(want), len(found), at)
	}
}

// stacks returns the stacks of all goroutines, that of the caller first.
func stacks() []string {
	p := make([]byte, 1<<20)
	return strings.Split(string(p[:runtime.Stack(p, true)]), "\n\n")
}

// goroutines returns the stacks of all goroutines, by their numbers.
func goroutines() map[string]string {
	all := map[string]string{}
	for _, g := range stacks() {
		number, _, _ := strings.Cut(strings.TrimPrefix(g, "goroutine "), " ")
		all[number] = g
	}
	return all
}

// leftBehind fails if a goroutine runs code of this module that is not in before. It waits for those that are about to end.
func leftBehind(t *testing.T, before map[string]string) {
	left := ""
	for wait := time.Millisecond; wait < 10*time.Second; wait *= 2 {
		left = ""
		for number, stack := range goroutines() {
			if _, ok := before[number]; !ok && strings.Contains(stack, "trivium/transport") && !strings.Contains(stack, "transporttest.leftBehind") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return
		}
		time.Sleep(wait) // nobody tells when a goroutine has ended
	}
	t.Errorf("goroutines were left behind:\n%s", left)
}
