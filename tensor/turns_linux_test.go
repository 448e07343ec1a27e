package tensor

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAmong: a step's thread is on its core while it computes, and afterwards on all that it had.
func TestAmong(t *testing.T) {
	c := NewCPU(1, false)
	defer c.Close()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cores := all.Count()
	c.Among(0, cores)
	if c.Turns() != nil {
		t.Errorf("%d processes take turns on %d cores", cores, cores)
	}
	if cores == 1 {
		t.Skip("not run here: there is one core")
	}
	// The first that changes cores is where the first cut is.
	c.Among(1, cores+1)
	d := dutyOf(1, cores+1, cores)
	turns := c.Turns()
	x := turns.Begin(turnsWorth)
	on := func(what string, core int) {
		t.Helper()
		var now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &now); err != nil {
			t.Fatal(err)
		}
		if want := turns.sys.(*affinity).each[core]; now != want {
			t.Errorf("%s: on %v, want %v", what, now, want)
		}
	}
	on("first", d.first)
	for x.moves > 0 { // computes
		x.Between()
	}
	on("then", d.rest)
	if took := x.End(); took < time.Duration((d.part-turnNear)*float64(turnsWorth)) {
		t.Errorf("computed for %v", took)
	}
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
		t.Errorf("afterwards on %v, was %v: %v", now, all, err)
	}

	// A short step's thread is on the process's own core, and stays until the CPU is closed. The processes' cores are as even as they can be.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.Among(1, cores+1) // which forgets how long steps are
	for what, leave := range map[string]func(){"among others": func() { c.Among(1, cores+1) }, "closed": c.Close} {
		turns = c.Turns()
		turns.Begin(turnsWorth - 1).End()
		on("after a short step", turns.home)
		leave()
		if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
			t.Errorf("%s: on %v, was %v: %v", what, now, all, err)
		}
	}
	of := make([]int, cores)
	for i := range 3 * cores {
		c.Among(i, 3*cores)
		of[c.Turns().home]++
	}
	if slices.Max(of) != 3 {
		t.Errorf("%d processes on %d cores: %v of each", 3*cores, cores, of)
	}
	two := NewCPU(2, false)
	defer two.Close()
	if two.Among(1, cores+1); two.Turns() != nil {
		t.Error("a process of two threads takes turns")
	}
}
