// Package relay carries what one process observes to the hub of another: a [Sender] is the sink of the worker's hub, a [Receiver]
// feeds the hub of who started it. How the payloads travel is the caller's affair; a lost one costs metrics, never a step.
//
//	workerHub.Attach("driver", relay.NewSender(send))       // in the worker
//	err := receiver.Accept(payload)                         // at the driver
package relay

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/coding"
	"github.com/trivium-ml/trivium/wire"
)

// The first byte of a payload.
const (
	kindFrame = iota + 1
	kindSteps
	kindEvent
)

// stepsAtOnce is how many steps a payload may hold: one every tenth of a second, so that a page at the driver is live.
const stepsAtOnce = 1024

// A Sender is an observe.Sink that turns what it is given into payloads.
type Sender struct {
	send    func(payload []byte) error
	coders  map[observe.Source]*coding.FrameCoder
	source  observe.Source // of the waiting steps
	waiting []observe.Step
}

// NewSender returns a Sender that hands each payload, which is its own to keep, to send. An error of send ends the relay.
func NewSender(send func(payload []byte) error) *Sender {
	return &Sender{send: send, coders: map[observe.Source]*coding.FrameCoder{}}
}

var (
	_ observe.Sink    = (*Sender)(nil)
	_ observe.Flusher = (*Sender)(nil)
)

// Frame sends f.
func (s *Sender) Frame(f observe.Frame) error {
	c := s.coders[f.Source]
	if c == nil {
		c = new(coding.FrameCoder)
		s.coders[f.Source] = c
	}
	return s.send(c.Append(head(kindFrame, f.Source), &f))
}

// Step keeps step until Flush, or until there are many.
func (s *Sender) Step(source observe.Source, step observe.Step) error {
	if len(s.waiting) == stepsAtOnce || len(s.waiting) > 0 && source != s.source {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	s.source = source
	s.waiting = append(s.waiting, step)
	return nil
}

// Flush sends the steps that wait.
func (s *Sender) Flush() error {
	if len(s.waiting) == 0 {
		return nil
	}
	p := append(head(kindSteps, s.source), coding.EncodeSteps(s.source.Incarnation, s.waiting)...)
	s.waiting = s.waiting[:0]
	return s.send(p)
}

// Event sends e.
func (s *Sender) Event(e observe.Event) error {
	p := head(kindEvent, e.Source)
	p = wire.AppendUint64(p, uint64(e.Time.UnixNano()))
	p = wire.AppendString(p, string(e.Level))
	p = wire.AppendString(p, e.Kind)
	p = wire.AppendUint64(p, uint64(e.Step))
	text := e.Text
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") // not in the middle of a character
	}
	p = wire.AppendString(p, text)
	return s.send(p)
}

const (
	maxText  = 16 << 10
	maxNames = 256
)

// head opens a payload with its kind and source.
func head(kind byte, source observe.Source) []byte {
	p := append(make([]byte, 0, 1024), kind)
	p = wire.AppendString(p, source.Run)
	p = wire.AppendString(p, source.Strategy)
	p = wire.AppendString(p, string(source.Role))
	p = wire.AppendUvarint(p, uint64(source.Rank))
	return wire.AppendUvarint(p, source.Incarnation)
}

// A Receiver gives to a hub what the Senders of other processes send, each over an ordered channel of its own.
type Receiver struct {
	hub    *observe.Hub
	coders map[observe.Source]*coding.FrameCoder
	steps  []observe.Step
}

// NewReceiver returns the Receiver of one Sender.
func NewReceiver(h *observe.Hub) *Receiver {
	return &Receiver{hub: h, coders: map[observe.Source]*coding.FrameCoder{}}
}

// Accept takes one payload.
func (v *Receiver) Accept(payload []byte) error {
	r := wire.NewReader("observation", payload)
	kind := r.Uvarint("kind", kindEvent)
	source := observe.Source{
		Run: r.String("run", maxNames), Strategy: r.String("strategy", maxNames), Role: observe.Role(r.String("role", maxNames)),
		Rank: int(r.Uvarint("rank", 1<<20)), Incarnation: r.Uvarint("incarnation", 1<<63),
	}
	if r.Err() != nil {
		return r.Err()
	}
	switch kind {
	case kindFrame:
		return v.frame(source, r.Rest())
	case kindSteps:
		steps, _, err := coding.DecodeSteps(v.steps[:0], r.Rest())
		if err != nil {
			return err
		}
		v.steps = steps
		var errs []error
		for _, s := range steps {
			errs = append(errs, v.hub.RelayStep(source, s))
		}
		return errors.Join(errs...)
	case kindEvent:
		e := observe.Event{
			Source: source, Time: time.Unix(0, int64(r.Uint64("time"))), Level: observe.Level(r.String("level", maxNames)),
			Kind: r.String("kind", maxNames), Step: int64(r.Uint64("step")), Text: r.String("text", maxText),
		}
		if err := r.Done(); err != nil {
			return err
		}
		v.hub.Event(e)
		return nil
	}
	return fmt.Errorf("observe: an observation of unknown kind %d", kind)
}

func (v *Receiver) frame(source observe.Source, payload []byte) error {
	c := v.coders[source]
	if c == nil {
		if len(v.coders) == maxNames {
			return fmt.Errorf("observe: one process reports for more than %d sources", maxNames)
		}
		c = new(coding.FrameCoder)
		v.coders[source] = c
	}
	f, err := c.Decode(source, payload)
	if errors.Is(err, coding.ErrNoKey) {
		return nil // the next key frame makes up for what was lost
	}
	if err != nil {
		return err
	}
	return v.hub.Relay(f)
}
