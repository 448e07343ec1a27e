package compare

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestWhatLeftItsGroup: what a peer's process started ends with the trial also where it has left its group, since it is in the row's network
// namespace; and nothing else does.
func TestWhatLeftItsGroup(t *testing.T) {
	s, err := newSpace()
	if err == nil {
		defer s.close()
		_, err = exec.LookPath("setsid")
	}
	if err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	beside := exec.Command(os.Args[0], "fake-peer", "sleeps@"+mark())
	if err := beside.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = beside.Process.Kill(), beside.Wait() }()
	peer := newPeerTrial(t.Context(), time.Minute)
	close(peer.driven) // by nobody here
	if err := peer.start(WorkerRole, 0, []string{os.Args[0], "fake-peer", "leaves@" + mark()}, t.TempDir(), s.path, nil, nil); err != nil {
		t.Fatal(err)
	}
	child := (<-peer.lines).word.Update
	killIn([]string{"/proc/thread-self/ns/net"}) // of this program: nothing
	if got := stateOf(child); got == "" || got == "Z" {
		t.Error("it was killed for a namespace that is not its own")
	}
	if err := peer.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	got := stateOf(child)
	for end := time.Now().Add(20 * time.Second); got != "" && got != "Z" && time.Now().Before(end); got = stateOf(child) {
		time.Sleep(time.Millisecond)
	}
	if got != "" && got != "Z" {
		t.Errorf("what left its group has state %q", got)
		if left, err := os.FindProcess(int(child)); err == nil {
			_ = left.Kill()
		}
	}
	if got := stateOf(int64(beside.Process.Pid)); got == "" || got == "Z" {
		t.Error("a process in another namespace was killed")
	}
}
