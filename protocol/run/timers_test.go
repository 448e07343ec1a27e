package run_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/protocol/run"
)

func TestTimersRunOutInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rang []string
		l := start(t, script(func(now time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Start:
				return []protocol.Command{
					protocol.SetTimer{ID: 1, After: 30 * time.Millisecond},
					protocol.SetTimer{ID: 2, After: 10 * time.Millisecond},
					protocol.SetTimer{ID: 3, After: 20 * time.Millisecond},
					protocol.SetTimer{ID: 4, After: 5 * time.Millisecond},
					protocol.SetTimer{ID: 5, After: 10 * time.Millisecond},
					protocol.SetTimer{ID: 3, After: 40 * time.Millisecond}, // put off
					protocol.SetTimer{ID: 4, After: -1},                    // stopped
					protocol.SetTimer{ID: 9, After: -1},                    // never set
				}
			case protocol.Timer:
				rang = append(rang, fmt.Sprintf("%d at %v", in.ID, now))
				switch in.ID {
				case 1:
					return []protocol.Command{protocol.SetTimer{ID: 6, After: math.MaxInt64}} // beyond the end of time
				case 3:
					return []protocol.Command{protocol.Exit{}}
				}
			}
			return nil
		}), nil, run.Options{})
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
		want := []string{"2 at 10ms", "5 at 10ms", "1 at 30ms", "3 at 40ms"}
		if !slices.Equal(rang, want) {
			t.Errorf("timers ran out as %q, want %q", rang, want)
		}
	})
}

// TestTimersOfNow: timers that are set anew each time they run out, for at once, leave room for calls, and for the end.
func TestTimersOfNow(t *testing.T) {
	rings := 0
	l := start(t, script(func(_ time.Duration, in protocol.Event) []protocol.Command {
		switch in := in.(type) {
		case protocol.Start:
			return []protocol.Command{protocol.SetTimer{ID: 1}, protocol.SetTimer{ID: 2}}
		case protocol.Timer:
			if rings++; rings > 1e6 {
				return []protocol.Command{protocol.Exit{Err: errors.New("the timers let nothing else through")}}
			}
			return []protocol.Command{protocol.SetTimer{ID: in.ID}}
		case protocol.Call:
			return []protocol.Command{protocol.Answer{ID: in.ID, Result: rings}}
		}
		return exitOnStop(in)
	}), nil, run.Options{})
	if _, err := l.Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	stop(t, l)
}
