package ps

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/protocol"
)

// A DirectoryState decides who takes part and which tables there are. It is a protocol.Machine; Direct drives one.
//
// A decision is a new version of the Config. It is first told to every lane, until all accept it; then it counts, and clients are told.
// What asks for a round that nobody has begun (a join, a snapshot) is proposed again, later, where a lane or a client is past it.
type DirectoryState struct {
	p Placement
	o DirectoryOptions

	config  *Config
	lanes   []peerState
	clients []peerState
	counted uint64 // the version that all lanes accepted last
	hi      Clock
	slack   Clock
	taken   int64 // bytes of each server, by the tables
	words   int   // bytes of the tables' definitions
	margin  Clock // added to what is proposed again, so that fast rounds do not outrun it for ever
	calls   []*snapshotting
	nextCut uint64
	gone    map[Name]bool // clients that were lost before they had come: none is let in
	armed   bool
	wait    time.Duration
	out     []protocol.Command
	err     error
	lost    *behind // the lane that err is about, if that has lost what it held
}

// DirectoryOptions are a directory's. The zero value works.
type DirectoryOptions struct {
	Restore  *Manifest                    // from ReadManifest: tables begin with it, and clients at its clock; servers read it anew, at its key in their own stores
	Updaters map[string]trivium.Optimizer // as ServerOptions has them: a table whose optimizer no server could make is refused
	Retry    time.Duration                // between repeats of what is not answered, doubling to 2 s; 0: 50 ms
	Session  uint64                       // that no directory before it had: servers follow one alone; 0: drawn by Direct
	Log      *slog.Logger                 // of what is refused; nil discards
}

// A peerState is how far a lane or a client follows.
type peerState struct {
	accepted uint64
	refused  uint64 // the version that asks for a round that is past
	ends     []Clock
	saved    *saved
	states   [][]byte
	text     string // why there are none
	told     bool   // states are those of the cut
	settled  bool   // its first round is decided
}

// The calls of a DirectoryState.
type (
	// snapshotCall is answered with a SnapshotResult.
	snapshotCall struct{ store Store }
	// lostCall says that a client is gone; it is answered at once.
	lostCall struct{ name Name }
	// configCall is answered with the *Config.
	configCall struct{}
)

// A SnapshotResult is where a snapshot lies, and its clock.
type SnapshotResult struct {
	Key   string // of the manifest
	Clock Clock
}

type snapshotting struct {
	id      uint64
	store   Store
	job     *manifestJob
	begun   bool
	givenUp bool // while its manifest is being written: nobody waits for it
}

// NewDirectoryState returns the directory of a placement.
func NewDirectoryState(p Placement, o DirectoryOptions) (*DirectoryState, error) {
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return nil, err
	}
	if o.Retry == 0 {
		o.Retry = 50 * time.Millisecond
	}
	d := &DirectoryState{p: p, o: o, lanes: make([]peerState, p.lanes()), wait: o.Retry, nextCut: 1}
	d.config = &Config{Version: 1, Epoch: p.Epoch, Place: p.hash(), Session: max(o.Session, 1)}
	start := Clock(0)
	if m := o.Restore; m != nil {
		start = m.Clock
		d.hi = start
		for i := range m.Tables {
			s, err := m.Tables[i].spec()
			if err != nil {
				return nil, err
			}
			if d.taken, err = d.room(&s, d.taken); err != nil {
				return nil, err
			}
			d.define(&s, p.Directory)
			d.config.Tables[i].Saved = len(m.Tables[i].Objects) > 0
			if d.words, err = definitions(&d.config.Tables[i], d.words); err != nil {
				return nil, err
			}
			if d.config.Tables[i].Saved && m.from.Key == "" {
				return nil, fmt.Errorf("ps: restore table %q: servers cannot read this manifest: want one that ReadManifest returned", m.Tables[i].Name)
			}
		}
		d.config.From = m.from
	}
	for _, n := range p.Clients {
		d.config.Clients = append(d.config.Clients, Member{Name: n, Start: start})
		d.clients = append(d.clients, peerState{})
	}
	return d, nil
}

const timerRepeat protocol.TimerID = 1

// Step is the machine.
func (d *DirectoryState) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	d.out = d.out[:0]
	switch in := in.(type) {
	case protocol.Start:
		d.spread()
	case protocol.Message:
		d.message(in.From, in.Body)
	case protocol.Timer:
		d.armed = false
		d.wait = min(2*d.wait, maxRetry)
		d.spread()
		d.recount()
	case protocol.Call:
		d.call(in.ID, in.Arg)
	case protocol.Computed:
		d.written(in.ID)
	case protocol.LinkLost:
		if errors.Is(in.Err, errUnreadable) && d.p.index(in.Peer) >= 0 {
			d.fail(in.Err)
		}
	case protocol.LinkBack:
		d.wait = d.o.Retry
		d.spread()
		d.greet(in.Peer)
	case protocol.Stop:
		for _, s := range d.calls {
			d.out = append(d.out, protocol.Answer{ID: s.id, Err: errors.New("ps: the directory was closed")})
		}
		d.out = append(d.out, protocol.Exit{})
	}
	if !d.armed && d.owed() {
		d.armed = true
		d.out = append(d.out, protocol.SetTimer{ID: timerRepeat, After: d.wait})
	}
	return d.out
}

func (d *DirectoryState) send(to Name, b protocol.Body) {
	d.out = append(d.out, protocol.Send{To: to, Body: b})
}

// refuse tells a client what the directory does not do for it, and which directory that is: one it was let in by minds no other.
func (d *DirectoryState) refuse(to Name, req uint64, text string) {
	d.send(to, &refused{req: req, directory: d.config.Session, text: text})
}

// change begins a new version, which the caller then edits.
func (d *DirectoryState) change() *Config {
	n := *d.config
	n.Clients, n.Tables = slices.Clone(n.Clients), slices.Clone(n.Tables)
	n.Version++
	d.config = &n
	d.wait = d.o.Retry
	return d.config
}

func (d *DirectoryState) owed() bool {
	for i := range d.lanes {
		if d.lanes[i].accepted < d.config.Version || d.config.Cut.At > 0 && d.lanes[i].saved == nil {
			return true
		}
	}
	for i := range d.clients {
		if d.config.Clients[i].State == Active && (d.clients[i].accepted < d.config.Version && !d.finished(i)) {
			return true
		}
	}
	return d.config.Cut.At > 0
}

// spread tells the configuration to those who have not accepted it: lanes first.
func (d *DirectoryState) spread() {
	if d.err != nil {
		for _, m := range d.config.Clients {
			if m.Session != 0 {
				d.ended(&m)
			}
		}
		return
	}
	for l := range d.lanes {
		if d.lanes[l].accepted < d.config.Version || d.config.Cut.At > 0 && d.lanes[l].saved == nil {
			d.tell(l)
		}
	}
	if d.counted != d.config.Version {
		return
	}
	for i := range d.clients {
		if d.config.Clients[i].State == Active && (d.clients[i].accepted < d.config.Version || d.config.Cut.At > 0 && !d.clients[i].told) {
			d.send(d.config.Clients[i].Name, &install{config: d.config})
		}
	}
}

// recount asks lanes again how far clients came, while a snapshot waits for one of them: it may have finished after they accepted the cut,
// and be gone.
func (d *DirectoryState) recount() {
	if d.err != nil || d.config.Cut.At == 0 || d.counted != d.config.Version || d.absent() < 0 {
		return
	}
	for l := range d.lanes {
		if d.lanes[l].saved != nil { // the others are asked anyway
			d.tell(l)
		}
	}
}

// tell tells a lane the configuration.
func (d *DirectoryState) tell(l int) {
	d.send(d.p.server(l), &install{lane: true, to: uint16(l), accepted: d.lanes[l].accepted, config: d.config})
}

// greet asks the lanes of a server whose link is back whether they still have what they had accepted: it may be another process.
func (d *DirectoryState) greet(peer Name) {
	for l := range d.lanes {
		if d.err == nil && d.p.server(l) == peer && d.lanes[l].accepted == d.config.Version {
			d.tell(l)
		}
	}
}

// finished reports whether client i ended its last round everywhere.
func (d *DirectoryState) finished(i int) bool {
	for l := range d.lanes {
		if e := d.lanes[l].ends; i >= len(e) || e[i] != maxClock {
			return false
		}
	}
	return true
}

func (d *DirectoryState) message(from Name, body protocol.Body) {
	switch m := body.(type) {
	case *hello:
		if m.name == from && m.session != 0 {
			d.onHello(m)
		}
	case *create:
		if d.err != nil {
			d.refuse(from, m.req, d.err.Error())
			return
		}
		if int(m.client) < len(d.config.Clients) && d.config.Clients[m.client].Name == from && d.config.Clients[m.client].Session == m.session {
			if text := d.admit([]Spec{m.spec}, from); text != "" {
				d.refuse(from, m.req, text)
			} else if d.counted == d.config.Version {
				d.send(from, &install{config: d.config})
			}
		}
	case *accept:
		d.onAccept(from, m)
	case *progress:
		i := int(m.client)
		if m.cut == d.config.Cut.ID && d.config.Cut.At > 0 && i < len(d.clients) && d.config.Clients[i].Name == from && d.config.Clients[i].Session == m.session {
			d.clients[i].states, d.clients[i].text, d.clients[i].told = m.states, m.text, true
			d.checkSnapshot()
		}
	case *saved:
		if m.cut == d.config.Cut.ID && d.config.Cut.At > 0 && int(m.lane) < len(d.lanes) && d.p.server(int(m.lane)) == from {
			d.lanes[m.lane].saved = m
			d.checkSnapshot()
		}
	}
}

func (d *DirectoryState) onAccept(from Name, m *accept) {
	if m.isClient {
		i := int(m.client)
		if i >= len(d.clients) || d.config.Clients[i].Name != from || d.config.Clients[i].Session != m.session {
			return
		}
		d.hi = max(d.hi, m.hi)
		d.clients[i].accepted = max(d.clients[i].accepted, m.version)
		if m.refused && m.version == d.config.Version && d.config.Cut.At > 0 {
			d.putOff()
			return
		}
		d.checkSnapshot()
		return
	}
	if l := int(m.lane); m.forgot && l < len(d.lanes) && d.p.server(l) == from {
		d.rolledBack(l)
		return
	}
	if m.text != "" && d.p.index(from) >= 0 { // whatever lane it takes itself for: in another placement it may have another number
		d.fail(errors.New(m.text))
		return
	}
	l := int(m.lane)
	if l >= len(d.lanes) || d.p.server(l) != from {
		return
	}
	d.hi = max(d.hi, m.hi)
	p := &d.lanes[l]
	if m.version < p.accepted || m.version > d.config.Version || m.version == d.config.Version && len(m.ends) < len(d.clients) {
		return
	}
	p.accepted, p.ends = m.version, m.ends
	if m.refused {
		p.refused = m.version
	}
	d.check()
}

// fail ends the job: a server cannot hold what it is asked to.
func (d *DirectoryState) fail(err error) {
	if d.err != nil {
		return
	}
	d.err = err
	for _, s := range d.calls {
		d.out = append(d.out, protocol.Answer{ID: s.id, Err: err})
	}
	d.calls = nil
	d.spread()
}

// check counts the version once all lanes accepted it, or proposes again what a lane is past.
func (d *DirectoryState) check() {
	late := false
	for l := range d.lanes {
		if d.lanes[l].accepted < d.config.Version {
			return
		}
		late = late || d.lanes[l].refused == d.config.Version
	}
	if late {
		d.putOff()
		return
	}
	if d.counted == d.config.Version {
		d.checkSnapshot()
		return
	}
	d.counted = d.config.Version
	d.wait = d.o.Retry
	if d.config.Cut.At == 0 {
		d.margin = 0
	}
	for i := range d.clients {
		d.clients[i].settled = d.clients[i].settled || d.config.Clients[i].Session != 0
	}
	ending := false
	for i := range d.config.Clients {
		if d.config.Clients[i].State == Ending {
			ending = true
		}
	}
	if ending { // the lanes said how far they had come: the last round that is complete everywhere is the end
		c := d.change()
		for i := range c.Clients {
			if m := &c.Clients[i]; m.State == Ending {
				m.State, m.End = Ended, maxClock
				for l := range d.lanes {
					m.End = min(m.End, d.lanes[l].ends[i])
				}
			}
		}
	}
	d.spread()
	d.checkSnapshot()
}

// putOff proposes later rounds for what is not decided yet.
func (d *DirectoryState) putOff() {
	d.margin = min(2*d.margin+1, maxMargin)
	c := d.change()
	for i := range c.Clients {
		if m := &c.Clients[i]; m.State == Active && !d.clients[i].settled && i >= len(d.p.Clients) {
			m.Start = max(m.Start, d.later())
		}
	}
	if c.Cut.At > 0 && len(d.calls) > 0 && d.calls[0].job == nil { // a cut whose manifest is being written is done
		d.propose(c)
	}
	d.spread()
}

func (d *DirectoryState) call(id uint64, arg any) {
	switch x := arg.(type) {
	case configCall:
		d.out = append(d.out, protocol.Answer{ID: id, Result: d.config})
	case lostCall:
		i := slices.IndexFunc(d.config.Clients, func(c Member) bool { return c.Name == x.name })
		if i < 0 {
			d.out = append(d.out, protocol.Answer{ID: id, Err: d.shutOut(x.name)})
			return
		}
		if (d.config.Clients[i].State == Active || d.config.Clients[i].State == Awaited) && !d.finished(i) {
			d.change().Clients[i].State = Ending
			d.spread()
		}
		d.out = append(d.out, protocol.Answer{ID: id})
	case snapshotCall:
		if d.err != nil {
			d.out = append(d.out, protocol.Answer{ID: id, Err: d.err})
			return
		}
		d.calls = append(d.calls, &snapshotting{id: id, store: x.store})
		d.beginSnapshot()
	case cancelCall:
		for i, s := range d.calls {
			if s.id == x.id && !s.givenUp {
				d.out = append(d.out, protocol.Answer{ID: s.id, Err: fmt.Errorf("ps: snapshot at clock %d: %s: %w", d.config.Cut.At, d.missing(), x.cause)})
				if s.job != nil { // no other begins before its manifest is written
					s.givenUp = true
					return
				}
				d.calls = slices.Delete(d.calls, i, i+1)
				if s.begun {
					d.endSnapshot()
				}
				return
			}
		}
	}
}
