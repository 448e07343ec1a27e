package fleet

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name    string
		need    Need
		free    []int
		nodes   []int
		threads int
	}{
		{"one on the roomiest", Need{Workers: 1, Threads: 2}, []int{2, 4, 3}, []int{1}, 2},
		{"spread", Need{Workers: 4, Threads: 1}, []int{4, 4}, []int{0, 0, 1, 1}, 1},
		{"uneven machines", Need{Workers: 3, Threads: 2}, []int{2, 4}, []int{1, 1, 0}, 2},
		{"no room", Need{Workers: 3, Threads: 2}, []int{3, 3}, nil, 2},
		{"all cores, shared out", Need{Workers: 2, Threads: 0}, []int{4, 4}, []int{0, 1}, 4},
		{"all cores of uneven machines", Need{Workers: 3, Threads: 0}, []int{5, 2}, []int{0, 0, 1}, 2},
		{"all cores of machines that lend far too many", Need{Workers: 3, Threads: 0}, []int{1 << 40, 1 << 40}, []int{0, 0, 1}, 1 << 39},
		{"one on each machine", Need{Threads: 1, Each: true}, []int{4, 1, 2}, []int{0, 2, 1}, 1},
		{"two machines of three", Need{Workers: 2, Threads: 1, Each: true}, []int{4, 1, 2}, []int{0, 2}, 1},
		{"more machines than there are", Need{Workers: 3, Threads: 1, Each: true}, []int{4, 4}, nil, 1},
		{"no machine", Need{Workers: 1, Threads: 0}, nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rooms []room
			for i, f := range c.free {
				rooms = append(rooms, room{string(rune('a' + i)), f})
			}
			nodes, threads := place(c.need, rooms)
			if !slices.Equal(nodes, c.nodes) || nodes != nil && threads != c.threads {
				t.Errorf("workers on %v with %d cores each, want %v with %d", nodes, threads, c.nodes, c.threads)
			}
		})
	}
}

// TestFirstComeFirstServed: a small job does not overtake a large one, and each that waits says why.
func TestFirstComeFirstServed(t *testing.T) {
	now := time.Unix(0, 0)
	var q jobQueue
	rooms := []room{{"a", 2}, {"b", 2}}
	first := q.Add(Spec{Need: Need{Workers: 2, Threads: 1}}, now)
	large := q.Add(Spec{Need: Need{Workers: 4, Threads: 1}}, now)
	small := q.Add(Spec{Need: Need{Workers: 1, Threads: 1}}, now)
	if got := q.Start(rooms, now); got != first || first.State != Running || !slices.Equal(first.Nodes, []string{"a", "b"}) {
		t.Fatalf("started %+v", got)
	}
	if got := q.Start(rooms, now); got != nil {
		t.Fatalf("started %s beside the first", got.ID)
	}
	if !strings.Contains(large.Why, "other jobs use") || !strings.Contains(small.Why, "waits behind "+large.ID) {
		t.Errorf("they wait because %q and %q", large.Why, small.Why)
	}
	q.End(first, Done, 0, "", now)
	if got := q.Start(rooms, now); got != large {
		t.Fatalf("started %+v, want the large one", got)
	}
	q.End(large, Failed, 1, "it broke", now)
	if got := q.Start(rooms, now); got != small || small.Why != "" {
		t.Fatalf("started %+v, want the small one", got)
	}
}

// TestPassedOver: a job that the machines could not run even if they were idle holds up nobody, and is in line again once they could.
func TestPassedOver(t *testing.T) {
	now := time.Unix(0, 0)
	var q jobQueue
	rooms := []room{{"a", 2}, {"b", 2}}
	large := q.Add(Spec{Need: Need{Workers: 1, Threads: 3}}, now)
	many := q.Add(Spec{Need: Need{Workers: 3, Threads: 1, Each: true}}, now)
	small := q.Add(Spec{Need: Need{Workers: 4, Threads: 1}}, now)
	if got := q.Start(nil, now); got != nil || !strings.HasPrefix(small.Why, "no machine is lent yet") {
		t.Errorf("without machines it waits because %q", small.Why)
	}
	if got := q.Start(rooms, now); got != small {
		t.Fatalf("started %+v, want the small one", got)
	}
	for _, c := range []struct {
		job  *Job
		want string
	}{{large, "3 cores, and the largest machine lends 2"}, {many, "3 machines are wanted, and 2 lent"}} {
		if got := q.Start(rooms, now); got != nil || !strings.Contains(c.job.Why, c.want) || !strings.Contains(c.job.Why, "other jobs go first") {
			t.Errorf("it waits because %q, want %q", c.job.Why, c.want)
		}
	}
	later := q.Add(Spec{Need: Need{Workers: 1, Threads: 2}}, now)
	rooms = append(rooms, room{"c", 2})
	if got := q.Start(rooms, now); got != nil || !strings.Contains(many.Why, "other jobs use") || later.Why != "waits behind "+many.ID {
		t.Errorf("with a third machine they wait because %q and %q", many.Why, later.Why)
	}
	q.End(small, Done, 0, "", now)
	if got := q.Start(rooms, now); got != many {
		t.Errorf("started %+v, want the one for three machines", got)
	}
}

// TestNothingIsLentTwice starts and ends jobs at random.
func TestNothingIsLentTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q jobQueue
		now := time.Unix(0, 0)
		var rooms []room
		for i := range rapid.IntRange(0, 4).Draw(t, "machines") {
			rooms = append(rooms, room{string(rune('a' + i)), rapid.IntRange(1, 8).Draw(t, "cores")})
		}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			if rapid.Bool().Draw(t, "submit") {
				q.Add(Spec{Need: Need{Workers: rapid.IntRange(1, 6).Draw(t, "workers"), Threads: rapid.IntRange(0, 4).Draw(t, "threads")}}, now)
			} else if i := slices.IndexFunc(q.jobs, func(j *Job) bool { return j.State == Running }); i >= 0 {
				q.End(q.jobs[i], Done, 0, "", now)
			}
			for q.Start(rooms, now) != nil {
				_ = "until none can start"
			}
			for _, r := range q.left(rooms) {
				if r.free < 0 {
					t.Fatalf("machine %s lends %d cores too many", r.id, -r.free)
				}
			}
			waiting := false
			for _, j := range q.jobs {
				waiting = waiting || j.State == Queued && never(j.Need, rooms) == ""
				if j.State == Queued && j.Why == "" {
					t.Fatalf("%s waits, and does not say why", j.ID)
				}
				if waiting && j.State == Running {
					t.Fatalf("%s overtook one that waits", j.ID)
				}
				if j.State == Running && len(j.Nodes) != j.Need.Workers {
					t.Fatalf("%s has %d machines for %d workers", j.ID, len(j.Nodes), j.Need.Workers)
				}
			}
		}
	})
}

func TestForget(t *testing.T) {
	var q jobQueue
	now := time.Unix(0, 0)
	waits := q.Add(Spec{Need: Need{Workers: 1, Threads: 1}}, now)
	for range keepEnded + 3 {
		q.End(q.Add(Spec{}, now), Done, 0, "", now)
	}
	if gone := q.Forget(); !slices.Equal(gone, []string{"job-2", "job-3", "job-4"}) {
		t.Errorf("forgot %v", gone)
	}
	if q.Find(waits.ID) == nil || len(q.Jobs()) != keepEnded+1 {
		t.Errorf("%d jobs are left", len(q.Jobs()))
	}
}

// TestForgetsWhatEndedFirst: a job that came first and ends last is the newest of those that have ended.
func TestForgetsWhatEndedFirst(t *testing.T) {
	var q jobQueue
	now := time.Unix(0, 0)
	long := q.Add(Spec{}, now)
	for i := range keepEnded {
		q.End(q.Add(Spec{}, now), Done, 0, "", now.Add(time.Duration(i)*time.Minute))
	}
	q.End(long, Done, 0, "", now.Add(keepEnded*time.Minute))
	if gone := q.Forget(); !slices.Equal(gone, []string{"job-2"}) || q.Find(long.ID) == nil {
		t.Errorf("forgot %v, want the one that ended first", gone)
	}
}

// TestProgressOfAJob: a status has how far a job says it is, as long as it runs.
func TestProgressOfAJob(t *testing.T) {
	said, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, t.TempDir(), func(_ context.Context, w *Work) Outcome {
		w.Reached(Progress{Step: 1, Steps: 4, Left: time.Minute})
		w.Reached(Progress{Step: 3, Steps: 4, Left: -1})
		said <- struct{}{}
		<-goOn
		return Outcome{}
	})
	client := r.client()
	reached := func() *Progress {
		t.Helper()
		st, err := client.Status(t.Context())
		if err != nil || len(st.Jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(st.Jobs), err)
		}
		return st.Jobs[0].Progress
	}
	if _, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1, Threads: 1}, Build: "this"}); err != nil {
		t.Fatal(err)
	}
	r.lend("a", offer(1), nil)
	<-said
	if p := reached(); p == nil || *p != (Progress{Step: 3, Steps: 4, Left: -1}) {
		t.Errorf("it is at %+v, want what it said last", p)
	}
	close(goOn)
	r.until(client, "job-1", Done)
	if p := reached(); p != nil {
		t.Errorf("a job that is done is at %+v", *p)
	}
}

// TestRunOfAJob: a job has its run's name from its submitter, or from what runs it, from then on and after a restart.
func TestRunOfAJob(t *testing.T) {
	dir := t.TempDir()
	called, goOn := make(chan struct{}, 1), make(chan struct{})
	r := newRig(t, dir, func(_ context.Context, w *Work) Outcome {
		if w.Job.Run == "" {
			w.Called("made here")
		}
		called <- struct{}{}
		<-goOn
		return Outcome{}
	})
	client := r.client()
	runOf := func(id string) string {
		t.Helper()
		j, err := client.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return j.Run
	}
	for _, given := range []string{"mine", ""} {
		j, err := client.Submit(t.Context(), Spec{Run: given, Need: Need{Workers: 1, Threads: 1}, Build: "this"})
		if err != nil || j.Run != given {
			t.Fatalf("its run is called %q as it waits, want %q: %v", j.Run, given, err)
		}
	}
	r.lend("a", offer(2), nil)
	<-called
	<-called
	if a, b := runOf("job-1"), runOf("job-2"); a != "mine" || b != "made here" {
		t.Errorf("the runs are called %q and %q", a, b)
	}
	close(goOn)
	r.until(client, "job-1", Done)
	r.until(client, "job-2", Done)
	r.stop()
	r = newRig(t, dir, nil)
	client = r.client()
	if a, b := runOf("job-1"), runOf("job-2"); a != "mine" || b != "made here" {
		t.Errorf("after a restart the runs are called %q and %q", a, b)
	}
}
