package cores

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Keep keeps this process, with all its threads, to n of the cores that it may run on, those from the from-th on, until ctx ends. While
// somebody else wants these cores too the process runs everywhere. Keep returns at once, and false where there are no such cores, or the
// system does not tell who waits for one.
func Keep(ctx context.Context, from, n int) bool {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return false
	}
	own, ok := part(&all, from, n)
	if _, told := waited(); !ok || !told {
		return false
	}
	move(&own)
	k := keeper{n: n, waited: waited, keep: func() { move(&own) }, free: func() { move(&all) }}
	go k.run(ctx)
	return true
}

// part is n cores of all, from the from-th on.
func part(all *unix.CPUSet, from, n int) (own unix.CPUSet, ok bool) {
	if from < 0 || n < 1 || n > all.Count()-from {
		return own, false
	}
	for core, k := 0, 0; k < from+n; core++ {
		if all.IsSet(core) {
			if k >= from {
				own.Set(core)
			}
			k++
		}
	}
	return own, true
}

// move has all threads run there alone.
func move(to *unix.CPUSet) {
	Threads(func(id int) { _ = unix.SchedSetaffinity(id, to) }) // it may have ended
}

// Threads calls f with each thread of this process, once. It looks again until it finds none that it has not seen: one that f came to late may
// have started another, which is as that one was.
func Threads(f func(id int)) {
	seen := map[int]bool{}
	for more := true; more; {
		more = false
		for _, id := range threads() {
			if !seen[id] {
				seen[id], more = true, true
				f(id)
			}
		}
	}
}

func threads() (ids []int) {
	list, _ := os.ReadDir("/proc/self/task")
	for _, d := range list {
		if id, err := strconv.Atoi(d.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// waited is how long the threads of this process could have run and had no core, all together and ever. false: the system does not tell.
func waited() (sum time.Duration, ok bool) {
	for _, id := range threads() {
		text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(id) + "/schedstat")
		f := bytes.Fields(text) // nanoseconds on a core, nanoseconds of waiting for one, slices of time
		if err != nil || len(f) != 3 {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(string(f[1]), 10, 64)
		sum, ok = sum+time.Duration(ns), ok || err == nil
	}
	return sum, ok
}
