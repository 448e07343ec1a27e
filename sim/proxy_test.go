package sim_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// echoServer answers each byte with itself.
func echoServer(t *testing.T, network, addr string) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
				if c, ok := c.(interface{ CloseWrite() error }); ok {
					_ = c.CloseWrite()
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// through opens a proxy to an echo server, and a connection through it.
func through(t *testing.T, text string) (*sim.Proxy, net.Conn) {
	t.Helper()
	x, err := sim.NewProxy(t.Context(), "127.0.0.1:0", echoServer(t, "tcp", "127.0.0.1:0"), 1, plan(t, text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", x.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return x, c
}

// pass sends bytes and wants them back; it returns how long that took.
func pass(t *testing.T, c net.Conn, size int) (came []byte, took time.Duration) {
	t.Helper()
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	begun := time.Now()
	go func() { _, _ = c.Write(sent) }()
	came = make([]byte, size)
	if _, err := io.ReadFull(c, came); err != nil {
		t.Fatal(err)
	}
	return came, time.Since(begun)
}

func TestProxy(t *testing.T) {
	clean := func(t *testing.T, c net.Conn, size int) time.Duration {
		t.Helper()
		came, took := pass(t, c, size)
		for i, b := range came {
			if b != byte(i*7) {
				t.Fatalf("byte %d was changed", i)
			}
		}
		return took
	}
	t.Run("none", func(t *testing.T) {
		_, c := through(t, "")
		clean(t, c, 1<<20)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d bytes, %v, want EOF", n, err)
		}
	})
	t.Run("unix", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("not run here: unix sockets")
		}
		dir, err := os.MkdirTemp("", "sim")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		server := echoServer(t, "unix", filepath.Join(dir, "s"))
		x, err := sim.NewProxy(t.Context(), "unix:"+filepath.Join(dir, "p"), "unix:"+server, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", x.Addr()[len("unix:"):])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clean(t, c, 1<<16)
	})
	t.Run("delay", func(t *testing.T) {
		x, c := through(t, "")
		if err := x.Run(t.Context(), plan(t, "0s delay arg 0.02")); err != nil {
			t.Fatal(err)
		}
		if took := clean(t, c, 100); took < 40*time.Millisecond {
			t.Errorf("a round trip took %v: want at least 40ms", took)
		}
	})
	t.Run("bandwidth and slices", func(t *testing.T) {
		x, c := through(t, "")
		if err := x.Run(t.Context(), plan(t, "0s bandwidth arg 1e6; 0s slice arg 10; 0s jitter arg 0.001")); err != nil {
			t.Fatal(err)
		}
		if took := clean(t, c, 50_000); took < 50*time.Millisecond {
			t.Errorf("50,000 bytes took %v: want at least 50ms", took)
		}
	})
	for _, hole := range []string{"partition 1", "mute 0", "deafen 0", "clog"} {
		t.Run(hole, func(t *testing.T) {
			x, c := through(t, "")
			clean(t, c, 10)
			if err := x.Run(t.Context(), plan(t, "0s "+hole)); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, _ = c.Write([]byte{0, 7, 14})
			if n, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("in a black hole: %d bytes, %v", n, err)
			}
			x.Heal()
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			p := make([]byte, 3)
			if _, err := io.ReadFull(c, p); err != nil || !slices.Equal(p, []byte{0, 7, 14}) {
				t.Errorf("after it: %v, %v", p, err)
			}
		})
	}
	t.Run("reset", func(t *testing.T) {
		x, c := through(t, "")
		clean(t, c, 10)
		if err := x.Run(t.Context(), plan(t, "0s reset")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after a reset: %v", err)
		}
	})
	t.Run("crash", func(t *testing.T) {
		x, c := through(t, "")
		clean(t, c, 10)
		if err := x.Run(t.Context(), plan(t, "0s crash 1")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the connection outlives the server's crash")
		}
		if answers(t, x) {
			t.Error("a server that is down answers")
		}
	})
	t.Run("corruption", func(t *testing.T) {
		x, c := through(t, "")
		clean(t, c, 10)
		if err := x.Run(t.Context(), plan(t, "0s corrupt 0 arg 1")); err != nil {
			t.Fatal(err)
		}
		came, _ := pass(t, c, 1000)
		changed := 0
		for i, b := range came {
			if b != byte(i*7) {
				changed++
			}
		}
		if changed == 0 {
			t.Error("nothing was changed")
		}
	})
	t.Run("a bad plan", func(t *testing.T) {
		if _, err := sim.NewProxy(t.Context(), "127.0.0.1:0", "127.0.0.1:1", 1, plan(t, "0s crash 2")); err == nil {
			t.Error("a plan for a third node was taken")
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		x, err := sim.NewProxy(t.Context(), "127.0.0.1:0", "127.0.0.1:1", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if answers(t, x) {
			t.Error("a proxy to nobody answers")
		}
	})
}

// answers says whether a connection through x can be read from: a reset comes at once, perhaps even before it is open.
func answers(t *testing.T, x *sim.Proxy) bool {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", x.Addr())
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err == nil
}
