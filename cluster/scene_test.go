package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// A process is what a node of a simulated scene runs: a Machine, a carrier above it, and the habit of joining again, as a new
// incarnation, when the group goes on without it. The World knows one incarnation for each restart of a node; a process counts on
// within it, so that each Machine has a name of its own.
type process struct {
	scene *scene
	node  sim.Node
	outer protocol.Name
	lives uint64
	m     *cluster.Machine
	self  protocol.Name

	view  cluster.View
	ended bool
	err   error
	late  []stamped // of an epoch that is not in force here yet: what a stream holds back
	sent  int
	known []protocol.Name // to whom it sent, for lost links

	after time.Duration // before the first start
	leave bool          // do not come back
}

const (
	livesPerBoot = 1000
	carrierTimer = 100
	rejoinTimer  = 101
	carrierEvery = 40 * time.Millisecond
	rejoinAfter  = 30 * time.Millisecond
	metaShift    = 32
)

// envelope carries a body between two incarnations.
type envelope struct {
	from, to uint64
	body     protocol.Body
}

func (e *envelope) Size() int { return e.body.Size() }

func (e *envelope) String() string {
	return fmt.Sprintf("%d to %d: %T of %d bytes", e.from, e.to, e.body, e.body.Size())
}

// stamped is a carrier's message.
type stamped struct {
	from  protocol.Name
	epoch protocol.Epoch
	n     int
}

func (*stamped) Size() int { return 64 }

// applied is the fact that a carrier took a message in.
type applied struct {
	message stamped
	view    cluster.View // in force where it was applied
}

func (p *process) Step(now time.Duration, in protocol.Event) []protocol.Command {
	var out []protocol.Command
	switch in := in.(type) {
	default:
		if p.m == nil {
			return nil
		}
	case protocol.Start:
		if p.after > 0 {
			p.ended = true
			return []protocol.Command{protocol.SetTimer{ID: rejoinTimer, After: p.after}, protocol.SetTimer{ID: carrierTimer, After: carrierEvery}}
		}
		return append(p.start(now), protocol.SetTimer{ID: carrierTimer, After: carrierEvery})
	case protocol.Timer:
		switch in.ID {
		case carrierTimer:
			return append(p.carry(), protocol.SetTimer{ID: carrierTimer, After: carrierEvery})
		case rejoinTimer:
			switch {
			case p.ended && p.leave:
				return []protocol.Command{protocol.SetTimer{ID: rejoinTimer, After: time.Second}}
			case p.ended:
				return p.start(now)
			}
			return nil
		}
	case protocol.Message:
		e := in.Body.(*envelope)
		if e.to != p.self.Incarnation {
			return nil
		}
		from := in.From
		from.Incarnation = e.from
		if s, ok := e.body.(*stamped); ok {
			return p.take(*s)
		}
		return p.wrap(now, p.m.Step(now, protocol.Message{From: from, Body: e.body}))
	case protocol.MetaReply:
		if in.ID>>metaShift != p.lives {
			return nil
		}
		in.ID &= 1<<metaShift - 1
		return p.wrap(now, p.m.Step(now, in))
	case protocol.LinkLost:
		for _, n := range p.known {
			if n.ID == in.Peer.ID && n.Incarnation/livesPerBoot == in.Peer.Incarnation {
				out = append(out, p.wrap(now, p.m.Step(now, protocol.LinkLost{Peer: n, Err: in.Err}))...)
			}
		}
		return out
	case protocol.LinkBack:
		return nil // the World's links come back without the peer's doing
	case protocol.Call:
		if p.m == nil {
			return nil
		}
		if _, ok := in.Arg.(cluster.Leave); ok && p.view.Epoch > 0 {
			p.scene.leavers[p.self] = true
		}
	}
	return p.wrap(now, p.m.Step(now, in))
}

func (p *process) start(now time.Duration) []protocol.Command {
	p.lives++
	p.self = p.outer
	p.self.Incarnation = p.outer.Incarnation*livesPerBoot + p.lives
	p.view, p.ended, p.err, p.late, p.known = cluster.View{}, false, nil, nil, nil
	m, err := cluster.NewMachine(cluster.Member{Name: p.self, Addr: fmt.Sprint(p.scene.addr, int(p.node), p.scene.port)}, p.scene.policy)
	if err != nil {
		panic(err)
	}
	p.m = m
	return p.wrap(now, m.Step(now, protocol.Start{}))
}

// wrap turns the machine's commands into the node's.
func (p *process) wrap(_ time.Duration, commands []protocol.Command) []protocol.Command {
	var out []protocol.Command
	for _, c := range commands {
		switch c := c.(type) {
		case protocol.Send:
			out = append(out, p.post(c.To, c.Body))
			continue
		case protocol.MetaCall:
			c.ID |= p.lives << metaShift
			out = append(out, c)
			continue
		case protocol.Exit:
			out = append(out, protocol.SetTimer{ID: rejoinTimer, After: rejoinAfter})
			continue
		case protocol.Report:
			switch f := c.Fact.(type) {
			case cluster.Installed:
				p.view = f.View
				late := p.late
				p.late = nil
				out = append(out, c)
				for _, s := range late {
					out = append(out, p.take(s)...)
				}
				continue
			case cluster.Ended:
				p.ended, p.err, p.view = true, f.Err, cluster.View{}
			}
		}
		out = append(out, c)
	}
	return out
}

func (p *process) post(to protocol.Name, body protocol.Body) protocol.Command {
	if !slices.Contains(p.known, to) {
		p.known = append(p.known, to)
	}
	e := &envelope{p.self.Incarnation, to.Incarnation, body}
	to.Incarnation /= livesPerBoot
	return protocol.Send{To: to, Body: e}
}

// carry sends a carrier's message to all members of the view.
func (p *process) carry() []protocol.Command {
	var out []protocol.Command
	for r, m := range p.view.Members {
		if r != p.view.Self {
			p.sent++
			out = append(out, p.post(m.Name, &stamped{p.self, p.view.Epoch, p.sent}))
		}
	}
	return out
}

// take does what a stream does that is fenced with each view: older epochs are dropped, newer ones held back.
func (p *process) take(s stamped) []protocol.Command {
	switch {
	case s.epoch > p.view.Epoch:
		p.late = append(p.late, s)
	case s.epoch == p.view.Epoch && slices.Contains(p.view.Names(), s.from):
		return []protocol.Command{protocol.Report{Fact: applied{s, p.view}}}
	}
	return nil
}

// A scene is a World of processes, and what must hold in it.
type scene struct {
	w          *sim.World
	policy     cluster.Policy
	processes  []*process
	views      map[protocol.Epoch]cluster.View
	by         map[protocol.Epoch]protocol.Name
	convicted  []cluster.Convicted
	leavers    map[protocol.Name]bool // members that asked to leave, also if they crashed before the next view
	applied    int
	facts      []sim.Fact // if kept
	addr, port string     // around the node's number
	keep       bool
	quorumLost bool // and that is what is tested
	proofs     bool // a minority may go on without those who live, as a lease or a launcher proves them dead
}

func newScene(seed uint64, n int, pol cluster.Policy, o sim.Options) *scene {
	return populate(sim.New(seed, o), n, pol)
}

// populate adds n processes to w, and what must hold of them.
func populate(w *sim.World, n int, pol cluster.Policy) *scene {
	s := &scene{
		w: w, policy: pol, views: map[protocol.Epoch]cluster.View{}, by: map[protocol.Epoch]protocol.Name{},
		leavers: map[protocol.Name]bool{},
	}
	for range n {
		s.add(0)
	}
	s.w.Invariant("one chain of views", s.chain)
	s.w.Invariant("fencing", s.fenced)
	return s
}

// add adds a node, whose process starts so late.
func (s *scene) add(after time.Duration) sim.Node {
	i := len(s.processes)
	s.processes = append(s.processes, nil)
	return s.w.Add(protocol.Name{Job: "j", Role: "worker", ID: strconv.Itoa(i), Incarnation: 1}, sim.Host{}, func(sim.Disk) protocol.Machine {
		s.processes[i] = &process{scene: s, node: sim.Node(i), outer: s.w.Name(sim.Node(i)), after: after}
		after = 0 // when the node starts again, so does its process
		return s.processes[i]
	})
}

// chain holds the views against one another: one content for each epoch, epochs that only rise, and no view by a minority.
func (s *scene) chain(f sim.Fact) error {
	if s.keep {
		s.facts = append(s.facts, f)
	}
	switch v := f.Value.(type) {
	case cluster.Convicted:
		s.convicted = append(s.convicted, v)
	case cluster.Installed:
		p := s.processes[f.Node]
		if p.view.Epoch > v.View.Epoch {
			return fmt.Errorf("%v went from view %d back to view %d", p.self, p.view.Epoch, v.View.Epoch)
		}
		if v.View.Members[v.View.Self].Name != p.self {
			return fmt.Errorf("%v has rank %d in view %d, which is %v", p.self, v.View.Self, v.View.Epoch, v.View.Members[v.View.Self].Name)
		}
		first, known := s.views[v.View.Epoch]
		if !known {
			s.views[v.View.Epoch], s.by[v.View.Epoch] = v.View, v.By
			return s.follows(v)
		}
		if !slices.Equal(first.Names(), v.View.Names()) || s.by[v.View.Epoch] != v.By {
			return fmt.Errorf("view %d is %v by %v at one process, and %v by %v at %v", v.View.Epoch, first.Names(), s.by[v.View.Epoch],
				v.View.Names(), v.By, p.self)
		}
	case cluster.Ended:
		if v.Err != nil && (errors.Is(v.Err, cluster.ErrRegressed) || errors.Is(v.Err, cluster.ErrNoQuorum) && !s.quorumLost) {
			return v.Err
		}
	}
	return nil
}

// follows says whether a view may follow the one before: those who go on are a majority of it, or half with its first; or all others
// are truly gone.
func (s *scene) follows(v cluster.Installed) error {
	before, known := s.views[v.View.Epoch-1]
	if !known || len(before.Members) == 0 || s.proofs {
		return nil // nobody lived to install it
	}
	votes := func(n protocol.Name) bool { return slices.Contains(v.View.Names(), n) || s.leavers[n] } // who leaves votes too
	stay := 0
	var missing []protocol.Name
	for _, m := range before.Members {
		if votes(m.Name) {
			stay++
		} else {
			missing = append(missing, m.Name)
		}
	}
	if 2*stay > len(before.Members) || 2*stay == len(before.Members) && votes(before.Members[0].Name) {
		return nil
	}
	for _, n := range missing {
		if p := s.of(n); p != nil && p.self == n && !p.ended && s.w.Up(p.node) {
			return fmt.Errorf("view %d %v follows view %d %v without %v, which lives", v.View.Epoch, v.View.Names(), before.Epoch, before.Names(), n)
		}
	}
	return nil
}

func (s *scene) of(n protocol.Name) *process {
	for _, p := range s.processes {
		if p != nil && p.outer.ID == n.ID {
			return p
		}
	}
	return nil
}

// fenced: what a carrier applies was sent in the epoch that is in force there, by a member of it.
func (s *scene) fenced(f sim.Fact) error {
	a, ok := f.Value.(applied)
	if !ok {
		return nil
	}
	s.applied++
	view, known := s.views[a.view.Epoch]
	if a.message.epoch != a.view.Epoch || !known || !slices.Contains(view.Names(), a.message.from) {
		return fmt.Errorf("a message of %v in epoch %d was applied in view %d %v", a.message.from, a.message.epoch, a.view.Epoch, view.Names())
	}
	return nil
}

// agreed says whether all nodes that should be there are in one view, and nobody else is.
func (s *scene) agreed() bool {
	var epoch protocol.Epoch
	want := 0
	for _, p := range s.processes {
		if p == nil || p.leave {
			continue
		}
		want++
		if !s.w.Up(p.node) || p.ended || p.view.Epoch == 0 || epoch != 0 && p.view.Epoch != epoch {
			return false
		}
		epoch = p.view.Epoch
		if p.view.Members[p.view.Self].Name != p.self {
			return false
		}
	}
	return want > 0 && len(s.views[epoch].Members) == want
}
