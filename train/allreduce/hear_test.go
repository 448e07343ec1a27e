package allreduce

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/collective"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestLateInTurn: of workers that are waited for one after the other, each has the time that it took itself.
func TestLateInTurn(t *testing.T) {
	var said []string
	env := traintest.Env(t, 1, false)
	env.Watch.Notice = func(_ observe.Level, text string) { said = append(said, text) }
	run, err := train.Open(t.Context(), env, traintest.Job(), "allreduce")
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	type report struct {
		at    int // half seconds from the operation's start
		rank  int
		begun bool
	}
	synctest.Test(t, func(t *testing.T) {
		l := &late{run: run}
		for i, c := range []struct {
			reports []report
			end     int // in half seconds too
			want    []string
		}{
			{ // the second has begun long before, and is waited for at the end alone
				[]report{{2, 2, false}, {120, 1, true}},
				121,
				[]string{"waiting for worker 2 for 1s now: it has not begun the sum"},
			},
			{ // so it is named when it takes longer than that half second, and the other only if it takes twice that minute
				[]report{{2, 1, false}, {10, 2, true}},
				200,
				[]string{"waiting for worker 1 for 1s now: it has not begun the sum"},
			},
			{ // it took five seconds
				[]report{{2, 1, true}},
				30,
				[]string{"waiting for worker 1 for 10s now: the sum, in its gather"},
			},
			{
				[]report{{2, 1, false}, {10, 3, true}},
				30,
				[]string{"waiting for worker 3 for 1s now: the sum, in its gather"},
			},
			{[]report{{2, 3, false}, {4, 0, true}, {6, 0, true}}, 30, nil}, // itself: it waits for nobody
		} {
			said = nil
			start := time.Now()
			until := func(at int) { time.Sleep(time.Until(start.Add(time.Duration(at) * time.Second / 2))) }
			for _, r := range c.reports {
				until(r.at)
				w := collective.Wait{Op: "the sum", Phase: "gather", Rank: r.rank, NotStarted: !r.begun, For: time.Since(start)}
				l.hear(w)
				l.hear(w) // of another operation
			}
			until(c.end)
			l.end()
			time.Sleep(time.Hour)
			if !slices.Equal(said, c.want) {
				t.Errorf("update %d: said %q, want %q", i, said, c.want)
			}
		}
	})
}
