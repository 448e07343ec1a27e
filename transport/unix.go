package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// Unix is a network between the processes of one user on one host, by sockets in a directory, and by shared memory where the system has
// it.
//
// Its addresses are "unix:/path". The name of a socket is a hash of the peer's, since a path may have 107 bytes at most (on some systems
// 103). A socket that a dead process left behind is replaced. Beside it lies a second one (life_linux.go), which tells the peers at once
// when the process dies: the loss of their links comes with proof then, protocol.ErrRefused, within a fraction of a millisecond.
type Unix struct {
	Dir    string // "": trivium-<user's number> in the directory for temporary files; made if it is not there, for its owner alone
	Buffer int    // bytes of each socket's buffers, in the kernel; 0: as the system has them

	// Sockets keeps large payloads out of shared memory: all goes through the sockets, both ways, whatever the other end has.
	Sockets bool
}

const (
	unixScheme  = "unix:"
	maxUnixPath = 103
	socketHash  = 10 // bytes of the hash that names one
)

// Open listens at a socket of self's own.
func (u Unix) Open(ctx context.Context, self Name, o Options) (Port, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c, err := u.carrier(ctx, self)
	if err != nil {
		return nil, err
	}
	return openPort(self, o, c), nil
}

// dir returns the directory of the sockets, which nobody else may write to.
func (u Unix) dir() (string, error) {
	dir := u.Dir
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("trivium-%d", os.Getuid()))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is no directory", dir)
	}
	if u.Dir == "" && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is open to other users (%v): remove it, or set Dir", dir, info.Mode().Perm())
	}
	return filepath.Abs(dir)
}

// Check returns ErrTooLong, with what to do, if Dir is too long a name for sockets in it, and makes nothing.
func (u Unix) Check() error {
	if len(u.Dir)+len("/.sock")+2*socketHash > maxUnixPath {
		return tooLong(u.Dir)
	}
	return nil
}

// ErrTooLong is in the error of a directory whose sockets the system cannot name.
var ErrTooLong = errors.New("choose a shorter one (TMPDIR, where it is a temporary one)")

func tooLong(dir string) error {
	return fmt.Errorf("the name of the directory for sockets, %s, has %d bytes, at most %d: %w", dir, len(dir), maxUnixPath-len("/.sock")-2*socketHash, ErrTooLong)
}

func (u Unix) carrier(ctx context.Context, self Name) (*carrier, error) {
	dir, err := u.dir()
	if err != nil {
		return nil, fmt.Errorf("transport: %v: directory for sockets: %w", self, err)
	}
	hash := sha256.Sum256(appendName(nil, self))
	path := filepath.Join(dir, hex.EncodeToString(hash[:socketHash])+".sock")
	if len(path) > maxUnixPath {
		return nil, fmt.Errorf("transport: %v: %w", self, tooLong(dir))
	}
	ln, err := listenUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("transport: %v: %w", self, err)
	}
	life, err := openLife(strings.TrimSuffix(path, ".sock") + ".life")
	tune := func(nc net.Conn) net.Conn {
		if c, ok := nc.(*net.UnixConn); ok && u.Buffer > 0 {
			_ = c.SetReadBuffer(u.Buffer) // the system's own sizes do too
			_ = c.SetWriteBuffer(u.Buffer)
		}
		return nc
	}
	return &carrier{
		addr:      unixScheme + path,
		listeners: []net.Listener{tunedListener{ln, tune}},
		check:     func(addr string) error { _, err := unixPath(addr); return err },
		sum:       func(net.Conn, string) bool { return false },
		admit:     admitUser,
		shared:    !u.Sockets,
		life:      life,
		lifeless:  err,
		attend: func(ctx context.Context, addr string) net.Conn {
			path, err := unixPath(addr)
			if err != nil {
				return nil
			}
			nc, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimSuffix(path, ".sock")+".life")
			if err != nil {
				return nil // not on its system, or it is gone, as the link itself will tell
			}
			return nc
		},
		dial: func(ctx context.Context, addr string) (net.Conn, error) {
			path, err := unixPath(addr)
			if err != nil {
				return nil, err
			}
			nc, err := new(net.Dialer).DialContext(ctx, "unix", path)
			if errors.Is(err, fs.ErrNotExist) { // its owner closed it
				return nil, fmt.Errorf("%w: %w", protocol.ErrRefused, err)
			}
			if err != nil {
				return nil, refusedErr(err)
			}
			return tune(nc), nil
		},
	}, nil
}

func unixPath(addr string) (string, error) {
	path, ok := strings.CutPrefix(addr, unixScheme)
	if !ok || path == "" {
		return "", fmt.Errorf("want the address of a unix socket, which is %s/path", unixScheme)
	}
	return path, nil
}

// listenUnix listens at path. A socket there to which nobody listens is what a dead process left. It takes two steps to listen, and two to
// replace what is dead: another process may see none half done, else it would take a socket for dead that is about to live.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	unlock := lockDir(ctx, filepath.Dir(path))
	defer unlock()
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeDead(ctx, path); err != nil {
			return nil, err
		}
		ln, err = new(net.ListenConfig).Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// removeDead removes a socket, unless somebody listens to it.
func removeDead(ctx context.Context, path string) error {
	nc, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("it is open already: a process listens at %s", path), nc.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a socket is in use: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Nearest is a network that reaches peers of the same host by Unix, and others by TCP, which are also those whose sockets this process does
// not see. Its addresses name both, and the host: "near:<host>,unix:/path,tcp:host:port".
type Nearest struct {
	Unix Unix
	TCP  TCP

	// Apart reaches other ports of Nearest by TCP though they are on this host, as if each had one of its own: for measurements.
	Apart bool
}

const nearScheme = "near:"

// Open listens at both.
func (n Nearest) Open(ctx context.Context, self Name, o Options) (Port, error) {
	if err := errors.Join(o.validate(), n.TCP.validate()); err != nil {
		return nil, err
	}
	near, err := n.Unix.carrier(ctx, self)
	if err != nil {
		return nil, err
	}
	far, err := n.TCP.carrier(ctx, self)
	if err != nil {
		return nil, errors.Join(err, near.close())
	}
	host, err := hostID()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("transport: %v: the host's identity: %w", self, err), near.close(), far.close())
	}
	isNear := func(nc net.Conn) bool { return nc.LocalAddr().Network() == "unix" }
	// at returns which network an address is of, and its part of the address.
	at := func(addr string) (*carrier, string, error) {
		list, ok := strings.CutPrefix(addr, nearScheme)
		if !ok {
			if strings.HasPrefix(addr, unixScheme) {
				return near, addr, near.check(addr)
			}
			return far, addr, far.check(addr)
		}
		of, rest, _ := strings.Cut(list, ",")
		comma := strings.LastIndex(rest, ",") // the path may have some too
		if comma < 0 {
			return nil, "", fmt.Errorf("want %s<host>,%s/path,%shost:port", nearScheme, unixScheme, tcpScheme)
		}
		path, port := rest[:comma], rest[comma+1:]
		if err := errors.Join(near.check(path), far.check(port)); err != nil {
			return nil, "", err
		}
		if of == host && !n.Apart {
			return near, path, nil
		}
		return far, port, nil
	}
	c := &carrier{
		addr:      nearScheme + strings.Join([]string{host, near.addr, far.addr}, ","),
		listeners: []net.Listener{near.listeners[0], far.listeners[0]},
		shared:    near.shared,
		life:      near.life,
		lifeless:  near.lifeless,
		attend: func(ctx context.Context, addr string) net.Conn {
			if c, part, err := at(addr); err == nil && c == near {
				return near.attend(ctx, part)
			}
			return nil
		},
		check: func(addr string) error { _, _, err := at(addr); return err },
		sum: func(nc net.Conn, addr string) bool {
			if isNear(nc) || n.TCP.Sum == SumBetweenHosts && strings.HasPrefix(addr, nearScheme+host+",") {
				return false // another namespace of this host is not another host
			}
			return far.sum(nc, addr)
		},
		admit: func(nc net.Conn) error {
			if isNear(nc) {
				return near.admit(nc)
			}
			return nil
		},
		dial: func(ctx context.Context, addr string) (net.Conn, error) {
			c, part, err := at(addr)
			if err != nil {
				return nil, err
			}
			nc, err := c.dial(ctx, part)
			if errors.Is(err, fs.ErrNotExist) && c == near && strings.HasPrefix(addr, nearScheme) {
				// Its owner closed it, and closes TCP's too; or it sees other files than this process, and is reached by TCP.
				return far.dial(ctx, addr[strings.LastIndex(addr, ",")+1:])
			}
			return nc, err
		},
	}
	if far.secure != nil {
		c.secure = func(nc net.Conn, server bool) (net.Conn, bool) {
			if isNear(nc) {
				return nc, false
			}
			return far.secure(nc, server)
		}
		c.verify = far.verify
	}
	return openPort(self, o, c), nil
}

// HostOf returns the host that an address of Nearest names: those of one user's ports on one host are equal. Empty: the address names none.
func HostOf(addr string) string {
	list, ok := strings.CutPrefix(addr, nearScheme)
	if !ok {
		return ""
	}
	host, _, _ := strings.Cut(list, ",")
	return host
}

// hostID tells whether two processes may share sockets: it differs between hosts, between two starts of one host, and between users. It does
// not tell whether they see the same files: a service may have a /tmp of its own, and so has a container that has its host's name.
func hostID() (string, error) {
	boot, err := bootID()
	if err != nil {
		return "", err
	}
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	var p []byte
	for _, s := range []string{boot, name, fmt.Sprint(os.Getuid())} {
		p = wire.AppendString(p, s)
	}
	hash := sha256.Sum256(p)
	return hex.EncodeToString(hash[:8]), nil
}
