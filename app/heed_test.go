package app

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestInterruptedReading: who interrupts a command that reads data has made no mistake, and the data has none.
func TestInterruptedReading(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "t.csv", "label,x\n0,1\n1,2\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, source := range []string{"digits", "t.csv"} {
		if got := runWith(ctx, t, dir, Options{}, "data", source); got.code != Interrupted || got.out != "" || got.err != "trivium: interrupted\n" {
			t.Errorf("%s: exits with %d: %s%s", source, got.code, got.out, got.err)
		}
	}
}

// TestHeed: a signal that comes twice at once, as timeout(1) sends it, lets a training save what it has; one that somebody sends again ends it, and a hangup
// is no such one.
func TestHeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		cancelled, ended := 0, 0
		go heed(signals, func() { cancelled++ }, func() { ended++ })
		for i, c := range []struct {
			after            time.Duration
			signal           os.Signal
			cancelled, ended int
		}{
			{0, os.Interrupt, 1, 0},
			{0, os.Interrupt, 1, 0},
			{sameWish - time.Millisecond, os.Interrupt, 1, 0},
			{time.Millisecond, syscall.SIGHUP, 1, 0},
			{0, os.Interrupt, 1, 1},
		} {
			time.Sleep(c.after)
			signals <- c.signal
			synctest.Wait()
			if cancelled != c.cancelled || ended != c.ended {
				t.Errorf("signal %d, %v after the one before: asked to stop %d times, want %d; ended %d times, want %d", i+1, c.after, cancelled, c.cancelled, ended, c.ended)
			}
		}
	})
}
