package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketPair returns the two ends of a unix socket.
func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

// sharedPair returns the two ends of shared memory with size bytes to place in, each.
func sharedPair(t testing.TB, size int) (a, b *sharedMemory) {
	t.Helper()
	ca, cb := socketPair(t)
	var group sync.WaitGroup
	var errs [2]error
	group.Go(func() { a, errs[0] = openSharedSize(ca, size) })
	group.Go(func() { b, errs[1] = openSharedSize(cb, size) })
	group.Wait()
	if errs[0] != nil || errs[1] != nil || a == nil || b == nil {
		t.Fatalf("no shared memory: %v, %v", errs[0], errs[1])
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestSharedBlocks compares the allocator with one that keeps a flag for each unit.
func TestSharedBlocks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		b := sharedBlocks{size: uint32(1 + r.IntN(100))}
		taken := make([]bool, b.size)
		type block struct {
			ref   uint64
			at, n int
		}
		var blocks []block
		for range 300 {
			if r.IntN(5) < 2 && len(blocks) > 0 {
				i := r.IntN(len(blocks))
				x := blocks[i]
				if !b.give(x.ref) {
					t.Fatalf("block %#x cannot be given back", x.ref)
				}
				if b.give(x.ref) || b.give(x.ref+1<<32) || b.give(x.ref+1) && x.n == 1 {
					t.Fatalf("block %#x was given back twice", x.ref)
				}
				clear(taken[x.at : x.at+x.n])
				blocks = slices.Delete(blocks, i, i+1)
				continue
			}
			bytes := 1 + r.IntN(20*sharedUnit)
			units := (bytes + sharedUnit - 1) / sharedUnit
			want := -1
			for at := 0; at+units <= len(taken) && want < 0; at++ {
				if !slices.Contains(taken[at:at+units], true) {
					want = at
				}
			}
			ref, ok := b.take(bytes)
			if ok != (want >= 0) || ok && sharedAt(ref) != want*sharedUnit {
				t.Fatalf("%d units: found %v at %d, want %d; %v", units, ok, uint32(ref), want, b.taken)
			}
			if ok {
				for i := range units {
					taken[want+i] = true
				}
				blocks = append(blocks, block{ref, want, units})
			}
		}
	}
	b := sharedBlocks{size: 10}
	for _, n := range []int{0, -1, 10*sharedUnit + 1, 1 << 40} {
		if _, ok := b.take(n); ok {
			t.Errorf("took %d bytes of %d", n, 10*sharedUnit)
		}
	}
	if b.give(0) || b.give(1<<63) {
		t.Error("a block was given back that nobody took")
	}
}

func TestSharedMemory(t *testing.T) {
	a, b := sharedPair(t, 4<<20) // two blocks that are held leave room for a third, wherever they lie
	blocks := 3000
	if testing.Short() {
		blocks = 500
	}
	var group sync.WaitGroup
	for _, d := range [][2]*sharedMemory{{a, b}, {b, a}} {
		type sent struct {
			ref  uint64
			n    int
			seed byte
		}
		ch := make(chan sent, 1000)
		group.Go(func() { // the sender
			defer close(ch)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range blocks {
				n := 1 + r.IntN(300_000)
				p := bytes.Repeat([]byte{byte(i)}, n)
				p[0], p[n-1] = byte(i+1), byte(i+1)
				ref, ok := d[0].place(p)
				for !ok { // full: the other end frees in time
					time.Sleep(10 * time.Microsecond)
					ref, ok = d[0].place(p)
				}
				ch <- sent{ref, n, byte(i)}
			}
		})
		group.Go(func() { // the receiver, who frees in another order
			var held []sent
			for s := range ch {
				p, err := d[1].view(s.ref, s.n)
				if err != nil {
					t.Error(err)
					return
				}
				if len(p) != s.n || p[0] != s.seed+1 || s.n > 2 && p[s.n/2] != s.seed || p[s.n-1] != s.seed+1 {
					t.Errorf("block of %d bytes is damaged", s.n)
				}
				if held = append(held, s); len(held) > 2 {
					i := int(s.seed) % len(held)
					d[1].free(held[i].ref, held[i].n)
					held = slices.Delete(held, i, i+1)
				}
			}
			for _, s := range held {
				d[1].free(s.ref, s.n)
			}
		})
	}
	group.Wait()
	for _, s := range []*sharedMemory{a, b} {
		s.collect()
		if len(s.blocks.taken) != 0 || s.broken {
			t.Errorf("%d blocks are taken at the end, broken: %v", len(s.blocks.taken), s.broken)
		}
	}
}

// TestSharedBounds: what comes from the peer is not believed.
func TestSharedBounds(t *testing.T) {
	a, b := sharedPair(t, 1<<20)
	ref, ok := a.place([]byte("hello"))
	if !ok {
		t.Fatal("no room")
	}
	p, err := b.view(ref, 5)
	if err != nil || string(p) != "hello" {
		t.Fatalf("%q, error %v", p, err)
	}
	if cap(p) != 5 {
		t.Errorf("a view of 5 bytes can be extended to %d", cap(p))
	}
	for _, c := range []struct {
		ref  uint64
		n    int
		want string
	}{
		{ref, 5, "in use"},
		{0, 1<<20 + 1, "1048577 bytes at 0 of 1048576"},
		{1 << 14, 1, "1 bytes at 1048576 of 1048576"},
		{1<<14 - 1, 65, "65 bytes at 1048512"},
		{1<<32 - 1, 1, "bytes at"},
		{1<<64 - 1, 1<<63 - 1, "bytes at"},
		{5, 0, "0 bytes"},
		{5, -1, "-1 bytes"},
	} {
		if _, err := b.view(c.ref, c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("view of %d bytes at %#x: error %v, want %q", c.n, c.ref, err, c.want)
		}
		if c.want != "in use" {
			b.free(c.ref, c.n)
		}
	}
	if given := sharedWord(b.own, 0).Load(); given != 0 {
		t.Errorf("%d blocks were returned that lie nowhere", given)
	}
	b.free(ref, 5)
	if a.collect(); a.broken || len(a.blocks.taken) != 0 {
		t.Errorf("broken: %v, %d blocks taken", a.broken, len(a.blocks.taken))
	}
}

// TestSharedBadReturns: a peer that returns what it never got is sent nothing more; nothing else happens.
func TestSharedBadReturns(t *testing.T) {
	for name, spoil := range map[string]func(b *sharedMemory, ref uint64){
		"unknown":   func(b *sharedMemory, ref uint64) { b.free(ref+1<<32, 5) },
		"twice":     func(b *sharedMemory, ref uint64) { b.free(ref, 5); b.free(ref, 5) },
		"inside":    func(b *sharedMemory, ref uint64) { b.free(ref+1, 5) },
		"far ahead": func(b *sharedMemory, ref uint64) { sharedWord(b.own, 0).Store(1 << 60) },
		"backwards": func(b *sharedMemory, ref uint64) { sharedWord(b.own, 0).Store(1<<64 - 1) },
	} {
		a, b := sharedPair(t, 1<<20)
		ref, ok := a.place(make([]byte, 500))
		if !ok {
			t.Fatal("no room")
		}
		spoil(b, ref)
		if _, ok := a.place(make([]byte, 5)); ok {
			t.Errorf("%s: it is sent to as before", name)
		}
	}
}

// TestSharedFull: without room place says so, and with it works again.
func TestSharedFull(t *testing.T) {
	a, b := sharedPair(t, 1<<20)
	var refs []uint64
	for {
		ref, ok := a.place(make([]byte, 300_000))
		if !ok {
			break
		}
		refs = append(refs, ref)
	}
	if len(refs) != 3 {
		t.Fatalf("%d blocks of 300,000 bytes in 1 MiB", len(refs))
	}
	if _, ok := a.place(make([]byte, 100_000)); !ok {
		t.Error("no room for what fits behind")
	}
	b.free(refs[1], 300_000)
	if ref, ok := a.place(make([]byte, 200_000)); !ok || sharedAt(ref) != sharedAt(refs[1]) {
		t.Errorf("the room that was returned is not used: %v, %#x", ok, ref)
	}
}

// TestSharedClose: memory in use outlives Close; what comes after Close is refused.
func TestSharedClose(t *testing.T) {
	a, b := sharedPair(t, 1<<20)
	ref, ok := a.place([]byte("hello"))
	if !ok {
		t.Fatal("no room")
	}
	p, err := b.view(ref, 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if string(p) != "hello" { // a is unmapped by now, and its file lives on
		t.Errorf("found %q after Close", p)
	}
	if _, ok := a.place([]byte("x")); ok || a.own != nil || a.peer != nil {
		t.Error("memory is used after Close")
	}
	if _, err := b.view(ref+1, 5); err == nil {
		t.Error("a view after Close")
	}
	b.free(ref, 5)
	if b.own != nil || b.peer != nil {
		t.Error("the last free after Close does not unmap")
	}
	b.free(ref, 5)
}

// TestSharedGivenUp: that a connection ended amid the exchange, as that of a dial which gives way does, is no word about memory.
func TestSharedGivenUp(t *testing.T) {
	var log bytes.Buffer
	p := &port{carrier: &carrier{shared: true}, o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for _, both := range []bool{true, false} {
		a, b := socketPair(t)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if both {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if s := p.share(a, newPeer(p, Name{ID: "b"})); s != nil {
			t.Error("memory is shared")
		}
	}
	if log.Len() > 0 {
		t.Errorf("it logs %s", &log)
	}
}

// TestSharedHandshake: what another end may send instead of good memory. There is no shared memory then, at both ends.
func TestSharedHandshake(t *testing.T) {
	memory := func(t *testing.T, n int64, seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Ftruncate(fd, n); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); seals != 0 && err != nil {
			t.Fatal(err)
		}
		return fd
	}
	const size = 1 << 20
	hello := func(magic, version uint32, n uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, magic)
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, version), n)
	}
	good := hello(sharedMagic, 1, size)
	for _, c := range []struct {
		name  string
		hello []byte
		files func(t *testing.T) []int
		want  string
	}{
		{"no memory", hello(sharedMagic, 1, 0), nil, ""},
		{"not sealed", good, func(t *testing.T) []int { return []int{memory(t, sharedStart+size, 0)} }, "has the seals 0x0, want 0x7"},
		{"may grow", good, func(t *testing.T) []int { return []int{memory(t, sharedStart+size, unix.F_SEAL_SHRINK)} }, "has the seals 0x2"},
		{"too short", good, func(t *testing.T) []int { return []int{memory(t, size, sharedSeals)} }, "has 1048576 bytes, want 1114112"},
		{"a common file", good, func(t *testing.T) []int {
			f, err := os.Create(t.TempDir() + "/file")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return []int{int(f.Fd())}
		}, "is no memory"},
		{"no file", good, nil, "passed 0 files"},
		{"two files", good, func(t *testing.T) []int {
			fd := memory(t, sharedStart+size, sharedSeals)
			return []int{fd, fd}
		}, "passed 2 files"},
		{"huge", hello(sharedMagic, 1, 1<<62), func(t *testing.T) []int { return []int{memory(t, size, sharedSeals)} }, "offers 4611686018427387904 bytes"},
		{"another magic", hello(1, 1, size), nil, "speaks something else"},
		{"another version", hello(sharedMagic, 2, size), nil, "version 2"},
		{"cut off", good[:7], nil, "EOF"},
		{"nothing", nil, nil, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := socketPair(t)
			var rights []byte
			if c.files != nil {
				rights = unix.UnixRights(c.files(t)...)
			}
			if len(c.hello) > 0 {
				if _, _, err := b.WriteMsgUnix(c.hello, rights, nil); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.Write([]byte{1}); len(c.hello) == sharedHello && err != nil { // it would use its own
				t.Fatal(err)
			}
			if err := b.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			before := openFiles(t)
			path, err := openShared(a, true)
			if path != nil {
				t.Fatal("memory is shared")
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open after it, %d before", after, before)
			}
		})
	}
	// One end has none: the other hears so, and the socket is usable as before.
	a, b := socketPair(t)
	var group sync.WaitGroup
	group.Go(func() {
		if s, err := openSharedSize(a, 0); s != nil || err != nil {
			t.Errorf("%v, error %v", s, err)
		}
		a.Write([]byte("after"))
	})
	if s, err := openSharedSize(b, size); s != nil || err != nil {
		t.Errorf("%v, error %v", s, err)
	}
	var p [5]byte
	if _, err := io.ReadFull(b, p[:]); err != nil || string(p[:]) != "after" {
		t.Errorf("%q, error %v", p, err)
	}
	group.Wait()
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// FuzzSharedView: any ref and length, from a hostile peer, is refused or lies within the memory; so does what is freed.
func FuzzSharedView(f *testing.F) {
	f.Add(uint64(0), 1, uint64(0))
	f.Add(uint64(1<<64-1), 1<<62, uint64(1<<40))
	f.Fuzz(func(t *testing.T, ref uint64, n int, head uint64) {
		a, b := sharedPair(t, 1<<16)
		if p, err := b.view(ref, n); err == nil {
			if len(p) != n || n < 1 {
				t.Fatalf("%d bytes, want %d", len(p), n)
			}
			_ = p[0] + p[n-1] // ends the process where it lies outside
		}
		b.free(ref, n)
		b.free(ref, n)
		sharedWord(b.own, 0).Store(head)
		sharedReturn(b.own, head).Store(ref)
		a.place(make([]byte, 100))
		a.place(make([]byte, 1<<17))
	})
}
