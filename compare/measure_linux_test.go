package compare

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSizeOfWhatItStarted: the memory of a process is counted with that of what it started, such as the program that a peer's worker drives.
func TestSizeOfWhatItStarted(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "cat; true") // the shell waits for cat
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	defer func() {
		_ = in.Close() // then cat ends, and the shell
		_ = cmd.Wait()
	}()
	if _, err := in.Write([]byte("here\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // cat has been started
		t.Fatal(err)
	}
	list := []Process{{Role: WorkerRole, PID: cmd.Process.Pid}}
	children := descendants(list)[cmd.Process.Pid]
	if len(children) != 1 {
		t.Fatalf("its children are %v", children)
	}
	own, ok := setSize(cmd.Process.Pid)
	child, there := setSize(children[0])
	if !ok || !there {
		t.Log("not run here: this kernel does not say what a process has in memory")
		return
	}
	if both := residentBytes(list)[cmd.Process.Pid]; own <= 0 || child <= 0 || both < own+child/2 {
		t.Errorf("both have %.0f bytes; the shell %.0f, and cat %.0f", both, own, child)
	}
}

// TestLockOfAnEarlierProcess: a number in the lock is another process's once the machine has started anew, or the container has; the one
// that is at work is known by when it began, too.
func TestLockOfAnEarlierProcess(t *testing.T) {
	d := &directory{path: t.TempDir()}
	name := filepath.Join(d.path, lockFile)
	parent := os.Getppid()
	for text, refused := range map[string]bool{
		fmt.Sprintf("%d %s\n", parent, processStart(parent)): true,
		fmt.Sprintf("%d another boot, 17\n", parent):         false,
		fmt.Sprintf("%d\n", parent):                          true, // of a program that wrote no more
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.lock(); (err != nil) != refused {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := d.lock(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != fmt.Sprintf("%d %s\n", os.Getpid(), processStart(os.Getpid())) {
		t.Errorf("the lock says %q (%v)", text, err)
	}
}
