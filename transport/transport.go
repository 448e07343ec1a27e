// Package transport delivers frames between named peers, on streams.
//
// A [Network] is a way to reach peers: in memory, over unix sockets with shared memory, over TCP, over TCP with TLS. Open makes this
// process reachable and returns its [Port]. Each carrier (cluster, ps, collective, ...) takes a [Stream] of the port, with its own
// epoch, credit and size bound, so that none takes another's frames:
//
//	port, err := network.Open(ctx, self, transport.Options{Secret: token})
//	s, err := port.Stream("ps", transport.StreamOptions{MaxFrame: 1 << 20})
//	s.Know(peer, addr)
//	err = s.Send(ctx, peer, transport.Frame{Kind: pull, Head: head})
//	for {
//		ev, err := s.Recv(ctx)
//		...
//		ev.Release()
//	}
//
// What holds on every network, and is tested by package transport/transporttest on each:
//
//   - Between two members, per stream and priority, frames arrive in order, at most once and uncorrupted; or the link is reported lost.
//   - A frame of an older epoch than the stream's fence is dropped and counted before its payload touches a posted buffer. A frame of
//     a newer epoch is held back, within the sender's credit, until that epoch is fenced. A frame from someone who is no member of the
//     epoch is dropped and counted.
//   - Control frames (Priority Control) have their own connection and never wait behind data.
//   - Lengths are checked before anything is allocated.
//   - Every Send and Recv ends by its context, by Close, or by loss of the link.
//   - While a link is lost, Send fails at once with ErrLinkLost; before a link was ever up, frames wait for it in the queue. LinkLost may
//     come a second time, with protocol.ErrRefused, once a dial has found that nobody listens.
//   - After LinkLost the port tries to reconnect, with back-off, until the peer is forgotten; LinkBack says that it did. Frames that
//     were under way when a link was lost have arrived or not, each at most once: who needs more resends under its own numbers.
package transport

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

type (
	// A Name is a peer.
	Name = protocol.Name
	// An Epoch numbers a stream's views.
	Epoch = protocol.Epoch
)

// A Network is a way to reach peers.
type Network interface {
	// Open makes self reachable until Port.Close. It fails if self is open already.
	Open(ctx context.Context, self Name, o Options) (Port, error)
}

// A Port is this process on a network. Its methods may be called from any goroutine.
type Port interface {
	// Stream opens the stream of that name; both ends must use the same. A name may be opened once, and again after its Close.
	// Frames for a stream that is not open yet wait within their credit, until their sender is back after the loss of its link. Over sockets 64
	// streams at a time have room for that, of which those whose frames came over links that are lost make room for others: frames of more are
	// dropped, and the link is lost when such a stream is opened. LinkLost follows what waited and came over a link that is lost.
	Stream(name string, o StreamOptions) (Stream, error)
	Name() Name
	// Addr is what others pass to Know in order to reach this port.
	Addr() string
	// Know says where a peer is: connections to it are opened on first use. A peer that connects first need not be known.
	Know(n Name, addr string) error
	// Forget closes the links to n and drops what waits for it, with an error to each.
	Forget(n Name)
	// Heard returns when anything last came from n, on any stream; the zero time: never. Bytes of a payload under way count.
	Heard(n Name) time.Time
	Stats() Stats
	// Close ends all streams and waits for the port's goroutines. Frames that were sent before are written out first, for at most
	// Options.Linger. A Send that another goroutine is in, returns soon, and may call Dones until then.
	Close() error
}

// Options of a port. The zero value works, and trusts whoever can reach it: a Secret or TLS is what keeps strangers out.
type Options struct {
	Secret    []byte        // both ends prove to each other that they hold it; TLS and unix sockets may do without
	Handshake time.Duration // limit for a new connection to say who it is; 0: 5 s
	Linger    time.Duration // limit for Close to write out; 0: 2 s
	MaxPeers  int           // connections beyond are refused; 0: 1,024
	Log       *slog.Logger  // refusals and lost links; nil discards
}

// StreamOptions are one carrier's. The zero value works.
type StreamOptions struct {
	MaxFrame int // bytes of head and payload together that a frame may have; 0: 1 MiB; at most 64 MiB
	// Window is how many bytes a peer may have under way to this stream, received but not released, and as many again of control frames; 0: 4 ×
	// MaxFrame. Where its link was lost meanwhile it may be up to four times as much, and then the link is lost again with what comes.
	Window int
	Queue  int // frames that may wait for one peer before Send blocks; 0: 64
}

// TCP sends at most burst bytes at once over links with frames of 1,500 bytes: 45 packets of 1,448, which the card cuts. Over loopback, with
// packets of 64 KiB, it is one.
const burst = 45 * 1448

// LongPayload is a good length for the parts that a carrier cuts what is long into: with its header, such a frame is what TCP sends at four
// times, its half at two and its quarter at once. The few bytes by which a frame of 256 KiB is longer go as a packet of their own, which
// costs as much as one of 64 KiB but for the copy.
const LongPayload = 4 * ((burst - wire.HeaderLen) &^ 63)

// A Stream is one carrier's share of a port.
type Stream interface {
	// Send queues f for to and returns; it blocks while to's queue is full, or to has no credit left. f's slices belong to the stream
	// until f.Done is called; where Done is nil, Send returns only when it is through with them. A frame that Send refuses (it returns
	// an error) gets no Done.
	Send(ctx context.Context, to Name, f Frame) error

	// Post says where the payload of the frame with that key is to land: it is read straight into dst, whose length it must have. Who
	// posts before the frame comes saves a copy. The frame's Event then has Posted set and Payload = dst. Post of a key that is posted
	// already is an error. dst belongs to the stream until the event, Unpost, or Close.
	Post(from Name, k Key, dst []byte) error
	// Unpost takes a Post back: false if its frame has begun to land, and then its event is still to come, unless a Fence or the loss of
	// the link takes its place. Fence and Close return when nothing lands any more in what they end.
	Unpost(from Name, k Key) bool

	// Recv returns what comes next. Events of one peer and priority come in its sending order. It belongs to one goroutine.
	Recv(ctx context.Context) (Event, error)

	// Fence makes e the stream's epoch: frames of older ones are dropped from now on, also those that are received and not yet returned
	// by Recv. Only members may send in it; nil: everyone may. Epochs only rise. A stream begins in epoch 0, open to everyone.
	Fence(e Epoch, members []Name)

	Know(n Name, addr string) error // Port.Know
	Heard(n Name) time.Time         // Port.Heard
	Self() Name
	Close() error
}

// A Key names a frame among those that one peer sends on one stream: the carrier chooses it so that no two at a time are equal.
type Key struct {
	Epoch Epoch
	Op    wire.Op
	Chunk uint32
}

// Priority orders the frames that wait for one peer.
type Priority uint8

// The priorities. Bulk waits for Data, and Data for Urgent; Control has its own connection.
const (
	Data Priority = iota
	Bulk
	Urgent
	Control
)

// A Frame is a message to be sent.
type Frame struct {
	Kind        uint8 // the carrier's
	Priority    Priority
	Fingerprint uint32 // of what both ends must agree on; the receiver's carrier compares it
	Key
	Head    []byte      // fields, coded by package wire: at most 64 KiB
	Payload []byte      // what may be large; sent without a copy
	Done    func(error) // called once, when Head and Payload are the caller's again; it must not block. The error: not (wholly) sent

	// More says that the same caller sends another frame to the same peer at once, whatever happens. A frame with a Done may wait for it, so
	// that one system call writes both and the peer wakes once (as MSG_MORE of send(2)).
	More bool
}

// An EventKind says what an Event is.
type EventKind uint8

// The kinds of Event.
const (
	Received EventKind = iota // a frame
	LinkLost                  // what is under way from or to From may be lost; Err says why
	LinkBack                  // frames pass again
)

// An Event is what Recv returns.
type Event struct {
	What EventKind
	From Name
	Err  error // LinkLost: protocol.ErrRefused, io.EOF, or another cause

	Kind        uint8
	Priority    Priority
	Fingerprint uint32
	Key
	Head    []byte // valid until Release
	Payload []byte // valid until Release, unless Posted
	Posted  bool   // Payload is the slice given to Post

	release func()
}

// Release returns the event's memory and credit. To call it again does nothing.
func (e *Event) Release() {
	if f := e.release; f != nil {
		e.release = nil
		e.Head = nil
		if !e.Posted {
			e.Payload = nil
		}
		f()
	}
}

// Stats are a port's counters since it was opened.
type Stats struct {
	Peers                        int
	FramesSent, FramesReceived   uint64
	BytesSent, BytesReceived     uint64 // headers included
	PayloadSent, PayloadReceived uint64
	Reconnects                   uint64
	Stale                        uint64            // frames dropped by a fence
	Refused                      map[string]uint64 // connections closed and streams turned away, by cause
}

var (
	// ErrClosed: the stream or port was closed.
	ErrClosed = errors.New("transport: closed")
	// ErrLinkLost: the link to the peer broke before the frame was through.
	ErrLinkLost = errors.New("transport: link lost")
	// ErrUnknownPeer: nobody said where the peer is, and it has not connected.
	ErrUnknownPeer = errors.New("transport: unknown peer")
	// ErrTooLarge: the frame has more bytes than the stream takes, at either end: no repetition sends it.
	ErrTooLarge = errors.New("too large")
)
