package app

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeed: a signal that comes twice at once, as timeout(1) sends it, lets a training save what it has; one that somebody sends again ends it.
func TestHeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		cancelled, ended := 0, 0
		go heed(signals, func() { cancelled++ }, func() { ended++ })
		for i, c := range []struct {
			after            time.Duration
			cancelled, ended int
		}{{0, 1, 0}, {0, 1, 0}, {sameWish - time.Millisecond, 1, 0}, {time.Millisecond, 1, 1}} {
			time.Sleep(c.after)
			signals <- os.Interrupt
			synctest.Wait()
			if cancelled != c.cancelled || ended != c.ended {
				t.Errorf("signal %d, %v after the one before: asked to stop %d times, want %d; ended %d times, want %d", i+1, c.after, cancelled, c.cancelled, ended, c.ended)
			}
		}
	})
}
