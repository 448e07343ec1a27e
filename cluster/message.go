package cluster

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
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
		Epoch protocol.Epoch
		Rank  int
	}

	// A vouch answers a probe: its sender has heard Rank since it was asked, or heard it shortly before.
	vouch struct {
		Epoch protocol.Epoch
		Rank  int
	}

	// An accusation says that its sender takes Rank for lost, and why.
	accusation struct {
		Epoch protocol.Epoch
		Rank  int
		How   verdict
		Why   string
	}

	// A wish says that its sender wants to leave the view.
	wish struct{ Epoch protocol.Epoch }

	// A proposal asks for a vote. It is void once its sender sends one of a higher round.
	proposal struct {
		Round  uint64
		Change Change
	}

	// A vote says that its sender is within reach of the proposer, and whom it hears itself.
	vote struct {
		Epoch  protocol.Epoch
		Round  uint64
		Heard  []int
		Report []byte // what Policy.Prepare returned
	}

	// An announcement carries the record of a view that was put: to those in it, and to those who are not in it any more.
	announcement struct {
		Record *record
		Rev    int64
	}

	// A knock says that a newcomer waits. Its epoch is that of the last view that it knows.
	knock struct{ Epoch protocol.Epoch }

	// A refusal says why a newcomer may not join.
	refusal struct{ Field, Why string }

	// A bye says that its sender's process ends, or ends being a member: that is proof, and no failure.
	bye struct{ Epoch protocol.Epoch }
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
	epoch := func(e protocol.Epoch) []byte { return wire.AppendUvarint(p, uint64(e)) }
	switch b := body.(type) {
	case *beat:
		return kindBeat, p, nil
	case *probe:
		return kindProbe, wire.AppendUvarint(epoch(b.Epoch), uint64(b.Rank)), nil
	case *vouch:
		return kindVouch, wire.AppendUvarint(epoch(b.Epoch), uint64(b.Rank)), nil
	case *accusation:
		p = append(wire.AppendUvarint(epoch(b.Epoch), uint64(b.Rank)), byte(b.How))
		return kindAccusation, wire.AppendString(p, b.Why), nil
	case *wish:
		return kindWish, epoch(b.Epoch), nil
	case *proposal:
		p = wire.AppendUvarint(epoch(b.Change.Epoch), b.Round)
		p = appendRanks(p, b.Change.Stay)
		p = wire.AppendUvarint(p, uint64(len(b.Change.Joins)))
		for _, n := range b.Change.Joins {
			p = appendName(p, n)
		}
		return kindProposal, p, nil
	case *vote:
		p = appendRanks(wire.AppendUvarint(epoch(b.Epoch), b.Round), b.Heard)
		return kindVote, wire.AppendBytes(p, b.Report), nil
	case *announcement:
		return kindAnnouncement, append(wire.AppendUvarint(p, uint64(b.Rev)), b.Record.encode()...), nil
	case *knock:
		return kindKnock, epoch(b.Epoch), nil
	case *refusal:
		return kindRefusal, wire.AppendString(wire.AppendString(p, b.Field), b.Why), nil
	case *bye:
		return kindBye, epoch(b.Epoch), nil
	}
	return 0, p, fmt.Errorf("cluster: %T is no message of this package", body)
}

// decode is the inverse of encode, for bytes that may come from anyone.
func decode(kind uint8, head []byte) (protocol.Body, error) {
	r := wire.NewReader("cluster", head)
	epoch := func() protocol.Epoch { return protocol.Epoch(r.Uvarint("epoch", 1<<63)) }
	rank := func() int { return int(r.Uvarint("rank", maxWorkers)) }
	var body protocol.Body
	switch kind {
	case kindProbe:
		body = &probe{epoch(), rank()}
	case kindVouch:
		body = &vouch{epoch(), rank()}
	case kindAccusation:
		body = &accusation{epoch(), rank(), verdict(readByte(r, "how")), r.String("why", maxWhy)}
	case kindWish:
		body = &wish{epoch()}
	case kindProposal:
		b := &proposal{Change: Change{Epoch: epoch()}, Round: r.Uvarint("round", 1<<63)}
		b.Change.Stay = readRanks(r, "stay")
		for range r.Uvarint("joins", maxWorkers) {
			b.Change.Joins = append(b.Change.Joins, readName(r))
			if r.Err() != nil {
				break
			}
		}
		body = b
	case kindVote:
		body = &vote{epoch(), r.Uvarint("round", 1<<63), readRanks(r, "heard"), slices.Clone(r.Bytes("report", maxReport))}
	case kindAnnouncement:
		body = &announcement{Rev: int64(r.Uvarint("revision", 1<<63-1)), Record: readRecord(r)}
	case kindKnock:
		body = &knock{epoch()}
	case kindRefusal:
		body = &refusal{r.String("field", maxWhy), r.String("why", maxWhy)}
	case kindBye:
		body = &bye{epoch()}
	default:
		return nil, fmt.Errorf("cluster: a frame of unknown kind %d", kind)
	}
	return body, r.Done()
}

func appendRanks(p []byte, ranks []int) []byte {
	p = wire.AppendUvarint(p, uint64(len(ranks)))
	for _, r := range ranks {
		p = wire.AppendUvarint(p, uint64(r))
	}
	return p
}

func readRanks(r *wire.Reader, field string) []int {
	n := r.Uvarint(field, maxWorkers)
	ranks := make([]int, 0, min(int(n), len(r.Rest())))
	for range n {
		ranks = append(ranks, int(r.Uvarint(field, maxWorkers)))
		if r.Err() != nil {
			break
		}
	}
	return ranks
}
