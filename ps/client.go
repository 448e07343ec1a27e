package ps

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A ClientState is a client: a cache, the rounds that servers do not hold yet, and the clocks of its workers. It is a
// protocol.Machine; Open drives one. What workers ask for are calls, whose Arg is one of the types of calls.go.
type ClientState struct {
	p       Placement
	o       Options
	self    Name
	session uint64
	specs   []Spec

	config   *Config
	number   uint16
	joined   bool
	start    Clock
	tables   []*clientTable
	byName   map[string]*clientTable
	bsp      *clientTable // the first that is BSP
	slack    Clock        // the job's largest staleness: Clock waits for M ≥ c - slack - 1; -1: there is an ASP table, and it does not
	overlays Clock        // rounds that a worker keeps to lay over what it reads

	workers              []*WorkerState
	clock                Clock // rounds below it are sent
	unsent               Clock // and below this one before the step at hand
	done                 bool  // all workers are finished, and the last round is sent
	lanes                []*laneLink
	m                    Clock
	pulls                []*pulling   // by number
	asked                []*pulling   // in this step
	keys, unknown, known []segmentKey // memory of inOrder
	rounds               []roundAcks
	held                 Clock // rounds below it are held by all lanes
	nextID               uint64
	waits                []*wait
	opens                []uint64
	away                 error // why the directory has not let this client in, if that is known
	creates              []*creating
	cut                  clientCut
	ring                 rowRing
	free                 map[*clientTable][]buffered // deltas whose memory can be used again

	now   time.Duration
	armed bool
	out   []protocol.Command
	err   error

	Counters
}

// Counters are a client's since it was opened.
type Counters struct {
	Pulls         uint64 // requests sent
	Pushed        uint64 // rows that servers sent unasked
	Evicted       uint64
	Resent        uint64 // pieces
	BytesSent     uint64 // of batches
	KeysSent      uint64 // bytes of keys
	BytesReceived uint64 // of values
	InPlace       uint64 // answers that the transport read straight to where they stay
}

// A laneLink is what a client knows of one lane.
type laneLink struct {
	lane      uint16
	server    Name
	m         Clock
	holder    uint16   // of M, as the lane last told
	held      Clock    // rounds below it were acknowledged
	unacked   []*batch // sent, and not held by the lane yet
	inflight  int      // bytes of them
	kept      []keptRound
	keeps     int // bytes of them
	lists     keyLists
	drop      []section // evicted rows, for the next batch
	gen       uint32    // of subscriptions
	pushes    uint64    // received in this generation
	pushedM   Clock     // subscribed rows have this value clock
	pushedOwn Clock
	heard     time.Duration
	asked     time.Duration // again, for want of an answer
	rto       time.Duration
	tries     uint64
}

// A keptRound is what a lane that holds a round keeps of it until M passes it, since others' rounds are applied with it.
type keptRound struct {
	stamp Clock
	bytes int
	table uint32 // that is BSP
}

// A WorkerState is one worker.
type WorkerState struct {
	c        *ClientState
	index    int
	clock    Clock
	begun    Clock // its first round
	finished bool
	now      *workerRound
	sent     []*workerRound // ascending; kept to be laid over reads, or until they are held
	base     Clock          // rounds below it are not kept
	reads    int            // under way: what is laid over them is kept
	unsent   int            // bytes of rounds that slower workers of its client have not ended; counted where Lead bounds nobody
	state    func() []byte
	last     []byte          // what state returned when it finished, and others of its client had not
	bad      error           // a delta of this round, or a sum of them, that is no number
	waited   []time.Duration // for rounds of each other client, by number
}

// A workerRound is what a worker adds in one round.
type workerRound struct {
	stamp   Clock
	tables  [][]buffered // by table, then by part
	weights []weight
	bytes   int // that unsent counts
	batched bool
}

// of is what the round adds to a table, part by part.
func (b *workerRound) of(t *clientTable) []buffered {
	if int(t.id) < len(b.tables) {
		return b.tables[t.id]
	}
	return nil
}

// A clientCut is the snapshot under way.
type clientCut struct {
	Cut
	states [][]byte
	have   []bool
	told   bool
}

// Options of a client. The zero value works.
type Options struct {
	Session    uint64        // of this process alone, which others cannot guess; it survives reconnects; 0: drawn by Open
	Workers    int           // that the client's clock waits for from the start; 0: 1
	CacheBytes int64         // of rows; 0: 1 GiB
	Inflight   int           // bytes that a lane does not hold yet, or keeps of BSP tables until M comes, beyond which Clock waits; 0: 64 MiB
	Retry      time.Duration // silence before a question is asked again, doubling to 2 s; 0: 50 ms

	// Up makes dense rows of float32 small on their way to servers; nil: nothing does. What it drops of a row is added to the row's next
	// round. A read has what came of this client's rounds there, and its later ones as they were added.
	Up compress.Codec

	// RoundTimeout is for how long a read, or the end of a round, waits without progress: others complete no round that it needs, or a server
	// does not answer. 0: 10 min.
	RoundTimeout time.Duration
	Log          *slog.Logger // of what is refused; nil discards

	piece int // the largest payload of a piece of a round; tests make it small
}

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = 1
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 1 << 30
	}
	if o.Inflight == 0 {
		o.Inflight = 64 << 20
	}
	if o.Retry == 0 {
		o.Retry = 50 * time.Millisecond
	}
	if o.RoundTimeout == 0 {
		o.RoundTimeout = 10 * time.Minute
	}
	if o.piece == 0 {
		o.piece = maxPiece
	}
	return o
}

func (o *Options) validate() error {
	if o.Workers < 1 || o.CacheBytes < 0 || o.Inflight < 0 || o.Retry < 0 || o.RoundTimeout < 0 {
		return fmt.Errorf("ps: options: want sizes and times of 0 or more, found %+v", *o)
	}
	return nil
}

// NewClientState returns the client of that name, with the tables that it wants.
func NewClientState(p Placement, self Name, tables []Spec, o Options) (*ClientState, error) {
	p, o = p.withDefaults(), o.withDefaults()
	errs := []error{p.validate(), o.validate()}
	if p.Exact && o.Up != nil {
		errs = append(errs, fmt.Errorf("ps: options: up: %s drops what exact mode keeps", o.Up))
	}
	words := 0
	for i := range tables {
		err := checkTable(&p, &tables[i])
		if err == nil { // they go to the directory in one frame
			words, err = definitions(&Definition{Spec: tables[i], By: self}, words)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c := &ClientState{
		p: p, o: o, self: self, session: max(o.Session, 1), specs: slices.Clone(tables), byName: map[string]*clientTable{}, config: &Config{},
		free: map[*clientTable][]buffered{}, nextID: 1,
	}
	c.ring.limit = o.CacheBytes
	for l := range p.lanes() {
		c.lanes = append(c.lanes, &laneLink{lane: uint16(l), server: p.server(l), gen: 1, rto: o.Retry, holder: noHolder})
	}
	return c, nil
}

func checkTable(p *Placement, s *Spec) error {
	err := s.validate()
	if p.Exact && s.Mode != BSP {
		err = errors.Join(err, fmt.Errorf("ps: table %q: mode: exact mode wants bsp, found %s", s.Name, s.Mode))
	}
	return err
}

const timerRetry protocol.TimerID = 1

// Step is the machine.
func (c *ClientState) Step(now time.Duration, in protocol.Event) []protocol.Command {
	c.now, c.unsent = now, c.clock
	c.out = c.out[:0]
	c.boundDrops()
	switch in := in.(type) {
	case protocol.Start:
		c.sayHello()
	case protocol.Message:
		c.message(in.From, in.Body)
	case protocol.Call:
		c.call(in.ID, in.Arg)
	case protocol.Timer:
		c.armed = false
		c.retry()
	case protocol.LinkLost:
		c.lost(in)
	case protocol.LinkBack:
		for _, l := range c.lanes {
			if l.server == in.Peer {
				c.resubscribe(l)
			}
		}
		if in.Peer == c.p.Directory && !c.joined {
			c.away = nil
			c.sayHello()
		}
	case protocol.Stop:
		c.fail(errors.New("ps: the client was closed"))
		c.out = append(c.out, protocol.Exit{})
	}
	c.sendPulls()
	c.arm()
	return c.out
}

func (c *ClientState) send(to Name, b protocol.Body) {
	c.out = append(c.out, protocol.Send{To: to, Body: b})
}

func (c *ClientState) answer(id uint64, result any, err error) {
	c.out = append(c.out, protocol.Answer{ID: id, Result: result, Err: err})
}

func (c *ClientState) sayHello() {
	c.send(c.p.Directory, &hello{name: c.self, session: c.session, specs: c.specs})
}

// lost hears that a link is gone, or was never there, or that nothing that comes over it can be read. It may come back; but to a server, or to a
// directory that is still to let this client in, of which nobody has said where it is, there will be none.
func (c *ClientState) lost(in protocol.LinkLost) {
	opening := in.Peer == c.p.Directory && !c.joined
	switch {
	case errors.Is(in.Err, transport.ErrUnknownPeer) && (opening || c.p.index(in.Peer) >= 0):
		c.fail(fmt.Errorf("ps: %s was not told where %s is: %w", c.self, in.Peer, in.Err))
	case errors.Is(in.Err, errUnreadable) && (in.Peer == c.p.Directory || c.p.index(in.Peer) >= 0):
		c.fail(in.Err)
	case opening && in.Err != nil:
		c.away = fmt.Errorf("no link to %s: %w", in.Peer, in.Err)
	}
}

// fail ends everything that waits, and what will.
func (c *ClientState) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, id := range c.opens {
		c.answer(id, nil, err)
	}
	for _, x := range c.creates {
		c.answer(x.id, nil, err)
	}
	for _, w := range c.waits {
		if w.get != nil {
			c.unpin(w.get)
		}
		c.answer(w.id, nil, err)
	}
	for _, p := range c.pulls {
		if p.into != nil {
			p.into.done = true
		}
	}
	c.opens, c.creates, c.waits, c.pulls = nil, nil, nil, nil
}

func (c *ClientState) message(from Name, body protocol.Body) {
	if c.err != nil {
		if m, ok := body.(*values); ok {
			m.done()
		}
		return
	}
	switch m := body.(type) {
	case *install:
		if from == c.p.Directory {
			c.install(m.config)
		}
	case *hello:
		if no := c.p.elsewhere(c.self); no != nil {
			c.send(from, no)
		}
	case *refused:
		if from == c.p.Directory || c.p.index(from) >= 0 {
			c.refused(from, m)
		}
	case *behind:
		c.rolledBack(from, m)
	case *clocks:
		if l := c.lane(from, &m.status); l != nil {
			c.hear(l, &m.status, false)
			c.wake()
		}
	case *values:
		if l := c.lane(from, &m.status); l != nil {
			c.onValues(l, m)
			c.wake()
		}
		m.done()
	}
}

// refused hears what a server or the directory does not do for this client.
func (c *ClientState) refused(from Name, m *refused) {
	switch m.req {
	case notDirectory:
		if from == c.p.Directory && !c.joined {
			c.away = errors.New(m.text)
		}
	case takesPart:
		if !c.joined {
			c.fail(errors.New(m.text))
		}
	case 0, notHeard:
		if c.joined && m.directory != 0 && m.directory != c.config.Session {
			return // what it asked before it was let in has reached a directory that came after the one that did
		}
		c.fail(errors.New(m.text))
	default:
		if i := slices.IndexFunc(c.creates, func(x *creating) bool { return x.id == m.req }); i >= 0 {
			c.answer(m.req, nil, errors.New(m.text))
			c.creates = slices.Delete(c.creates, i, i+1)
		}
	}
}

func (m *values) done() {
	if m.release != nil {
		m.release()
		m.release = nil
	}
}

func (c *ClientState) lane(from Name, s *status) *laneLink {
	if int(s.lane) >= len(c.lanes) || c.lanes[s.lane].server != from || s.epoch != c.config.Epoch || !c.joined {
		return nil
	}
	if s.own > c.clock || s.own == c.clock && s.piece > 0 {
		c.fail(fmt.Errorf("ps: %s holds rounds of %s below clock %d and %d pieces of the next one, and this process has sent those below %d: another process has sent rounds in its session, so that these of this one would be taken for theirs: each process must have a session of its own", from, c.self, s.own, s.piece, c.clock))
		return nil
	}
	return c.lanes[s.lane]
}
