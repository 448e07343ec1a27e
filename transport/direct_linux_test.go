package transport

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// What calls of so many bytes at most are given, and take some of each, is all there is, in order.
func TestDirectGather(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 500 {
		d := &direct{apart: r.IntN(2) > 0}
		var want, got []byte
		for range 1 + r.IntN(5) {
			b := make([]byte, 1+r.IntN(1<<(1+r.IntN(17))))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			d.bufs, want = append(d.bufs, b), append(want, b...)
		}
		most := 1 << (8 + r.IntN(10))
		for d.gather(most) {
			var call []byte
			for _, v := range d.iov {
				call = append(call, unsafe.Slice(v.Base, v.Len)...)
			}
			if len(call) != d.asked || len(call) > most {
				t.Fatalf("a call of %d bytes, %d are asked for and at most %d allowed", len(call), d.asked, most)
			}
			n := 1 + r.IntN(len(call))
			if r.IntN(2) > 0 {
				n = len(call)
			}
			got = append(got, call[:n]...)
			d.advance(n)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, which are not the %d that were given", len(got), len(want))
		}
	}
}

// What a direct writes comes whole and in order, in calls of any number of buffers of any size, whether or not the runtime is told; and the
// caller's buffers stay as they are.
func TestDirectWrite(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, raw := range []bool{true, false} {
			seed := rand.Uint64()
			t.Logf("%s, raw %v: seed %d", network, raw, seed)
			r := rand.New(rand.NewPCG(seed, 1))
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			ln, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			to, err := net.Dial(network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			from, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			read := make(chan []byte)
			go func() {
				b, err := io.ReadAll(from)
				if err != nil {
					t.Error(err)
				}
				read <- b
			}()
			d := newDirect(to, func() bool { return raw })
			var want []byte
			for range 40 {
				bufs := make(net.Buffers, 1+r.IntN(5))
				var all []byte
				for i := range bufs {
					bufs[i] = make([]byte, 1+r.IntN(1<<(1+r.IntN(20))))
					for j := range bufs[i] {
						bufs[i][j] = byte(r.Uint32())
					}
					all = append(all, bufs[i]...)
				}
				want = append(want, all...)
				h := half{rest: append(net.Buffers(nil), bufs...)}
				for len(h.rest) > 0 {
					n, err := d.write(h.rest)
					if err != nil {
						t.Fatal(err)
					}
					if n == 0 {
						runtime.Gosched() // to him who reads
					}
					h.consume(n)
				}
				if !bytes.Equal(bytes.Join(bufs, nil), all) {
					t.Fatal("the caller's buffers have changed")
				}
			}
			for _, c := range []io.Closer{to, ln} {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if got := <-read; !bytes.Equal(got, want) {
				t.Errorf("%d bytes came, which are not the %d that were sent", len(got), len(want))
			}
			if err := from.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReadiness: several connections are asked about at once: whether one has something to read, or has ended.
func TestReadiness(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var all []*direct
	var conns directs
	var far [3]net.Conn
	for i := range far {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if far[i], err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		defer far[i].Close()
		d := newDirect(nc, func() bool { return true })
		all = append(all, d)
		conns.add(d)
	}
	var r readiness
	if r.any(conns.list()) {
		t.Error("there is something to read before anything was written")
	}
	if _, err := far[1].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if !r.any(conns.list()) {
		t.Error("what was written to one is not seen")
	}
	if n := all[0].look(make([]byte, 1)); n != 0 {
		t.Errorf("another has %d bytes", n)
	}
	if n := all[1].look(make([]byte, 8)); n != 1 {
		t.Errorf("it has %d bytes, want 1", n)
	}
	if r.any(conns.list()) {
		t.Error("there is something to read after all was read")
	}
	far[2].Close()
	for by := time.Now().Add(10 * time.Second); !r.any(conns.list()); runtime.Gosched() { // it arrives soon
		if time.Now().After(by) {
			t.Fatal("the end of a connection is not seen after 10 s")
		}
	}
	conns.remove(all[2])
	if n := len(conns.list()); n != 2 || r.any(conns.list()) {
		t.Errorf("%d connections are left, want 2, and neither has anything", n)
	}
}
