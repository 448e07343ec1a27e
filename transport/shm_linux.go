package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sharedMemory is the sharedPath of a unix socket: two memory files without a name, of which each end made one and passed it over the
// socket. An end writes its own and maps the other's read-only, so that neither can disturb what the other believes.
//
// A file holds, little-endian:
//
//	0        u64: how many refs its owner has given back, ever
//	64       sharedReturns × u64: the refs, as a ring
//	64 Ki    what its owner placed
//
// A ref is an offset into the part that is placed in, in units of 64 bytes (lower 32 bits), and a number that tells the block from
// those that lay there before (upper 32 bits).
//
// The peer may be wrong, or hostile. So a file is taken only if it is sealed against shrinking, since reading beyond a file's end kills
// the process; every ref is checked; and who returns a ref that it never got is sent no more. Only one thing is not kept from the peer: it
// can change a payload while it is read in place.
type sharedMemory struct {
	own, peer []byte // whole files

	mu     sync.Mutex
	blocks sharedBlocks   // placed, and not given back
	seen   uint64         // of the peer's returns
	given  uint64         // of ours
	viewed map[uint64]int // refs of the peer's that are in use here, and their lengths
	placed bool           // place copies
	broken bool           // the peer returned what it never got
	closed bool
}

const (
	sharedSize    = 32 << 20 // to place in; a page takes memory once it was used
	sharedReturns = 4096     // blocks in use at most
	sharedStart   = 64 << 10
	sharedUnit    = 64
	// Placing goes by pieces of this size, which stay in the cache for the other end. A single copy of 1 MiB or more would go around the
	// cache: 4 MiB took 480 µs so and 275 µs by pieces.
	sharedPiece = 256 << 10

	sharedMagic = 0x6d687354 // "Tshm"
	sharedHello = 16         // magic u32, version u32, bytes to place in u64
)

// openShared exchanges memory with the other end, or says that this one wants none.
func openShared(c *net.UnixConn, wanted bool) (sharedPath, error) {
	size := 0
	if wanted {
		size = sharedSize
	}
	s, err := openSharedSize(c, size)
	if s == nil {
		return nil, err // not a nil *sharedMemory in an interface
	}
	return s, err
}

// openSharedSize is openShared with that many bytes to place in; 0: this end has none.
func openSharedSize(c *net.UnixConn, size int) (*sharedMemory, error) {
	s := &sharedMemory{viewed: map[uint64]int{}, blocks: sharedBlocks{size: uint32(size / sharedUnit)}}
	fd, why := -1, error(nil)
	if size > 0 {
		if fd, s.own, why = makeShared(sharedStart + size); why != nil {
			size = 0
		}
	}
	err := sendShared(c, fd, size)
	if fd >= 0 {
		_ = unix.Close(fd) // the mapping stays
	}
	if err == nil {
		var bad error
		s.peer, bad, err = receiveShared(c)
		why = errors.Join(why, bad)
	}
	// Both must have both, or neither uses any.
	if err == nil {
		err = s.agree(c)
	}
	if err != nil || s.own == nil || s.peer == nil {
		s.closed = true
		s.unmap()
		if err == nil {
			err = why
		}
		if err != nil {
			err = fmt.Errorf("transport: shared memory: %w", err)
		}
		return nil, err
	}
	return s, nil
}

// sendShared offers the other end a file with size bytes to place in; -1 and 0: this end has none.
func sendShared(c *net.UnixConn, fd, size int) error {
	var b [sharedHello]byte
	binary.LittleEndian.PutUint32(b[0:], sharedMagic)
	binary.LittleEndian.PutUint32(b[4:], 1)
	binary.LittleEndian.PutUint64(b[8:], uint64(size))
	return sendFile(c, b[:], fd)
}

// receiveShared maps what the other end sent, read-only; nil: it has nothing. bad says what is wrong with its file; err, that the connection
// cannot be read any further.
func receiveShared(c *net.UnixConn) (p []byte, bad, err error) {
	var b [sharedHello]byte
	fds, err := receiveFiles(c, b[:])
	defer closeFiles(fds) // the mapping stays
	if err != nil {
		return nil, nil, err
	}
	magic, version, size := binary.LittleEndian.Uint32(b[0:]), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	switch {
	case magic != sharedMagic || version != 1:
		return nil, nil, fmt.Errorf("the peer speaks something else: %#x, version %d", magic, version)
	case size == 0 && len(fds) == 0:
		return nil, nil, nil
	case size > 1<<30 || size%sharedUnit != 0:
		return nil, fmt.Errorf("the peer offers %d bytes; want at most 1 GiB, in units of %d", size, sharedUnit), nil
	case len(fds) != 1:
		return nil, fmt.Errorf("the peer passed %d files, want 1", len(fds)), nil
	}
	p, bad = mapShared(fds[0], sharedStart+int(size), unix.PROT_READ)
	return p, bad, nil
}

// agree tells the other end whether this one has both files, and forgets them unless the other has, too.
func (s *sharedMemory) agree(c *net.UnixConn) error {
	ok := [1]byte{}
	if s.own != nil && s.peer != nil {
		ok[0] = 1
	}
	if _, err := c.Write(ok[:]); err != nil {
		return err
	}
	mine := ok[0]
	if _, err := io.ReadFull(c, ok[:]); err != nil {
		return err
	}
	if mine&ok[0] != 1 {
		s.unmap()
	}
	return nil
}

func (s *sharedMemory) place(payload []byte) (uint64, bool) {
	s.mu.Lock()
	s.collect()
	if s.closed || s.broken {
		s.mu.Unlock()
		return 0, false
	}
	ref, ok := s.blocks.take(len(payload))
	s.placed = ok
	s.mu.Unlock()
	if !ok {
		return 0, false
	}
	for dst := s.own[sharedStart+sharedAt(ref):]; len(payload) > 0; {
		n := copy(dst, payload[:min(len(payload), sharedPiece)])
		dst, payload = dst[n:], payload[n:]
	}
	s.mu.Lock()
	s.placed = false
	s.unmapUnused()
	s.mu.Unlock()
	return ref, true
}

// collect takes back the blocks that the peer has returned.
func (s *sharedMemory) collect() {
	if s.closed || s.broken {
		return
	}
	head := sharedWord(s.peer, 0).Load()
	if head-s.seen > sharedReturns {
		s.broken = true
		return
	}
	for ; s.seen != head; s.seen++ {
		if !s.blocks.give(sharedReturn(s.peer, s.seen).Load()) {
			s.broken = true
			return
		}
	}
}

func (s *sharedMemory) view(ref uint64, n int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	at, room := sharedAt(ref), len(s.peer)-sharedStart
	if n <= 0 || at > room || n > room-at {
		return nil, fmt.Errorf("transport: shared memory: %d bytes at %d of %d", n, at, room)
	}
	if _, ok := s.viewed[ref]; ok {
		return nil, fmt.Errorf("transport: shared memory: %d bytes at %d are in use by a frame of before", n, at)
	}
	s.viewed[ref] = n
	at += sharedStart
	return s.peer[at : at+n : at+n], nil
}

func (s *sharedMemory) free(ref uint64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewed, ref)
	if s.closed {
		s.unmapUnused()
		return
	}
	if room := len(s.peer) - sharedStart; n <= 0 || sharedAt(ref) > room || n > room-sharedAt(ref) {
		return
	}
	sharedReturn(s.own, s.given).Store(ref)
	s.given++
	sharedWord(s.own, 0).Store(s.given)
}

// Close ends the use of the memory. It is unmapped when nobody reads or writes it any more.
func (s *sharedMemory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.unmapUnused()
	return nil
}

func (s *sharedMemory) unmapUnused() {
	if s.closed && !s.placed && len(s.viewed) == 0 {
		s.unmap()
	}
}

func (s *sharedMemory) unmap() {
	for _, p := range []*[]byte{&s.own, &s.peer} {
		if *p != nil {
			_ = unix.Munmap(*p) // fails only for what was not mapped
			*p = nil
		}
	}
}

func sharedAt(ref uint64) int { return int(uint32(ref)) * sharedUnit }

// sharedWord is the word at byte i, which is aligned.
func sharedWord(p []byte, i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&p[i])) }

func sharedReturn(p []byte, i uint64) *atomic.Uint64 {
	return sharedWord(p, 64+8*int(i%sharedReturns))
}
