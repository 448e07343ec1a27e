// Package protocol is the one shape of a protocol: a [Machine] that turns an [Event] into [Command] values, and nothing else.
//
// A machine has no goroutine, clock, socket, log, global random source or map iteration order inside: what Step returns depends on
// the machine's state and Step's arguments alone. So the same machine runs over real sockets (package protocol/run) and in the
// seeded simulator (package sim).
//
//	func (m *echo) Step(now time.Duration, in protocol.Event) []protocol.Command {
//		switch in := in.(type) {
//		case protocol.Message:
//			return []protocol.Command{protocol.Send{To: in.From, Body: in.Body}}
//		}
//		return nil
//	}
//
// This package imports the standard library only. A message is an opaque value with a size; who sends it over a wire brings a codec.
package protocol

import (
	"fmt"
	"time"
)

// A Name says who: one incarnation of one process (or of one machine, where several run in a process) in a job.
type Name struct {
	Job         string `cbor:"1,keyasint"` // the numbers are for messages that carry a name
	Role        string `cbor:"2,keyasint"`
	ID          string `cbor:"3,keyasint"`
	Incarnation uint64 `cbor:"4,keyasint"` // rises each time that ID is started again
}

// String returns job/role/id#incarnation, without what is empty or 0.
func (n Name) String() string {
	s := n.ID
	if n.Role != "" {
		s = n.Role + "/" + s
	}
	if n.Job != "" {
		s = n.Job + "/" + s
	}
	if n.Incarnation != 0 {
		s = fmt.Sprintf("%s#%d", s, n.Incarnation)
	}
	return s
}

// An Epoch numbers the views of a group: its lists of members. Nothing of an older epoch is ever applied.
type Epoch uint64

// A Machine is one protocol at one party.
type Machine interface {
	// Step takes what happened at time now, which never falls and is measured from a start that all events of this machine share,
	// and returns what is to be done, in that order. The slice is the caller's until the next Step, so that a machine may use it
	// again. The machine may keep in's contents; a message that it sends, it no longer changes.
	Step(now time.Duration, in Event) []Command
}

// An Event is what happens to a machine: one of the types below.
type Event interface{ event() }

type (
	// Start is the first event of a machine, once.
	Start struct{}

	// Message arrived from a peer.
	Message struct {
		From Name
		Body Body
	}

	// Timer says that the timer of that ID, set by SetTimer, has run out.
	Timer struct{ ID TimerID }

	// Call is a local request. Its answer, if it wants one, is an Answer of the same ID; several may be under way.
	Call struct {
		ID  uint64
		Arg any
	}

	// Computed says that a Compute command is done.
	Computed struct{ ID uint64 }

	// Stored says how a Store command ended: the bytes rest (Err nil), or do not.
	Stored struct {
		ID  uint64
		Err error
	}

	// MetaReply is the answer to a MetaCall, or, for a watch, one of its answers.
	MetaReply struct {
		ID  uint64 // of the MetaCall
		KV  MetaKV // what Get and Watch found; for PutIf the new Rev; for Grant the Lease
		Err error
	}

	// LinkLost says that what was sent to Peer, or is on its way from it, may be lost.
	LinkLost struct {
		Peer Name
		Err  error // io.EOF for a connection that its peer closed, ErrRefused where nobody listens any more
	}

	// LinkBack says that frames pass again after a LinkLost.
	LinkBack struct{ Peer Name }

	// Stop asks the machine to end; it answers, at once or later, with Exit.
	Stop struct{}
)

func (Start) event()     {}
func (Message) event()   {}
func (Timer) event()     {}
func (Call) event()      {}
func (Computed) event()  {}
func (Stored) event()    {}
func (MetaReply) event() {}
func (LinkLost) event()  {}
func (LinkBack) event()  {}
func (Stop) event()      {}

// A Body is a message's content. Who receives it does not change it, since in one process it may be the sender's.
type Body interface {
	Size() int // bytes on a wire, without the frame's header
}

// A TimerID is chosen by the machine. To set a timer that runs sets it anew.
type TimerID uint64

// A Command is what a machine wants done: one of the types below.
type Command interface{ command() }

type (
	// Send sends a message. It may be lost, and then a LinkLost follows.
	Send struct {
		To   Name
		Body Body
	}

	// SetTimer makes a Timer event after so long; a negative After stops the timer.
	SetTimer struct {
		ID    TimerID
		After time.Duration
	}

	// Answer answers the Call of that ID.
	Answer struct {
		ID     uint64
		Result any
		Err    error
	}

	// Compute takes so long, at this machine's speed, and is followed by Computed. A loop over real hardware runs Work instead,
	// which may be nil.
	Compute struct {
		ID   uint64
		For  time.Duration
		Work func()
	}

	// Store keeps Value under Key on this machine's disk, followed by Stored. A machine that starts again finds it there.
	Store struct {
		ID    uint64
		Key   string
		Value []byte
	}

	// MetaCall asks the cluster's metadata store, followed by a MetaReply; a watch is followed by many.
	MetaCall struct {
		ID    uint64
		Op    MetaOp
		Key   string // a prefix, for MetaWatch
		Value []byte
		Rev   int64         // MetaPutIf: that the key must have, 0: be absent; MetaWatch: after which
		TTL   time.Duration // MetaGrant
		Lease int64         // MetaPutIf: the key ends with it, 0: never; MetaKeep: the one to keep alive
	}

	// Report tells an observer a fact: a log line in production, what an invariant sees in the simulator.
	Report struct{ Fact any }

	// Exit ends the machine: it gets no more events.
	Exit struct{ Err error }
)

func (Send) command()     {}
func (SetTimer) command() {}
func (Answer) command()   {}
func (Compute) command()  {}
func (Store) command()    {}
func (MetaCall) command() {}
func (Report) command()   {}
func (Exit) command()     {}

// A MetaOp is an operation of the metadata store; package cluster has their meaning.
type MetaOp uint8

// The operations.
const (
	MetaGet   MetaOp = iota // KV of Key; Rev 0: absent
	MetaPutIf               // writes Value if Key has Rev, else ErrConflict
	MetaWatch               // every change of a key with that prefix after Rev
	MetaGrant               // a lease of TTL
	MetaKeep                // keeps Lease alive for another TTL
)

// A MetaKV is a key with its value.
type MetaKV struct {
	Key   string
	Value []byte
	Rev   int64 // of its last change; 0: absent
	Lease int64
}
