package etcd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

// Where etcd would end the process, its goroutine ends, and the server counts as failed.
func TestFatalIsFailure(t *testing.T) {
	for name, end := range map[string]func(l *zap.Logger){
		"fatal": func(l *zap.Logger) { l.Fatal("cannot go on", zap.Error(syscall.ENOSPC)) },
		"panic": func(l *zap.Logger) { l.Panic("cannot go on", zap.Error(syscall.ENOSPC)) },
	} {
		for _, discard := range []bool{false, true} {
			var b bytes.Buffer
			log := slog.New(slog.NewTextHandler(&b, nil))
			if discard {
				log = nil
			}
			f := newFailure()
			l := bridge(log, f).With(zap.String("member", "1"))
			done := make(chan bool)
			went := false
			go func() {
				defer close(done)
				end(l)
				went = true
			}()
			<-done
			select {
			case <-f.done:
			default:
				t.Fatalf("%s: no failure", name)
			}
			err := f.get()
			if went || !errors.Is(err, syscall.ENOSPC) || err.Error() != "cannot go on: "+syscall.ENOSPC.Error() {
				t.Errorf("%s: it goes on: %t, %v", name, went, err)
			}
			if advice := damaged("d", err); advice.Error() != err.Error() { // a full disk is no reason to throw its data away
				t.Errorf("%s: advises %v", name, advice)
			}
			if text := b.String(); !discard && (!strings.Contains(text, "level=ERROR") || !strings.Contains(text, "member=1")) {
				t.Errorf("%s: logged %q", name, text)
			}
		}
	}
}

func TestBridge(t *testing.T) {
	var b bytes.Buffer
	f := newFailure()
	l := bridge(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})), f)
	l.Info("a", zap.Int("n", 1))
	l.Warn("b")
	l.Error("c")
	f.closing.Store(true)
	l.Error("d")
	var got []string
	for line := range strings.Lines(b.String()) {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(line))
	}
	want := []string{`DEBUG msg="etcd: a" n=1`, `DEBUG msg="etcd: b"`, `WARN msg="etcd: c"`, `DEBUG msg="etcd: d"`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// Whatever bytes are wrong, check returns: no panic, no fault, no end of the process.
func TestCheckSurvives(t *testing.T) {
	dir := t.TempDir()
	s, err := Embed(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := s.Meta("")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	rev := int64(0)
	for range 30 {
		if rev, err = m.PutIf(ctx, "k", make([]byte, 3000), rev, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := check(dir); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	logs, _ := filepath.Glob(filepath.Join(dir, "member/wal/0*.wal"))
	found := 0
	for _, path := range []string{filepath.Join(dir, "member/snap/db"), logs[0]} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(whole, "\x00"))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			n := 1 + r.IntN(200)
			at := r.IntN(used)
			p := make([]byte, min(n, used-at))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			size := int64(len(whole))
			if r.IntN(4) == 0 {
				size = int64(r.IntN(used))
			}
			_, err := f.WriteAt(p, int64(at))
			if err := errors.Join(err, f.Truncate(size)); err != nil {
				t.Fatal(err)
			}
			if err := check(dir); err != nil {
				found++
				if !strings.Contains(err.Error(), "away to begin anew") {
					t.Errorf("no word of what to do: %v", err)
				}
			}
			_, err = f.WriteAt(whole[:used], 0)
			if err := errors.Join(err, f.Truncate(int64(len(whole)))); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
	}
	t.Logf("%d of 120 damages were found by reading; the others hit what is not in use", found)
	if err := check(dir); err != nil {
		t.Errorf("repaired: %v", err)
	}
}
