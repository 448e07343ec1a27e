package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
)

// Conns is a network over connections that its maker brings: those of a simulator, or through a proxy. It serves one port, which closes
// Listener. Its connections are streams of bytes, as TCP's; what crosses them is checksummed.
type Conns struct {
	Listener net.Listener // of the connections that others open
	Addr     string       // what others pass to Know
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Check    func(addr string) error // says what is wrong with an address that Know gets; nil: all are good
}

// Open makes self reachable through c.Listener.
func (c Conns) Open(ctx context.Context, self Name, o Options) (Port, error) {
	if err := errors.Join(o.validate(), ctx.Err()); err != nil {
		return nil, fmt.Errorf("transport: open %v: %w", self, err)
	}
	if c.Listener == nil || c.Dial == nil {
		return nil, fmt.Errorf("transport: open %v: Conns: want a Listener and Dial", self)
	}
	check := c.Check
	if check == nil {
		check = func(string) error { return nil }
	}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := c.Dial(ctx, addr)
		return distinct(nc), err
	}
	return openPort(self, o, &carrier{
		addr: c.Addr, listeners: []net.Listener{tunedListener{c.Listener, distinct}}, dial: dial, check: check, sum: func(net.Conn, string) bool { return true },
	}), nil
}

// distinct returns a connection that a port can tell from others: one that is a struct need not compare.
func distinct(nc net.Conn) net.Conn {
	if nc == nil || reflect.ValueOf(nc).Comparable() {
		return nc
	}
	return &struct{ net.Conn }{nc}
}
