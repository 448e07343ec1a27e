package cluster

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire/control"
)

// The glossary of messages. All are Control frames on a stream that is never fenced: they carry the epoch in which they were sent, and
// a message from the name of a present member is a sign of its life whatever its epoch.
type (
	// A beat says that its sender lives, and in which epoch. It is the only message of the steady state, and costs no allocation: it
	// has no head, the epoch stands in the frame's Op and the flags in its Chunk.
	beat struct {
		Epoch protocol.Epoch
		Flags uint32
	}

	// A probe asks its receiver to ask Rank for a sign of life, and to say when it last had one.
	probe struct {
		Epoch protocol.Epoch `cbor:"1,keyasint"`
		Rank  int            `cbor:"2,keyasint"`
	}

	// A vouch answers a probe: its sender has heard Rank since it was asked, or heard it shortly before.
	vouch struct {
		Epoch protocol.Epoch `cbor:"1,keyasint"`
		Rank  int            `cbor:"2,keyasint"`
	}

	// An accusation says that its sender takes Rank for lost, and why.
	accusation struct {
		Epoch protocol.Epoch `cbor:"1,keyasint"`
		Rank  int            `cbor:"2,keyasint"`
		How   verdict        `cbor:"3,keyasint"`
		Why   string         `cbor:"4,keyasint"`
	}

	// A wish says that its sender wants to leave the view.
	wish struct {
		Epoch protocol.Epoch `cbor:"1,keyasint"`
	}

	// A proposal asks for a vote. It is void once its sender sends one of a higher round.
	proposal struct {
		Round  uint64 `cbor:"1,keyasint"`
		Change Change `cbor:"2,keyasint"`
	}

	// A vote says that its sender is within reach of the proposer, and whom it hears itself.
	vote struct {
		Epoch  protocol.Epoch `cbor:"1,keyasint"`
		Round  uint64         `cbor:"2,keyasint"`
		Heard  []int          `cbor:"3,keyasint"`
		Report []byte         `cbor:"4,keyasint"` // what Policy.Prepare returned
	}

	// An announcement carries the record of a view that was put: to those in it, and to those who are not in it any more.
	announcement struct {
		Record *record `cbor:"1,keyasint"`
		Rev    int64   `cbor:"2,keyasint"`
	}

	// A knock says that a newcomer waits. Its epoch is that of the last view that it knows.
	knock struct {
		Epoch protocol.Epoch `cbor:"1,keyasint"`
	}

	// A refusal says why a newcomer may not join.
	refusal struct {
		Field string `cbor:"1,keyasint"`
		Why   string `cbor:"2,keyasint"`
	}

	// A bye says that its sender's process ends, or ends being a member: that is proof, and no failure.
	bye struct {
		Epoch protocol.Epoch `cbor:"1,keyasint"`
	}
)

// The flags of a beat.
const (
	ask    = 1 << iota // answer, if no beat goes to me anyway
	answer             // to a beat with ask
)

// The kinds of frame.
const (
	kindBeat uint8 = 1 + iota
	kindProbe
	kindVouch
	kindAccusation
	kindWish
	kindProposal
	kindVote
	kindAnnouncement
	kindKnock
	kindRefusal
	kindBye
)

const maxReport = 8 << 10 // bytes of what Policy.Prepare returns

func (*beat) Size() int           { return 0 }
func (m *probe) Size() int        { return 8 }
func (m *vouch) Size() int        { return 8 }
func (m *accusation) Size() int   { return 12 + len(m.Why) }
func (m *wish) Size() int         { return 4 }
func (m *proposal) Size() int     { return 16 + 2*len(m.Change.Stay) + 32*len(m.Change.Joins) }
func (m *vote) Size() int         { return 16 + 2*len(m.Heard) + len(m.Report) }
func (m *announcement) Size() int { return 64 + 64*len(m.Record.Members) }
func (m *knock) Size() int        { return 4 }
func (m *refusal) Size() int      { return len(m.Field) + len(m.Why) }
func (m *bye) Size() int          { return 4 }

// encode appends a body's fields to p, and returns the kind of its frame. A beat has none: they stand in the frame.
func encode(p []byte, body protocol.Body) (kind uint8, fields []byte, err error) {
	for kind, none := range kinds() {
		if reflect.TypeOf(none) == reflect.TypeOf(body) {
			if kind != int(kindBeat) {
				p, err = control.Append(p, body)
			}
			return uint8(kind), p, err
		}
	}
	return 0, p, fmt.Errorf("cluster: %T is no message of this package", body)
}

// decode is the inverse of encode, for bytes that may come from anyone.
func decode(kind uint8, head []byte) (protocol.Body, error) {
	all := kinds()
	if kind == 0 || kind == kindBeat || int(kind) >= len(all) {
		return nil, fmt.Errorf("cluster: a frame of unknown kind %d", kind)
	}
	body := all[kind]
	what := fmt.Sprintf("cluster: a %T", body)
	if err := control.Decode(what, head, body); err != nil {
		return nil, err
	}
	return body, within(what, body.(interface{ check(b *bounds) }))
}

// kinds are empty messages, by the kinds of their frames.
func kinds() [kindBye + 1]protocol.Body {
	return [...]protocol.Body{
		kindBeat: &beat{}, kindProbe: &probe{}, kindVouch: &vouch{}, kindAccusation: &accusation{}, kindWish: &wish{}, kindProposal: &proposal{},
		kindVote: &vote{}, kindAnnouncement: &announcement{}, kindKnock: &knock{}, kindRefusal: &refusal{}, kindBye: &bye{},
	}
}

func (m *probe) check(b *bounds) { b.rank(m.Rank) }
func (m *vouch) check(b *bounds) { b.rank(m.Rank) }
func (m *wish) check(*bounds)    {}
func (m *knock) check(*bounds)   {}
func (m *bye) check(*bounds)     {}

func (m *accusation) check(b *bounds) {
	b.rank(m.Rank)
	b.most("why", len(m.Why), maxWhy)
}

func (m *proposal) check(b *bounds) {
	b.ranks(m.Change.Stay)
	b.most("joins", len(m.Change.Joins), MaxWorkers)
	for _, n := range m.Change.Joins {
		b.name(n)
	}
}

func (m *vote) check(b *bounds) {
	b.ranks(m.Heard)
	b.most("report", len(m.Report), maxReport)
}

func (m *announcement) check(b *bounds) {
	if m.Record == nil {
		b.fail("no record")
		return
	}
	if m.Rev < 0 {
		b.fail("revision %d", m.Rev)
	}
	m.Record.check(b)
}

func (m *refusal) check(b *bounds) {
	b.most("field", len(m.Field), maxWhy)
	b.most("why", len(m.Why), maxWhy)
}

// bounds collect what is beyond them in a message.
type bounds struct{ bad []error }

// within says what is out of bounds in m.
func within(what string, m interface{ check(b *bounds) }) error {
	var b bounds
	if m.check(&b); len(b.bad) > 0 {
		return fmt.Errorf("%s: %w", what, errors.Join(b.bad...))
	}
	return nil
}

func (b *bounds) fail(format string, args ...any) { b.bad = append(b.bad, fmt.Errorf(format, args...)) }

func (b *bounds) most(field string, n, limit int) {
	if n > limit {
		b.fail("%s: %d, want at most %d", field, n, limit)
	}
}

func (b *bounds) rank(r int) {
	if r < 0 || r > MaxWorkers {
		b.fail("rank %d, want 0 to %d", r, MaxWorkers)
	}
}

func (b *bounds) ranks(all []int) {
	b.most("ranks", len(all), MaxWorkers)
	for _, r := range all {
		b.rank(r)
	}
}

func (b *bounds) name(n protocol.Name) { b.most("name", len(n.Job)+len(n.Role)+len(n.ID), maxMember) }
