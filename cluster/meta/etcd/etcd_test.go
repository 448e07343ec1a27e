package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta/etcd"
	"github.com/trivium-ml/trivium/cluster/meta/metatest"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/protocol"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 1 << 20 // else each log has 64 MiB, which the tests of damage copy
	goleak.VerifyTestMain(m)
}

func embed(t *testing.T, dir string, o etcd.Options) *etcd.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := etcd.Embed(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *etcd.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// files are the certificates of a cluster with a coordinator on loopback.
func files(t *testing.T) (etcd.Files, *trust.Identity) {
	t.Helper()
	now := time.Now()
	authority, err := trust.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	self, err := authority.Identity(trust.Name{Role: trust.CoordinatorRole, ID: "0"}, []string{"127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	f, err := self.Save(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	node, err := authority.Identity(trust.Name{Role: "node", ID: "1"}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return etcd.Files{Cert: f.Cert, Key: f.Key, CA: f.CA}, node
}

// The kit passes inside the process, and from outside with the cluster's certificates. Nothing is printed.
func TestConformance(t *testing.T) {
	certs, node := files(t)
	stderr := captureStderr(t)
	began := time.Now()
	s := embed(t, t.TempDir(), etcd.Options{
		Listen: []string{"127.0.0.1:0"}, Files: certs, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	t.Logf("a new etcd was ready after %v", time.Since(began))
	if n := len(s.Endpoints()); n != 1 {
		t.Fatalf("%d endpoints", n)
	}
	var prefix atomic.Int64
	next := func() string { return fmt.Sprintf("job%d/", prefix.Add(1)) }
	o := metatest.Options{TTL: 2 * time.Second, Parallel: true}
	t.Run("store", func(t *testing.T) { // ends when both have
		t.Run("embedded", func(t *testing.T) {
			t.Parallel()
			metatest.Run(t, o, func(*testing.T) cluster.Meta { return s.Meta(next()) })
		})
		t.Run("over TLS", func(t *testing.T) {
			t.Parallel()
			metatest.Run(t, o, func(t *testing.T) cluster.Meta {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				m, closer, err := etcd.Open(ctx, s.Endpoints(), node.ClientConfig(trust.Name{}), next(), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := closer.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				return m
			})
		})
	})
	closed(t, s)
	closed(t, s)
	if text := stderr(); text != "" {
		t.Errorf("printed on stderr, or logged as more than detail:\n%s", text)
	}
}

// captureStderr turns what goes to os.Stderr into a file, and returns it when called.
func captureStderr(t *testing.T) func() string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = f
	return func() string {
		os.Stderr = was
		f.Close()
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func put(t *testing.T, m cluster.Meta, key, val string, rev int64) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	rev, err := m.PutIf(ctx, key, []byte(val), rev, 0)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// Started again, it has what it had, and revisions go on.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	s := embed(t, dir, etcd.Options{})
	if n := len(s.Endpoints()); n != 0 {
		t.Errorf("%d endpoints that nobody asked for", n)
	}
	rev := put(t, s.Meta("a/"), "k", "1", 0)
	closed(t, s)
	if _, err := s.Meta("a/").Get(t.Context(), "k"); !errors.Is(err, protocol.ErrUnavailable) {
		t.Errorf("a store whose server was closed: %v", err)
	}
	began := time.Now()
	s = embed(t, dir, etcd.Options{})
	defer closed(t, s)
	t.Logf("ready again after %v", time.Since(began))
	kv, err := s.Meta("a/").Get(t.Context(), "k")
	if err != nil || string(kv.Value) != "1" || kv.Rev != rev {
		t.Errorf("after a restart: %+v, %v", kv, err)
	}
	if next := put(t, s.Meta("a/"), "k", "2", rev); next <= rev {
		t.Errorf("revision %d after %d", next, rev)
	}
	if kv, err := s.Meta("b/").Get(t.Context(), "k"); err != nil || kv.Rev != 0 {
		t.Errorf("under another prefix: %+v, %v", kv, err)
	}
}

func TestOptionsRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	certs, _ := files(t)
	for _, c := range []struct {
		name string
		o    etcd.Options
		want string
	}{
		{"port taken", etcd.Options{Listen: []string{taken.Addr().String()}}, "if another coordinator or etcd runs there"},
		{"open to all", etcd.Options{Listen: []string{"0.0.0.0:0"}}, "without certificates"},
		{"half the files", etcd.Options{Files: etcd.Files{Cert: certs.Cert}}, "TLS needs"},
		{"no port", etcd.Options{Listen: []string{"127.0.0.1"}}, "want host:port"},
		{"no such file", etcd.Options{Listen: []string{"127.0.0.1:0"}, Files: etcd.Files{Cert: "x", Key: "y", CA: "z"}}, "no such file"},
	} {
		s, err := etcd.Embed(t.Context(), t.TempDir(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "etcd: start in ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if err == nil {
			s.Close()
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := etcd.Embed(over, t.TempDir(), etcd.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was cancelled: %v", err)
	}
	// In the midst of it, what was started ends with it.
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if s, err := etcd.Embed(soon, t.TempDir(), etcd.Options{Listen: []string{"127.0.0.1:0"}}); err == nil {
		s.Close() // a fast machine
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a start that was cancelled in the midst: %v", err)
	}
}

func TestOpenRefused(t *testing.T) {
	certs, node := files(t)
	_, stranger := files(t)
	s := embed(t, t.TempDir(), etcd.Options{Listen: []string{"127.0.0.1:0"}, Files: certs})
	defer closed(t, s)
	for _, c := range []struct {
		name      string
		endpoints []string
		id        *trust.Identity
	}{
		{"another cluster's certificate", s.Endpoints(), stranger},
		{"without TLS", s.Endpoints(), nil},
		{"nobody there", []string{"127.0.0.1:1"}, node},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		m, closer, err := func() (cluster.Meta, interface{ Close() error }, error) {
			if c.id == nil {
				return etcd.Open(ctx, c.endpoints, nil, "", nil)
			}
			return etcd.Open(ctx, c.endpoints, c.id.ClientConfig(trust.Name{}), "", nil)
		}()
		cancel()
		if !errors.Is(err, protocol.ErrUnavailable) || !strings.Contains(err.Error(), c.endpoints[0]) {
			t.Errorf("%s: %v, error %v", c.name, m, err)
		}
		if err == nil {
			closer.Close()
		}
	}
	if _, _, err := etcd.Open(t.Context(), nil, nil, "", nil); err == nil {
		t.Error("no endpoints are enough")
	}
}

// A directory with what etcd has left after a hundred writes, to be damaged.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := embed(t, dir, etcd.Options{})
	rev := int64(0)
	for i := range 100 {
		rev = put(t, s.Meta(""), "k", fmt.Sprintf("value %d %s", i, strings.Repeat("x", 200)), rev)
	}
	closed(t, s)
	return dir
}

// copyDir copies a directory, holes in its files left out.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		size := len(b)
		b = bytes.TrimRight(b, "\x00")
		if err := os.WriteFile(filepath.Join(to, rel), b, 0o600); err != nil {
			return err
		}
		return os.Truncate(filepath.Join(to, rel), int64(size))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// change rewrites a file that the pattern matches.
func change(t *testing.T, dir, pattern string, f func(b []byte) []byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	b, err := os.ReadFile(paths[0])
	if err == nil {
		err = os.WriteFile(paths[0], f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Damaged data: an error that names the file and says what to do; the process goes on; nothing is printed.
func TestDamaged(t *testing.T) {
	whole := written(t)
	used := func(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }
	const logFile, db = "member/wal/0*.wal", "member/snap/db"
	stderr := captureStderr(t)
	for _, c := range []struct {
		name string
		do   func(dir string)
		want string // "": it starts all the same
	}{
		{"whole", func(string) {}, ""},
		{"log: last entry torn", func(dir string) {
			change(t, dir, logFile, func(b []byte) []byte { clear(b[used(b)-3:]); return b })
		}, "?"},
		{"log: cut to half", func(dir string) {
			change(t, dir, logFile, func(b []byte) []byte { return b[:used(b)/2] })
		}, "wal"},
		{"log: cut to nothing", func(dir string) { change(t, dir, logFile, func(b []byte) []byte { return nil }) }, "wal"},
		{"log: a byte changed", func(dir string) {
			change(t, dir, logFile, func(b []byte) []byte { b[used(b)/2] ^= 0x10; return b })
		}, "wal"},
		{"log: garbage", func(dir string) {
			change(t, dir, logFile, func(b []byte) []byte { return bytes.Repeat([]byte("garbage!"), 1000) })
		}, "wal"},
		{"log: zeros", func(dir string) { change(t, dir, logFile, func(b []byte) []byte { clear(b); return b }) }, "wal"},
		{"log: gone", func(dir string) { os.RemoveAll(filepath.Join(dir, "member/wal")) }, "no log"},
		{"log: empty directory", func(dir string) {
			os.RemoveAll(filepath.Join(dir, "member/wal"))
			os.Mkdir(filepath.Join(dir, "member/wal"), 0o700)
		}, "wal"},
		{"database: garbage", func(dir string) {
			change(t, dir, db, func(b []byte) []byte { return bytes.Repeat([]byte("garbage!"), 10000) })
		}, "snap/db"},
		{"database: cut to half", func(dir string) {
			change(t, dir, db, func(b []byte) []byte { return b[:used(b)/2] })
		}, "snap/db"},
		{"database: cut to a page", func(dir string) { change(t, dir, db, func(b []byte) []byte { return b[:4096] }) }, "snap/db"},
		{"database: empty", func(dir string) { change(t, dir, db, func(b []byte) []byte { return nil }) }, "snap/db"},
		{"database: pages overwritten", func(dir string) {
			change(t, dir, db, func(b []byte) []byte {
				for i := range b[2*4096 : used(b)] {
					b[2*4096+i] = 0xa5
				}
				return b
			})
		}, "snap/db"},
		{"database: gone", func(dir string) { os.Remove(filepath.Join(dir, db)) }, ""},
	} {
		dir := copyDir(t, whole)
		c.do(dir)
		began := time.Now()
		s, err := etcd.Embed(t.Context(), dir, etcd.Options{})
		took := time.Since(began)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			kv, getErr := s.Meta("").Get(ctx, "k")
			cancel()
			if getErr != nil || c.want == "" && !strings.HasPrefix(string(kv.Value), "value 99") {
				t.Errorf("%s: it starts, and has %.20q, %v", c.name, kv.Value, getErr)
			}
			if s.Err() != nil {
				t.Errorf("%s: it starts, and fails: %v", c.name, s.Err())
			}
			s.Close()
		}
		t.Logf("%s: %v after %v", c.name, err, took.Round(time.Millisecond))
		switch {
		case c.want == "?": // what the damage hits differs: only that the process goes on
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), filepath.FromSlash(c.want)) ||
			!strings.Contains(err.Error(), "move "+filepath.Join(dir, "member")+" away")):
			t.Errorf("%s: error %v, want %q and what to do", c.name, err, c.want)
		}
	}
	if text := stderr(); text != "" {
		t.Errorf("printed on stderr:\n%s", text)
	}
}

// Two coordinators with one directory: the second is told.
func TestDirectoryInUse(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("not run here: files are locked otherwise on Windows")
	}
	dir := t.TempDir()
	s := embed(t, dir, etcd.Options{})
	defer closed(t, s)
	if _, err := etcd.Embed(t.Context(), dir, etcd.Options{}); err == nil || !strings.Contains(err.Error(), "another coordinator runs") {
		t.Errorf("a second server in the directory: %v", err)
	}
	put(t, s.Meta(""), "k", "1", 0)
}
