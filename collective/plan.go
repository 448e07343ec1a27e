package collective

import (
	"fmt"
	"slices"
)

// A Plan is what one rank does in an operation: sends, receives, combinations and copies, with what each must wait for. Nothing in it
// depends on time or values. The executor over real streams, the machine in the simulator and the predictor walk the same list.
//
// Matching: the k-th send of rank a to rank b in a's list is the k-th receive from a in b's.
//
// A receive may overwrite what was sent earlier from the same place, as soon as the plan allows it: a plan must see to it that what
// is received can only have been sent by someone who had that frame, or knew of one who had.
type Plan struct {
	Algorithm Algorithm
	Tasks     []Task
	Scratch   int // elements of memory of its own
	Ring      int // elements of memory that a contribution takes where others read it, again and again; 0: all of them

	frames [][]int32 // by sender and chunk, the task that receives it
	chunks uint32    // of the peer with the most
	slots  []int     // of coded memory, by slot: the rank that encodes it
	sent   bool      // something of the scratch is
	after  []int32   // of each task
	first  []int32   // the tasks that wait for none
}

// A Task is one entry of a Plan.
type Task struct {
	Do    Do
	Phase Phase
	Peer  int
	Chunk uint32 // the number of the frame among those of sender and receiver
	To    Span   // what is sent, or written
	From  []Span // Combine, Copy

	after int32   // tasks that must be done before
	next  []int32 // tasks that wait for this one
}

// A Do is what a Task does.
type Do uint8

// What tasks do.
const (
	DoSend    Do = iota // To's content to Peer
	DoRecv              // from Peer into To
	DoCombine           // To = From[0] ⊕ From[1] ...
	DoCopy              // To = From[0]
	DoFinish            // the mean's division, the scale, and exact mode's one NaN, of To
	DoEncode            // From[0] into coded memory slot To.From
	DoSendCoded
	DoRecvCoded  // into slot
	DoSumCoded   // Dst[To] = own values + the decoded slots, in the order of From
	DoEncodeSum  // Dst[To] into slot, and decoded back into Dst[To]
	DoDecodeInto // slot, which is Peer's, into Dst[To]
	DoRing       // the bell, to Peer: what lies in the arena can be read
	DoHear       // Peer's bell
	DoRingAll    // the bells of all ranks, to Peer
	DoHearAll    // all bells, from Peer
)

// A Phase names a part of a plan, for errors and spans.
type Phase uint8

// The phases.
const (
	PhaseReduce Phase = iota
	PhaseGather
	PhaseMove
)

func (p Phase) String() string { return [...]string{"reduction", "distribution", "transfer"}[p] }

// A Span is a range of elements of a buffer.
type Span struct {
	Buf      Buf
	From, To int
}

// A Buf is one of the memories that a plan works on.
type Buf uint8

// The memories.
const (
	Src Buf = iota // read only
	Dst
	Scratch
	Coded // slots of bytes; From is the slot
	numBufs
	// What follows are the memories that other ranks read: see plan_shared.go.
)

// Len is the number of elements.
func (s Span) Len() int { return s.To - s.From }

// in is s in another memory, moved by so many elements.
func (s Span) in(b Buf, by int) Span { return Span{b, s.From + by, s.To + by} }

// share is part i of s in p parts that are as equal as can be.
func (s Span) share(i, p int) Span {
	n := s.Len()
	return Span{s.Buf, s.From + i*n/p, s.From + (i+1)*n/p}
}

// An Algorithm is a way to make plans.
type Algorithm uint8

// The algorithms of AllReduce. Others have one each.
const (
	Auto       Algorithm = iota
	GatherCast           // everything to rank 0 and back: what the others are compared with
	Ring                 // large messages, any number of ranks
	Halving              // halving and doubling: large messages, few rounds
	Doubling             // whole vectors between partners: the fewest rounds, for small messages
	Tree                 // a binomial tree, in segments
	Pairwise             // every rank sums its part of all others: one rounding
	ExactTree            // along the tree of virtual shards
	Hierarchy            // within hosts, then between them
	Shared               // in memory that the ranks share
	Direct               // the plan of an operation that has only one
)

var algorithmNames = [...]string{"auto", "gather-broadcast", "ring", "halving-doubling", "doubling", "tree", "pairwise", "exact", "hierarchical", "shared memory", "direct"}

func (a Algorithm) String() string {
	if int(a) >= len(algorithmNames) {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// A builder writes a Plan in the order of a program, and finds out what each task must wait for from the spans that it touches.
type builder struct {
	plan       Plan
	rank, size int
	segment    int // elements of a frame at most
	phase      Phase
	sent, got  []uint32        // frames so far, by peer
	touched    [256][][]access // by memory, by segment
}

// near calls f with the accesses to each segment that s lies in, and its bounds, and keeps what f returns.
func (b *builder) near(s Span, f func(list []access, from, to int) []access) {
	unit := b.segment
	if s.Buf == Coded {
		unit = 1
	}
	list := &b.touched[s.Buf]
	for i := s.From / unit; i*unit < s.To; i++ {
		for len(*list) <= i {
			*list = append(*list, nil)
		}
		(*list)[i] = f((*list)[i], i*unit, (i+1)*unit)
	}
}

// An access is what a task did to a range.
type access struct {
	task     int32
	write    bool
	from, to int
}

func newBuilder(rank, size, segment int) *builder {
	return &builder{rank: rank, size: size, segment: max(segment, 1), sent: make([]uint32, size), got: make([]uint32, size)}
}

// scratch reserves n elements.
func (b *builder) scratch(n int) Span {
	s := Span{Scratch, b.plan.Scratch, b.plan.Scratch + n}
	b.plan.Scratch += n
	return s
}

// segments cuts s into frames. All ranks cut spans of one length alike.
func (b *builder) segments(s Span, do func(Span)) {
	for at := s.From; at < s.To; at += b.segment {
		do(Span{s.Buf, at, min(s.To, at+b.segment)})
	}
}

func (b *builder) send(to int, s Span) { b.segments(s, func(s Span) { b.sendOne(to, s) }) }

// sendOne sends a frame, also an empty one.
func (b *builder) sendOne(to int, s Span) {
	b.add(Task{Do: DoSend, Peer: to, Chunk: b.sent[to], To: s}, false, s)
	b.sent[to]++
}

func (b *builder) recv(from int, s Span) { b.segments(s, func(s Span) { b.recvOne(from, s) }) }

func (b *builder) recvOne(from int, s Span) {
	b.add(Task{Do: DoRecv, Peer: from, Chunk: b.got[from], To: s}, true)
	b.got[from]++
}

// recvCombine receives what is to be combined with own, into out: a segment is received into in and combined at once. Where in is
// out, the frame lands where the result will be. first says that what is received is the left operand.
func (b *builder) recvCombine(from int, out, own, in Span, first bool) {
	b.segments(in, func(s Span) {
		at := s.From - in.From
		piece := func(x Span) Span { return Span{x.Buf, x.From + at, x.From + at + s.Len()} }
		b.recvOne(from, s)
		if first {
			b.combine(piece(out), s, piece(own))
		} else {
			b.combine(piece(out), piece(own), s)
		}
	})
}

func (b *builder) combine(out Span, from ...Span) {
	if out.Len() > 0 {
		b.add(Task{Do: DoCombine, To: out, From: from}, true, from...)
	}
}

func (b *builder) copy(out, from Span) {
	if out.Len() > 0 && out != from {
		b.segments(from, func(s Span) {
			at := s.From - from.From
			b.add(Task{Do: DoCopy, To: Span{out.Buf, out.From + at, out.From + at + s.Len()}, From: []Span{s}}, true, s)
		})
	}
}

func (b *builder) finish(s Span) {
	b.segments(s, func(s Span) { b.add(Task{Do: DoFinish, To: s}, true) })
}

// add appends t, which reads the spans read and writes t.To if write.
func (b *builder) add(t Task, write bool, read ...Span) {
	t.Phase = b.phase
	id := int32(len(b.plan.Tasks))
	var after []int32
	touch := func(s Span, write bool) {
		b.near(s, func(list []access, from, to int) []access {
			keep := list[:0]
			for _, a := range list {
				if a.task != id && a.from < s.To && s.From < a.to && (write || a.write) {
					after = append(after, a.task)
					if write && s.From <= max(a.from, from) && min(a.to, to) <= s.To {
						continue // whoever touches this range later waits for t, and so for a
					}
				}
				keep = append(keep, a)
			}
			return append(keep, access{id, write, s.From, s.To})
		})
	}
	for _, s := range read {
		if s.Len() > 0 {
			touch(s, false)
		}
	}
	if write && t.To.Len() > 0 {
		touch(t.To, true)
	}
	slices.Sort(after)
	for _, a := range slices.Compact(after) {
		b.plan.Tasks[a].next = append(b.plan.Tasks[a].next, id)
		t.after++
	}
	b.plan.Tasks = append(b.plan.Tasks, t)
}
