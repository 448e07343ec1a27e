package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// A Proxy stands between real sockets, and passes their bytes on as links pass them. Its plan knows two nodes: 0 are those who connect,
// 1 is the server. So "partition 1" is a black hole both ways, "mute 0" one in which nothing reaches the server, and "deafen 0" one in
// which nothing comes back; "reset" breaks all connections, "slice" cuts what passes into small writes, "corrupt" changes a bit, "crash 1"
// breaks connections and takes no new ones. The proxy knows no frames, so that it cannot double or reorder any.
type Proxy struct {
	n      *Network
	to     string
	ln     net.Listener
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]struct{} // nil: the proxy has ended
	err  error                 // of the plan
}

// NewProxy listens at an address and passes each connection on to another. Addresses are host:port, or "unix:" and a path. The plan's
// times count from now; Run does further ones. The proxy ends with ctx, or Close.
func NewProxy(ctx context.Context, listen, to string, seed uint64, p Plan) (*Proxy, error) {
	n := New(seed, Options{}).Network()
	client, server := n.node(nameOf("client")), n.node(nameOf("server"))
	n.w.Connect(client, server, Link{}, Link{})
	if err := p.check(len(n.w.nodes)); err != nil {
		return nil, err
	}
	network, addr := split(listen)
	ln, err := new(net.ListenConfig).Listen(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("sim: proxy: %w", err)
	}
	x := &Proxy{n: n, to: to, ln: ln, open: map[net.Conn]struct{}{}}
	ctx, x.cancel = context.WithCancel(ctx)
	x.wg.Go(func() {
		if err := n.Run(ctx, p); err != nil && ctx.Err() == nil {
			x.mu.Lock()
			x.err = err
			x.mu.Unlock()
		}
	})
	x.wg.Go(func() { x.accept(ctx) })
	context.AfterFunc(ctx, x.shut)
	return x, nil
}

func split(addr string) (network, rest string) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// Addr is where the proxy listens, in the form that NewProxy takes.
func (x *Proxy) Addr() string {
	if a := x.ln.Addr(); a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return x.ln.Addr().String()
}

// Run does another plan, whose times count from now, and returns when its last fault has ended.
func (x *Proxy) Run(ctx context.Context, p Plan) error { return x.n.Run(ctx, p) }

// Heal ends all faults.
func (x *Proxy) Heal() { x.n.Heal() }

// Close ends the proxy and its connections, and waits for its goroutines.
func (x *Proxy) Close() error {
	x.cancel()
	x.shut()
	x.wg.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

func (x *Proxy) shut() {
	_ = x.ln.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.open {
		_ = c.Close()
	}
	x.open = nil
	x.n.mu.Lock()
	defer x.n.mu.Unlock()
	for p := range x.n.conns {
		p.breaks(net.ErrClosed)
	}
}

func (x *Proxy) accept(ctx context.Context) {
	for {
		c, err := x.ln.Accept()
		if err != nil {
			return
		}
		if !x.keep(c) {
			return
		}
		x.wg.Go(func() {
			x.pass(ctx, c)
			x.forget(c)
		})
	}
}

// keep has shut close c. Where it has done its work, keep closes c, and returns false.
func (x *Proxy) keep(c net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open == nil {
		_ = c.Close()
		return false
	}
	x.open[c] = struct{}{}
	return true
}

func (x *Proxy) forget(c net.Conn) {
	_ = c.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, c)
}

// pass connects a client with the server until both directions have ended.
func (x *Proxy) pass(ctx context.Context, client net.Conn) {
	x.n.mu.Lock()
	down := x.n.down[0] || x.n.down[1]
	x.n.mu.Unlock()
	if down {
		reset(client)
		return
	}
	network, addr := split(x.to)
	server, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		reset(client)
		return
	}
	if !x.keep(server) {
		reset(client)
		return
	}
	defer x.forget(server)
	x.n.mu.Lock()
	there, back := x.n.pipe(0, 1), x.n.pipe(1, 0)
	x.n.mu.Unlock()
	near := &conn{in: back, out: there}
	far := &conn{in: there, out: back}
	var group sync.WaitGroup
	for _, way := range []struct{ to, from closer }{{near, client.(closer)}, {server.(closer), far}, {far, server.(closer)}, {client.(closer), near}} {
		group.Go(func() {
			if _, err := io.Copy(way.to, way.from); err == nil {
				err = way.to.CloseWrite()
				if err == nil {
					return
				}
			}
			// One end, or the path between, broke: so does the rest.
			x.n.mu.Lock()
			there.breaks(errReset)
			back.breaks(errReset)
			x.n.mu.Unlock()
			reset(client)
			reset(server)
		})
	}
	group.Wait()
	_ = errors.Join(near.Close(), far.Close())
}

// closer is a connection that can close its writing half: TCP and unix ones, and the simulated.
type closer interface {
	net.Conn
	CloseWrite() error
}

// reset closes a connection so that its peer sees a reset, where there is such a thing.
func reset(c net.Conn) {
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}
