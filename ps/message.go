package ps

import (
	"errors"
	"math"

	"github.com/trivium-ml/trivium/wire"
)

// A weight is what Worker.Weight was told.
type weight struct {
	part uint32
	sum  float64
}

// A batch is a piece of a client's round for one lane. Every round has at least one piece for each lane: it carries the clock.
type batch struct {
	lane    uint16
	client  uint16
	session uint64
	epoch   Epoch
	stamp   Clock
	piece   uint32
	last    bool      // of this round's pieces
	finish  bool      // with the last: the client counts as finished with every later round
	prompt  bool      // with the last: the client waits to hear that the round is held
	asks    bool      // with the last: a question follows, whose answer tells that, and M
	codec   string    // of the sections that are coded
	weights []weight  // of the round, in each piece
	drop    []section // with the last: cells of segments that the client no longer wants to be sent
	secs    []section

	holds   holds  // sender
	release func() // receiver: returns the transport's memory; may be nil
	bytes   int    // of the payload
}

func (m *batch) Size() int {
	n := 40 + len(m.codec)
	for i := range m.secs {
		n += sectionHead/2 + m.secs[i].size()
	}
	for i := range m.drop {
		n += sectionHead/2 + m.drop[i].size()
	}
	return n + 12*len(m.weights)
}

func (m *batch) appendHead(p []byte) []byte {
	p = appendUp(p, m.lane, m.client, m.session, m.epoch)
	p = wire.AppendUvarint(p, uint64(m.stamp))
	p = wire.AppendUvarint(p, uint64(m.piece))
	p = wire.AppendBools(p, m.last, m.finish, m.prompt, m.asks)
	p = wire.AppendString(p, m.codec)
	p = wire.AppendUvarint(p, uint64(len(m.weights)))
	for _, w := range m.weights {
		p = wire.AppendUvarint(p, uint64(w.part))
		p = wire.AppendFloat64(p, w.sum)
	}
	p = appendSections(p, m.secs)
	return appendSections(p, m.drop)
}

func appendSections(p []byte, secs []section) []byte {
	p = wire.AppendUvarint(p, uint64(len(secs)))
	for i := range secs {
		p = secs[i].appendHead(p)
	}
	return p
}

func readSections(r *wire.Reader, payload []byte) ([]section, []byte) {
	n := int(r.Uvarint("sections", wire.MaxHead/8))
	if n == 0 || r.Err() != nil {
		return nil, payload
	}
	secs := make([]section, n)
	for i := range secs {
		if payload = readSection(r, payload, &secs[i]); r.Err() != nil {
			return nil, nil
		}
	}
	return secs, payload
}

func appendUp(p []byte, lane, client uint16, session uint64, e Epoch) []byte {
	p = wire.AppendUvarint(p, uint64(lane))
	p = wire.AppendUvarint(p, uint64(client))
	p = wire.AppendUint64(p, session)
	return wire.AppendUvarint(p, uint64(e))
}

func readUp(r *wire.Reader) (lane, client uint16, session uint64, e Epoch) {
	lane = uint16(r.Uvarint("lane", maxServers*MaxLanes))
	client = uint16(r.Uvarint("client", MaxClients))
	session = r.Uint64("session")
	return lane, client, session, Epoch(r.Uvarint("epoch", math.MaxUint64))
}

func readClock(r *wire.Reader, field string) Clock { return Clock(r.Uvarint(field, math.MaxInt64)) }

var errFollows = errors.New("bytes follow the last section")

func decodeBatch(head, payload []byte) (*batch, error) {
	r := wire.NewReader("ps batch", head)
	m := &batch{bytes: len(payload)}
	m.lane, m.client, m.session, m.epoch = readUp(r)
	m.stamp = readClock(r, "stamp")
	m.piece = uint32(r.Uvarint("piece", math.MaxUint32))
	r.Bools("flags", &m.last, &m.finish, &m.prompt, &m.asks)
	m.codec = r.String("codec", maxCodec)
	for n := r.Uvarint("weights", wire.MaxHead/9); n > 0 && r.Err() == nil; n-- {
		w := weight{part: uint32(r.Uvarint("part", math.MaxUint32)), sum: r.Float64("weight")}
		m.weights = append(m.weights, w)
	}
	m.secs, payload = readSections(r, payload)
	m.drop, payload = readSections(r, payload)
	if len(payload) > 0 {
		r.Fail("payload", errFollows)
	}
	return m, r.Done()
}

// A pull asks one lane for rows. Without an answer it is sent again, the same.
type pull struct {
	lane, client uint16
	session      uint64
	epoch        Epoch
	id           uint64 // of the request; the reply has it
	need         Clock  // M must be as high
	own          Clock  // and the asker's own rounds below this one be there
	subscribe    bool   // send changes of these rows from now on
	gen          uint32 // of the subscriptions
	secs         []section

	into *landing // asker: where a row of the answer is to land; nil: nowhere
}

func (m *pull) Size() int {
	n := 48
	for i := range m.secs {
		n += sectionHead/2 + m.secs[i].size()
	}
	return n
}

func (m *pull) appendHead(p []byte) []byte {
	p = appendUp(p, m.lane, m.client, m.session, m.epoch)
	p = wire.AppendUvarint(p, m.id)
	p = wire.AppendUvarint(p, uint64(m.need))
	p = wire.AppendUvarint(p, uint64(m.own))
	p = wire.AppendBools(p, m.subscribe)
	p = wire.AppendUvarint(p, uint64(m.gen))
	return appendSections(p, m.secs)
}

func decodePull(head, payload []byte) (*pull, error) {
	r := wire.NewReader("ps pull", head)
	m := &pull{}
	m.lane, m.client, m.session, m.epoch = readUp(r)
	m.id = r.Uvarint("request", math.MaxUint64)
	m.need, m.own = readClock(r, "clock"), readClock(r, "own rounds")
	r.Bools("subscribe", &m.subscribe)
	m.gen = uint32(r.Uvarint("generation", math.MaxUint32))
	m.secs, payload = readSections(r, payload)
	if len(payload) > 0 {
		r.Fail("payload", errFollows)
	}
	return m, r.Done()
}

// A probe asks a lane how far it came. The lane forgets the client's subscriptions of older generations.
type probe struct {
	lane, client uint16
	session      uint64
	epoch        Epoch
	gen          uint32
	stamp        Clock // what the client has sent: all pieces of the rounds below, and so many of this one
	piece        uint32
	held, m      Clock // what the lane has told it: its rounds below the one are held, and M
}

func (m *probe) Size() int { return 48 }

func (m *probe) appendHead(p []byte) []byte {
	p = wire.AppendUvarint(appendUp(p, m.lane, m.client, m.session, m.epoch), uint64(m.gen))
	p = wire.AppendUvarint(wire.AppendUvarint(p, uint64(m.stamp)), uint64(m.piece))
	return wire.AppendUvarint(wire.AppendUvarint(p, uint64(m.held)), uint64(m.m))
}

func decodeProbe(head []byte) (*probe, error) {
	r := wire.NewReader("ps probe", head)
	m := &probe{}
	m.lane, m.client, m.session, m.epoch = readUp(r)
	m.gen = uint32(r.Uvarint("generation", math.MaxUint32))
	m.stamp, m.piece = readClock(r, "stamp"), uint32(r.Uvarint("piece", math.MaxUint32))
	m.held, m.m = readClock(r, "held rounds"), readClock(r, "min clock")
	return m, r.Done()
}

// A status is what every message of a lane to a client says.
type status struct {
	lane   uint16
	epoch  Epoch
	m      Clock  // the lane's min clock
	own    Clock  // the client's rounds below this one are held
	piece  uint32 // and so many pieces of that one
	gap    uint8  // 1: a later piece came, so send from there; 2: and with all keys
	holder uint16 // in the first that tells of this M, the client that held it back until it came so far; later, the one that holds it back now
	gen    uint32 // of the subscriptions
	pushes uint64 // sent in this generation, this message included
	pushed Clock  // the client's rounds below this one were there when M last advanced, so that subscribed rows have them
}

func (s *status) append(p []byte) []byte {
	p = wire.AppendUvarint(p, uint64(s.lane))
	p = wire.AppendUvarint(p, uint64(s.epoch))
	p = wire.AppendUvarint(p, uint64(s.m))
	p = wire.AppendUvarint(p, uint64(s.own))
	p = wire.AppendUvarint(p, uint64(s.piece))
	p = append(p, s.gap)
	p = wire.AppendUvarint(p, uint64(s.holder))
	p = wire.AppendUvarint(p, uint64(s.gen))
	p = wire.AppendUvarint(p, s.pushes)
	return wire.AppendUvarint(p, uint64(s.pushed))
}

func readStatus(r *wire.Reader) (s status) {
	s.lane = uint16(r.Uvarint("lane", maxServers*MaxLanes))
	s.epoch = Epoch(r.Uvarint("epoch", math.MaxUint64))
	s.m, s.own = readClock(r, "min clock"), readClock(r, "own rounds")
	s.piece = uint32(r.Uvarint("piece", math.MaxUint32))
	s.gap = uint8(r.Uvarint("gap", 2))
	s.holder = uint16(r.Uvarint("holder", math.MaxUint16))
	s.gen = uint32(r.Uvarint("generation", math.MaxUint32))
	s.pushes = r.Uvarint("pushes", math.MaxUint64)
	s.pushed = readClock(r, "pushed")
	return s
}

// values answer a pull (id above 0), or are rows pushed to a subscriber (id 0). A large answer has several pieces, in any order.
type values struct {
	status
	id     uint64
	pieces uint32 // of the answer
	piece  uint32
	sub    bool // changes of these rows will be sent
	secs   []section
	holds  holds

	release func()
}

func (m *values) Size() int {
	n := 56
	for i := range m.secs {
		n += sectionHead/2 + m.secs[i].size()
	}
	return n
}

func (m *values) appendHead(p []byte) []byte {
	p = m.status.append(p)
	p = wire.AppendUvarint(p, m.id)
	p = wire.AppendUvarint(p, uint64(m.pieces))
	p = wire.AppendUvarint(p, uint64(m.piece))
	return appendSections(wire.AppendBools(p, m.sub), m.secs)
}

func decodeValues(head, payload []byte) (*values, error) {
	r := wire.NewReader("ps values", head)
	m := &values{status: readStatus(r)}
	m.id = r.Uvarint("request", math.MaxUint64)
	m.pieces = uint32(r.Uvarint("pieces", math.MaxUint32))
	m.piece = uint32(r.Uvarint("piece", math.MaxUint32))
	r.Bools("subscribed", &m.sub)
	m.secs, payload = readSections(r, payload)
	if len(payload) > 0 {
		r.Fail("payload", errFollows)
	}
	return m, r.Done()
}

// clocks tells a client how far a lane came.
type clocks struct{ status }

func (m *clocks) Size() int { return 40 }

func (m *clocks) appendHead(p []byte) []byte { return m.status.append(p) }

func decodeClocks(head []byte) (*clocks, error) {
	r := wire.NewReader("ps clocks", head)
	m := &clocks{readStatus(r)}
	return m, r.Done()
}

// have tells another lane how far this one's rounds are complete, in exact mode.
type have struct {
	lane, to uint16
	epoch    Epoch
	version  uint64 // of the configuration that says whom complete is of
	complete Clock
	reply    bool // answer with yours
}

func (m *have) Size() int { return 32 }

func (m *have) appendHead(p []byte) []byte {
	p = wire.AppendUvarint(p, uint64(m.lane))
	p = wire.AppendUvarint(p, uint64(m.to))
	p = wire.AppendUvarint(p, uint64(m.epoch))
	p = wire.AppendUvarint(p, m.version)
	p = wire.AppendUvarint(p, uint64(m.complete))
	return wire.AppendBools(p, m.reply)
}

func decodeHave(head []byte) (*have, error) {
	r := wire.NewReader("ps have", head)
	m := &have{lane: uint16(r.Uvarint("lane", maxServers*MaxLanes)), to: uint16(r.Uvarint("to", maxServers*MaxLanes))}
	m.epoch, m.version = Epoch(r.Uvarint("epoch", math.MaxUint64)), r.Uvarint("version", math.MaxUint64)
	m.complete = readClock(r, "complete")
	r.Bools("reply", &m.reply)
	return m, r.Done()
}

// refused ends a member's part: text is a sentence for its callers. Some numbers of req say something else.
type refused struct {
	req       uint64 // of a create; 0: everything
	directory uint64 // the session of the directory that refuses; 0: a server does
	text      string
}

const (
	notDirectory = math.MaxUint64 - iota // who asked to be let in asked one who is none, and may go on asking
	takesPart                            // who asks to be let in asks in the session of a process that is; that one does not mind
	notHeard                             // nothing of this process is read there any more
)

func (m *refused) Size() int { return 16 + len(m.text) }

func (m *refused) appendHead(p []byte) []byte {
	return wire.AppendString(wire.AppendUint64(wire.AppendUvarint(p, m.req), m.directory), m.text)
}

func decodeRefused(head []byte) (*refused, error) {
	r := wire.NewReader("ps refused", head)
	m := &refused{req: r.Uvarint("request", math.MaxUint64), directory: r.Uint64("directory"), text: r.String("text", 1<<15)}
	return m, r.Done()
}

// behind tells a client that a lane lacks rounds of its that it had acknowledged.
type behind struct {
	lane    uint16
	session uint64 // of the client
	own     Clock  // its rounds below this one are held
	m       Clock  // the lane's min clock
}

func (m *behind) Size() int { return 24 }

func (m *behind) appendHead(p []byte) []byte {
	p = wire.AppendUint64(wire.AppendUvarint(p, uint64(m.lane)), m.session)
	return wire.AppendUvarint(wire.AppendUvarint(p, uint64(m.own)), uint64(m.m))
}

func decodeBehind(head []byte) (*behind, error) {
	r := wire.NewReader("ps behind", head)
	m := &behind{lane: uint16(r.Uvarint("lane", maxServers*MaxLanes)), session: r.Uint64("session")}
	m.own, m.m = readClock(r, "own rounds"), readClock(r, "min clock")
	return m, r.Done()
}

// laneOf returns the lane of its server that a message is for.
func laneOf(b any) uint16 {
	switch m := b.(type) {
	case *batch:
		return m.lane
	case *pull:
		return m.lane
	case *probe:
		return m.lane
	case *install:
		return m.to
	case *have:
		return m.to
	}
	return 0
}
