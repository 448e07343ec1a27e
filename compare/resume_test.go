package compare

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// killedPlan is what TestCase12Resume kills.
func killedPlan(dir string) Plan {
	h := byProcess()
	list, _ := PickSystems(Strategies(h), []string{"local", "allreduce"}) // they are there
	return Plan{
		Tasks: []Task{digits()}, Systems: list, Workers: []int{2}, Batches: []Batch{20}, Repeats: 2, Dir: dir, Host: h, Seconds: 0.1,
		WarmUp: 0.05, Most: 10, Python: "no such program", Quick: true,
	}
}

// TestCase12Resume: a comparison that is killed at random points goes on, and ends as one that was not: equal except for times.
func TestCase12Resume(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills dozens of processes: left out of -short")
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "killed")
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	// The first is killed with one finished trial, after which it stands still, wherever the random ones fall.
	first := exec.Command(os.Args[0], "killed-comparison", dir)
	var wrong bytes.Buffer
	first.Stderr = &wrong
	said, err1 := first.StdoutPipe()
	hold, err2 := first.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := bufio.NewReader(said).ReadString('\n')
	_ = first.Process.Kill() // where nothing was said it has ended
	_ = first.Wait()
	_ = hold.Close()
	if err != nil {
		t.Fatalf("no trial is finished: %v: %s", err, &wrong)
	}
	kills := 0
	for range 3 {
		cmd := exec.Command(os.Args[0], "killed-comparison", dir)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %s", err, &out)
			}
		case <-time.After(time.Duration(100+r.IntN(1500)) * time.Millisecond):
			_ = cmd.Process.Kill() // it may have ended
			<-ended
			kills++
		}
	}
	t.Logf("%d kills", kills)
	resumed := run(t, killedPlan(dir))
	whole := run(t, killedPlan(filepath.Join(t.TempDir(), "whole")))
	if a, b := withoutTimes(resumed), withoutTimes(whole); a != b {
		t.Errorf("resumed:\n%s\nuninterrupted:\n%s", a, b)
	}
	kept := 0
	for _, x := range resumed.Tables[0].Rows {
		for _, one := range x.Trials {
			if one.Result.Sitting == 1 {
				kept++
			}
		}
	}
	if kept != 1 || len(resumed.Sittings) < 2 {
		t.Errorf("%d of 4 trials are of the first of %d sittings; want the one that it finished, and another sitting", kept, len(resumed.Sittings))
	}
	if _, err := os.Stat(filepath.Join(dir, workDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was under way was left behind: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, trialsDir)); len(entries) != 4 {
		t.Errorf("%d trials, want 4", len(entries))
	}
}

// withoutTimes is what must be equal of two reports.
func withoutTimes(r *Report) string {
	var b strings.Builder
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			fmt.Fprintf(&b, "%s %s %s %q %v %d %d\n", t.title(), x.System, x.Proof, x.Error, x.Best, x.Good, x.Reached)
			for _, one := range x.Trials {
				for _, p := range one.Curve {
					fmt.Fprintf(&b, " %d: %v %v", p.Update, orNaN(p.Loss), orNaN(p.Value))
				}
				fmt.Fprintln(&b)
			}
		}
	}
	return b.String()
}

// TestNothingAbove: a comparison that ends before its first trial leaves none of the folders that were made for its own, but those that something
// else is in by then, and those that were there.
func TestNothingAbove(t *testing.T) {
	root := t.TempDir()
	begin := func(name string) *directory {
		t.Helper()
		p := Plan{Dir: filepath.Join(root, filepath.FromSlash(name))}
		p.defaults()
		d, err := p.openDirectory()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	there := func(want ...string) {
		t.Helper()
		var got []string
		err := fs.WalkDir(os.DirFS(root), ".", func(name string, x fs.DirEntry, err error) error {
			if x.IsDir() && name != "." && x.Name() != trialsDir {
				got = append(got, name)
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("there is %q, %v; want %q", got, err, want)
		}
	}
	a := begin("all/of/mine/a")
	b := begin("all/of/b") // meanwhile
	if err := a.close(); err != nil {
		t.Error(err)
	}
	there("all", "all/of", "all/of/b")
	if err := b.close(); err != nil { // it was not the one that made these
		t.Error(err)
	}
	there("all", "all/of")
	if err := errors.Join(os.RemoveAll(filepath.Join(root, "all")), begin("all/of/mine/a").close()); err != nil {
		t.Error(err)
	}
	there()
}
