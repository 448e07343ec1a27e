//go:build unix

package app

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster/fleet"
)

// TestCoordinatorStandsStill: a coordinator's process that is stopped and goes on, as when its machine sleeps, has its machines and jobs
// as before, if that took less than the machines bear; else its jobs end with the reason, and it has its machines again by itself.
func TestCoordinatorStandsStill(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: it waits for machines to lose patience, which the whole tests have time for")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	up := exec.Command(self, commandArgument, "up", "--listen", "127.0.0.1:0", "--json", "--dir", filepath.Join(dir, "cluster"))
	var out, errs tape
	up.Stdout, up.Stderr = &out, &errs
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGCONT)
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := up.Wait(); err != nil {
			t.Errorf("up: %v: %s", err, &errs)
		}
	})
	var at struct{ Addr, Token string }
	if err := json.Unmarshal([]byte(out.await(t, "}\n")), &at); err != nil {
		t.Fatal(err)
	}
	on := []string{"--on", at.Addr, "--token", at.Token}
	status := func() (st fleet.Status) {
		t.Helper()
		got := runIn(t, dir, append([]string{"status", "--json"}, on...)...)
		if err := json.Unmarshal([]byte(got.out), &st); err != nil {
			t.Fatalf("%v: %s%s", err, got.out, got.err)
		}
		return st
	}
	a, aErrs, _ := background(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", "a", "--cores", "1")
	b, bErrs, _ := background(t, dir, "node", "--join", at.Addr, "--token", at.Token, "--id", "b", "--cores", "1")
	a.await(t, "lent to")
	b.await(t, "lent to")
	words, problems, train := background(t, dir, append(strings.Fields("train mlp:20 --data digits --rows 1200 --epochs 1000000 --workers 2"), on...)...)
	words.await(t, "epoch=2 ")
	before := status()

	if err := up.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // it stands still; four times the silence by which a job's workers are judged
	if err := up.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What was trained meanwhile comes, and more. Which epochs these are is not known: of a job that evaluates thousands of times a second a
	// worker drops some, where a driver that stands still takes none.
	told := func() int { return strings.Count(words.String(), "epoch=") }
	enough := told() + 500
	for deadline := time.Now().Add(3 * time.Minute); told() < enough; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %d evaluations %d came", enough, told())
		}
	}
	if st := status(); st.Epoch != before.Epoch || st.Jobs[0].State != fleet.Running {
		t.Fatalf("after a short stop: epoch %d, not %d, with %+v", st.Epoch, before.Epoch, st.Jobs[0])
	}

	asked := func() int {
		return strings.Count(aErrs.String()+bErrs.String(), "a change of the view waits for the metadata store")
	}
	earlier := asked()
	if err := up.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	aErrs.await(t, "lost=coordinator/0")
	// The store is in that process too. Until one of the machines has asked it for the view without the coordinator, a sign of life of that
	// acquits it, and all go on as before: on a busy machine the two come in either order.
	for deadline := time.Now().Add(3 * time.Minute); asked() == earlier; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the machines do not ask for another view: %s%s", aErrs, bErrs)
		}
	}
	if err := up.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if text := problems.await(t, "trivium: "); train() != Lost || !strings.Contains(text, "what became of job-1") {
		t.Errorf("train says %s", text)
	}
	errs.await(t, "begins again")
	again := "lent to coordinator/0"
	for _, node := range []*tape{a, b} {
		for deadline := time.Now().Add(3 * time.Minute); strings.Count(node.String(), again) < 2; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the machine did not come back: %s", node)
			}
		}
	}
	got := runIn(t, dir, append(strings.Fields("train "+small+" --workers 2 --name after"), on...)...)
	if got.code != Done || !strings.Contains(got.out, "job-2 is queued") {
		t.Errorf("a job after it exits with %d: %s%s", got.code, got.out, got.err)
	}
	if st := status(); len(st.Jobs) != 2 || st.Jobs[0].State != fleet.Forgotten || !strings.Contains(st.Jobs[0].Why, "went on without this coordinator") {
		t.Errorf("the jobs are %+v", st.Jobs)
	}
}
