package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
)

// A Network is the second layer: the ports and goroutines of real programs, over simulated connections, inside testing/synctest, whose
// clock is virtual. Between the ports is the engine that also drives sockets (transport.Conns): what is simulated is the path of the
// bytes, with the World's links.
//
//	synctest.Test(t, func(t *testing.T) {
//		w := sim.New(seed, sim.Options{})
//		n := w.Network()
//		port, err := n.Open(ctx, name, transport.Options{})
//		...
//		err = n.Run(ctx, plan) // while the ports talk
//	})
//
// Nodes have numbers in the order in which Open or Node first names them; a new incarnation keeps its number. Of a plan's faults, Run
// does those of links, and of nodes Crash (as Vanish: connections break, and none can be opened until For is over; what runs in this
// process goes on, and may be ended by Crashed) and Pause (nothing passes). Faults of disks and the metadata store are done by what Blob
// and Meta return. Slow nodes and clocks cannot be done here.
//
// The order in which the goroutines run is the scheduler's: this layer finds lost wake-ups, leaks and deadlines, and repeats no run.
type Network struct {
	w *World
	// Crashed, if set before Run, is called when Crash, Wipe or Vanish take the node down (up false), and when the last of them has ended.
	Crashed func(n Node, up bool)

	mu        sync.Mutex // guards the World too
	changed   chan struct{}
	listeners map[protocol.Name]*listener
	at        map[string]Node // by address: whose it is, whether or not anybody listens there
	conns     map[*pipe]struct{}
	begun     time.Time
	down      map[Node]bool
}

// Network returns the World's network. The World's links and nodes are then the network's: the World itself is not run.
func (w *World) Network() *Network {
	if w.net == nil {
		w.net = &Network{
			w: w, changed: make(chan struct{}), listeners: map[protocol.Name]*listener{}, at: map[string]Node{},
			conns: map[*pipe]struct{}{}, begun: time.Now(), down: map[Node]bool{},
		}
	}
	return w.net
}

// Node returns the number of a name.
func (n *Network) Node(name protocol.Name) Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node(name)
}

func (n *Network) node(name protocol.Name) Node {
	name.Incarnation = 0
	if i, ok := n.w.byName[name]; ok {
		return Node(i)
	}
	i := int32(len(n.w.nodes))
	n.w.byName[name] = i
	n.w.enter(&node{index: i, name: name, up: true, slow: one})
	return Node(i)
}

const scheme = "sim:"

// Open makes self reachable on the network.
func (n *Network) Open(ctx context.Context, self protocol.Name, o transport.Options) (transport.Port, error) {
	n.mu.Lock()
	if n.listeners[self] != nil {
		n.mu.Unlock()
		return nil, fmt.Errorf("sim: open %v: it is open already", self)
	}
	ln := n.listen(self)
	n.mu.Unlock()
	port, err := transport.Conns{
		Listener: ln, Addr: scheme + self.String(),
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return n.dial(ctx, ln.node, addr) },
		Check: func(addr string) error {
			if !strings.HasPrefix(addr, scheme) {
				return fmt.Errorf("want an address that begins with %q", scheme)
			}
			return nil
		},
	}.Open(ctx, self, o)
	if err != nil {
		_ = ln.Close()
	}
	return port, err
}

// listen lets others connect to a name. n.mu is held.
func (n *Network) listen(self protocol.Name) *listener {
	ln := &listener{n: n, name: self, node: n.node(self), conns: make(chan net.Conn, 16), closed: make(chan struct{})}
	n.listeners[self], n.at[ln.Addr().String()] = ln, ln.node
	return ln
}

// listening returns who listens at an address; nil: nobody. n.mu is held.
func (n *Network) listening(addr string) *listener {
	for _, ln := range n.listeners {
		if ln.Addr().String() == addr {
			return ln
		}
	}
	return nil
}

// dial connects after a round trip; while the path is blocked, it waits, also to be told that nobody listens.
func (n *Network) dial(ctx context.Context, from Node, addr string) (net.Conn, error) {
	n.mu.Lock()
	trip := 2 * int64(n.w.o.Link.Delay)
	if to, ok := n.at[addr]; ok {
		there, back := n.link(from, to), n.link(to, from)
		trip = there.delay + back.delay
		for there.blocked || back.blocked || there.clogged || back.clogged {
			changed := n.changed
			n.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, fmt.Errorf("sim: connect to %s: no answer: %w", addr, ctx.Err())
			}
			n.mu.Lock()
		}
	}
	n.mu.Unlock()
	if err := sleep(ctx, trip); err != nil {
		return nil, fmt.Errorf("sim: connect to %s: %w", addr, err)
	}
	n.mu.Lock()
	ln := n.listening(addr)
	if ln == nil || n.down[ln.node] || n.down[from] {
		n.mu.Unlock()
		return nil, fmt.Errorf("sim: connect to %s: %w", addr, protocol.ErrRefused)
	}
	ab, ba := n.pipe(from, ln.node), n.pipe(ln.node, from)
	mine := &conn{in: ba, out: ab, local: address(n.w.nodes[from].name.String()), remote: address(addr)}
	n.mu.Unlock()
	theirs := &conn{in: ab, out: ba, local: address(addr), remote: mine.local}
	select {
	case ln.conns <- theirs:
		select {
		case <-ln.closed:
			ln.drop() // Close may have done so before
		default:
			return mine, nil
		}
	case <-ln.closed:
	case <-ctx.Done():
	}
	_, _ = mine.Close(), theirs.Close() // drop may have closed it already
	return nil, fmt.Errorf("sim: connect to %s: %w", addr, protocol.ErrRefused)
}

func sleep(ctx context.Context, d int64) error {
	t := time.NewTimer(time.Duration(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run does the plan's faults at their times, counted from its call, and returns when the last one has ended, or with ctx: then all
// faults end. One whose For is 0 lasts until Heal.
func (n *Network) Run(ctx context.Context, p Plan) error {
	n.mu.Lock()
	err := p.check(len(n.w.nodes))
	if err != nil {
		n.mu.Unlock()
		return err
	}
	var steps heap
	var what []func()
	add := func(at time.Duration, f func()) {
		steps.push(entry{int64(at), uint64(len(what)), int32(len(what))})
		what = append(what, f)
	}
	start := time.Now()
	n.w.now = int64(start.Sub(n.begun))
	for _, f := range p {
		r := n.w.prepare(Fault{At: f.At + time.Duration(n.w.now), For: f.For, Kind: f.Kind, Nodes: f.Nodes, Arg: f.Arg})
		add(f.At, func() { n.begin(r) })
		if f.For > 0 {
			add(f.At+f.For, func() { n.end(r) })
		}
		for i := range r.from {
			add(time.Duration(r.from[i]-n.w.now), n.apply)
			add(time.Duration(r.to[i]-n.w.now), n.apply)
		}
	}
	n.mu.Unlock()
	for len(steps) > 0 {
		e := steps.pop()
		if err := sleep(ctx, e.at-int64(time.Since(start))); err != nil {
			n.Heal()
			return err
		}
		what[e.slot]()
	}
	return nil
}

// Heal ends all faults.
func (n *Network) Heal() {
	n.mu.Lock()
	active := n.w.active
	n.mu.Unlock()
	for _, r := range active {
		n.end(r)
	}
}

func (n *Network) begin(r *running) {
	n.mu.Lock()
	r.grow(len(n.w.nodes))
	n.w.active = append(n.w.active, r)
	n.mu.Unlock()
	switch r.Kind {
	case Crash, Wipe, Vanish:
		n.crash(r)
	case Reset:
		n.mu.Lock()
		for p := range n.conns {
			if r.touches(p.link) {
				p.breaks(errReset)
			}
		}
		n.mu.Unlock()
	}
	n.apply()
}

func (n *Network) end(r *running) {
	n.mu.Lock()
	i := slices.Index(n.w.active, r)
	if i >= 0 {
		n.w.active = slices.Concat(n.w.active[:i], n.w.active[i+1:])
	}
	n.mu.Unlock()
	if i < 0 {
		return // Heal has ended it
	}
	if r.Kind <= Vanish {
		n.crash(r)
	}
	n.apply()
}

// crash takes the nodes of a fault that has begun off the network, and those of one that has ended back on it, unless another keeps them off.
func (n *Network) crash(r *running) {
	for _, node := range r.Nodes {
		if node == Meta {
			continue
		}
		n.mu.Lock()
		down := slices.ContainsFunc(n.w.active, func(x *running) bool { return x.Kind <= Vanish && slices.Contains(x.Nodes, node) })
		changes := n.down[node] != down
		n.down[node] = down
		for p := range n.conns {
			if down && (p.link.from == int32(node) || p.link.to == int32(node)) {
				p.breaks(io.ErrUnexpectedEOF)
			}
		}
		n.mu.Unlock()
		if changes && n.Crashed != nil {
			n.Crashed(node, !down)
		}
	}
}

// apply makes links as the faults in force say, and wakes all who wait for them.
func (n *Network) apply() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.w.now = int64(time.Since(n.begun))
	for _, node := range n.w.nodes {
		n.w.afflict(node)
	}
	n.w.afflictStore()
	for _, node := range n.w.nodes {
		for _, l := range node.links {
			if l != nil {
				n.w.effect(l)
				n.hold(l)
			}
		}
	}
	close(n.changed)
	n.changed = make(chan struct{})
	for p := range n.conns {
		p.signal()
	}
}

// link returns the one from a node to another, which may be new.
func (n *Network) link(from, to Node) *link {
	l := n.w.link(int32(from), int32(to))
	n.hold(l)
	return l
}

// hold clogs a link of a node that pauses: what the World does to nodes is done to their links here.
func (n *Network) hold(l *link) {
	l.clogged = l.clogged || n.w.nodes[l.from].paused || n.w.nodes[l.to].paused
}

// pipe opens one direction of a connection.
func (n *Network) pipe(from, to Node) *pipe {
	p := &pipe{n: n, link: n.link(from, to), wake: make(chan struct{})}
	p.key = draw.Mix(p.link.key + p.link.frames)
	p.link.frames++
	n.conns[p] = struct{}{}
	return p
}

type listener struct {
	n      *Network
	name   protocol.Name
	node   Node
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.listeners, l.name)
		l.n.mu.Unlock()
		close(l.closed)
		l.drop()
	})
	return nil
}

// drop closes the connections that nobody accepts any more.
func (l *listener) drop() {
	for {
		select {
		case c := <-l.conns:
			_ = c.Close()
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return address(scheme + l.name.String()) }

type address string

func (address) Network() string  { return "sim" }
func (a address) String() string { return string(a) }

var errReset = errors.New("sim: connection reset by the network")

func nameOf(id string) protocol.Name { return protocol.Name{ID: id} }
