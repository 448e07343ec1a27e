package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/trivium-ml/trivium/protocol"
)

// TCP is a network between hosts, by TCP, and with TLS 1.3 if TLS is set.
//
// Its addresses are "tcp:host:port".
type TCP struct {
	Listen    string // host:port; port 0: any; "": a port of the loopback
	Advertise string // host:port that others reach it by; "": what it listens on

	// TLS has this end's certificate and whom it trusts: Certificates, RootCAs for those that it dials, ClientCAs for those that dial
	// it. Both ends show a certificate, and nothing older than TLS 1.3 is spoken. Nil: no TLS; then only Options.Secret keeps strangers
	// out, and whoever is on the way can read and change what passes.
	TLS *tls.Config
	// Verify checks that a certificate is that of the peer of that name; nil: whoever holds a trusted certificate may have any name.
	Verify func(Name, tls.ConnectionState) error

	Sum    Checksums
	Buffer int // bytes of each socket's buffers, in the kernel; 0: as the system has them
}

// Checksums says which payloads carry a CRC-32C. Headers always do.
type Checksums uint8

// The choices.
const (
	SumBetweenHosts Checksums = iota // not where both ends are on this host, nor under TLS, which has its own
	SumAlways
	SumNever
)

const tcpScheme = "tcp:"

// Open listens.
func (t TCP) Open(ctx context.Context, self Name, o Options) (Port, error) {
	if err := errors.Join(o.validate(), t.validate()); err != nil {
		return nil, err
	}
	c, err := t.carrier(ctx, self)
	if err != nil {
		return nil, err
	}
	return openPort(self, o, c), nil
}

func (t TCP) validate() error {
	var err error
	if t.Sum > SumNever {
		err = errors.Join(err, fmt.Errorf("transport: TCP: there is no choice of checksums %d", t.Sum))
	}
	if t.Buffer < 0 {
		err = errors.Join(err, fmt.Errorf("transport: TCP: Buffer: want 0 or more bytes, found %d", t.Buffer))
	}
	if t.TLS == nil && t.Verify != nil {
		err = errors.Join(err, errors.New("transport: TCP: Verify without TLS: there are no certificates"))
	}
	if t.TLS != nil && len(t.TLS.Certificates) == 0 && (t.TLS.GetCertificate == nil || t.TLS.GetClientCertificate == nil) {
		err = errors.Join(err, errors.New("transport: TCP: TLS: want a certificate: both ends show one"))
	}
	return err
}

func (t TCP) carrier(ctx context.Context, self Name) (*carrier, error) {
	listen := t.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	paced := new(pacing)
	tune := func(nc net.Conn) net.Conn { return t.tune(nc, paced) }
	lc := net.ListenConfig{Control: paced.listen}
	lc.SetMultipathTCP(false) // nobody dials it so
	ln, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("transport: %v listens at %s: %w", self, listen, err)
	}
	addr := t.Advertise
	if addr == "" {
		addr = ln.Addr().String()
	} else if host, port, err := net.SplitHostPort(addr); err == nil && port == "0" {
		addr = net.JoinHostPort(host, strconv.Itoa(ln.Addr().(*net.TCPAddr).Port))
	}
	c := &carrier{
		addr:      tcpScheme + addr,
		listeners: []net.Listener{tunedListener{ln, tune}},
		check:     func(addr string) error { _, err := tcpAddr(addr); return err },
		sum:       t.summed,
		dial: func(ctx context.Context, addr string) (net.Conn, error) {
			at, err := tcpAddr(addr)
			if err != nil {
				return nil, err
			}
			nc, err := (&net.Dialer{Control: paced.dial}).DialContext(ctx, "tcp", at)
			if err != nil {
				return nil, refusedErr(err)
			}
			return tune(nc), nil
		},
	}
	if t.TLS != nil {
		t.secure(c)
	}
	return c, nil
}

// refusedErr makes the system's word for a closed door the protocol's.
func refusedErr(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", protocol.ErrRefused, err)
	}
	return err
}

func tcpAddr(addr string) (string, error) {
	at, ok := strings.CutPrefix(addr, tcpScheme)
	if !ok {
		return "", fmt.Errorf("want an address of TCP, which is %shost:port", tcpScheme)
	}
	if _, _, err := net.SplitHostPort(at); err != nil {
		return "", fmt.Errorf("want %shost:port: %w", tcpScheme, err)
	}
	return at, nil
}

// summed reports whether what passes over nc needs checksums: not on one host.
func (t TCP) summed(nc net.Conn, _ string) bool {
	switch {
	case t.Sum != SumBetweenHosts:
		return t.Sum == SumAlways
	case t.TLS != nil:
		return false
	}
	return !local(nc)
}

func (t TCP) tune(nc net.Conn, paced *pacing) net.Conn {
	c, ok := nc.(*net.TCPConn)
	if ok {
		paced.begun(c, local(nc))
	}
	if ok && t.Buffer > 0 {
		_ = c.SetReadBuffer(t.Buffer) // the system's own sizes do too
		_ = c.SetWriteBuffer(t.Buffer)
	}
	return nc
}

// local reports whether both ends are on this host.
func local(nc net.Conn) bool {
	at, ok := nc.LocalAddr().(*net.TCPAddr)
	to, ok2 := nc.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && (to.IP.IsLoopback() || to.IP.Equal(at.IP))
}

// A tunedListener does something to each connection that it accepts.
type tunedListener struct {
	net.Listener
	tune func(net.Conn) net.Conn
}

func (l tunedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.tune(nc), nil
}
