package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Segment is memory that several processes of one host read and write. One creates it and tells the others its address; it goes when
// the last of them has closed it or died, also if that is not its creator. Nobody can resize it.
//
//	g, err := transport.CreateSegment(ctx, dir, 16<<20)
//	... g.Addr() goes to the others in a frame ...
//	g, err := transport.OpenSegment(ctx, addr, 16<<20)
//	g.Bytes()
//
// What its users write is seen by the others as memory of one process is by its threads: words that say who may read what must be
// atomic. All users must trust each other with its content.
type Segment struct {
	addr string
	mem  []byte
	ln   *net.UnixListener // the creator's
	fd   int               // the creator's, for those who ask
	wg   sync.WaitGroup
	once sync.Once
}

const maxSegment = 1 << 40

// CreateSegment makes a segment of size bytes, all 0, and hands it until Close to processes of the same user that ask at a socket in
// dir. Memory is taken by what is written.
func CreateSegment(ctx context.Context, dir string, size int) (*Segment, error) {
	if size < 1 || size > maxSegment {
		return nil, fmt.Errorf("transport: segment: want 1 to %d bytes, found %d", maxSegment, size)
	}
	fd, mem, err := makeShared(size)
	if err != nil {
		return nil, fmt.Errorf("transport: segment: %w", err)
	}
	g := &Segment{mem: mem, fd: fd}
	var path string
	for i := 0; ; i++ { // a name that no other segment of this process or a dead one has
		path = filepath.Join(dir, fmt.Sprintf("%d-%d.seg", os.Getpid(), i))
		var ln net.Listener
		if ln, err = new(net.ListenConfig).Listen(ctx, "unix", path); err == nil {
			g.ln = ln.(*net.UnixListener)
			break
		}
		if !errors.Is(err, unix.EADDRINUSE) || i == 10_000 {
			return nil, errors.Join(fmt.Errorf("transport: segment: %w", err), g.unmap(), unix.Close(fd))
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("transport: segment: %w", err), g.ln.Close(), g.unmap(), unix.Close(fd))
	}
	g.addr = path
	g.wg.Go(g.serve)
	return g, nil
}

// serve hands the file to whoever asks.
func (g *Segment) serve() {
	for {
		c, err := g.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil { // out of file descriptors, for one: others may close theirs
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if admitUser(c) == nil {
			var size [8]byte
			binary.LittleEndian.PutUint64(size[:], uint64(len(g.mem)))
			_ = c.SetDeadline(time.Now().Add(time.Second)) // 8 bytes fit any socket
			_ = sendFile(c, size[:], g.fd)                 // who does not get them says so
		}
		_ = c.Close() // it has what it came for
	}
}

// OpenSegment maps the segment at an address that CreateSegment gave, which must have size bytes.
func OpenSegment(ctx context.Context, addr string, size int) (*Segment, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "unix", addr)
	if err != nil {
		return nil, fmt.Errorf("transport: segment: %w", refusedErr(err))
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(longAgo) }) // fails where it is closed
	defer stop()
	c := nc.(*net.UnixConn)
	if err := admitUser(c); err != nil {
		return nil, fmt.Errorf("transport: segment at %s: %w", addr, err)
	}
	var b [8]byte
	fds, err := receiveFiles(c, b[:])
	defer closeFiles(fds) // the mapping stays
	switch found := binary.LittleEndian.Uint64(b[:]); {
	case err != nil:
		return nil, fmt.Errorf("transport: segment at %s: its creator does not hand it over: %w", addr, errors.Join(err, ctx.Err()))
	case found != uint64(size):
		return nil, fmt.Errorf("transport: segment at %s: want %d bytes, it has %d", addr, size, found)
	case len(fds) != 1:
		return nil, fmt.Errorf("transport: segment at %s: %d files came with it, want 1", addr, len(fds))
	}
	mem, err := mapShared(fds[0], size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, fmt.Errorf("transport: segment at %s: %w", addr, err)
	}
	return &Segment{addr: addr, mem: mem, fd: -1}, nil
}

// Addr is what others pass to OpenSegment.
func (g *Segment) Addr() string { return g.addr }

// Bytes are the segment's, until Close: who touches them afterwards ends the process.
func (g *Segment) Bytes() []byte { return g.mem }

// Close ends this process's use of the segment, and where it created it, hands it to nobody any more.
func (g *Segment) Close() error {
	var err error
	g.once.Do(func() {
		if g.ln != nil {
			err = g.ln.Close()
			g.wg.Wait()
			err = errors.Join(err, unix.Close(g.fd))
		}
		err = errors.Join(err, g.unmap())
	})
	return err
}

func (g *Segment) unmap() error {
	mem := g.mem
	g.mem = nil
	return unix.Munmap(mem)
}
