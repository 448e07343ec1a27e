package compare

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/internal/flock"
	"github.com/trivium-ml/trivium/observe/host"
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

// TestReadingIsOfItsTime: what processes took is read before the machine is looked through for what they started, which may take long: they go on
// meanwhile, and what they do then would be missing in what the reading begins, or be too much in what it ends.
func TestReadingIsOfItsTime(t *testing.T) {
	self := os.Getpid()
	looks := 200 * time.Millisecond
	before := processTime(self)
	r := readAsOf([]Process{{Role: WorkerRole, PID: self}}, nil, func([]Process) map[int][]int {
		for began := time.Now(); time.Since(began) < looks; { // this process works on
		}
		return nil
	})
	after := processTime(self)
	if took := after.user - before.user; took < looks.Seconds()/4 {
		t.Skipf("not judged: this process came to no more than %.2f s of processor time", took)
	}
	if late := r.cpu[self].user - before.user; late > (after.user-before.user)/2 {
		t.Errorf("%.2f s of the %.2f s that this process took are in the reading", late, after.user-before.user)
	}
}

// TestTimeOfWhatEnded: what a process started took its time, also once it has ended.
func TestTimeOfWhatEnded(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "(i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done); echo over; read word")
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
		_ = in.Close() // then the shell ends
		_ = cmd.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // what it started has ended
		t.Fatal(err)
	}
	list := []Process{{Role: WorkerRole, PID: cmd.Process.Pid}}
	if x := readMachine(list, nil).cpu[cmd.Process.Pid]; x.user+x.system < 0.05 { // a million turns of any shell
		t.Errorf("it took %v s of the processor", x)
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

// TestLockHalfWritten: a lock that another process is about to write is not taken for one that was left behind.
func TestLockHalfWritten(t *testing.T) {
	d := &directory{path: t.TempDir()}
	f, err := os.Create(filepath.Join(d.path, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if !flock.Take(f) {
		t.Fatal("nobody else has it")
	}
	if err := d.lock(); err == nil || !strings.Contains(err.Error(), "another process takes its lock") {
		t.Errorf("while it is written: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.lock(); err != nil { // it was left empty: by a process that was killed there
		t.Error(err)
	}
}

// TestPlanUnderLock: what is in a directory is not looked at while another process works in it, which may be about to write it; and a folder
// that is refused is left as it was.
func TestPlanUnderLock(t *testing.T) {
	p := small(t, inMemory(), digits(), "local")
	p.Dir = t.TempDir()
	parent := os.Getppid()
	for name, text := range map[string]string{planFile: "{", lockFile: fmt.Sprintf("%d %s\n", parent, processStart(parent))} {
		if err := os.WriteFile(filepath.Join(p.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d is at work in it", parent)) {
		t.Errorf("where another is at work it ends with %v", err)
	}
	if err := os.Remove(filepath.Join(p.Dir, lockFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "unexpected end of JSON input") {
		t.Errorf("with a plan that cannot be read it ends with %v", err)
	}
	if left, err := os.ReadDir(p.Dir); err != nil || len(left) != 1 {
		t.Errorf("a folder that is refused has %v: %v", left, err)
	}
}

// TestMachineOfCores: what runs on other cores than a row's is no foreign load of it.
func TestMachineOfCores(t *testing.T) {
	const stat = "cpu  1000 0 0 3000 0 0 0 40 0 0\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu1 0 0 0 990 0 0 0 10 0 0\n" +
		"cpu2 900 0 0 100 0 0 0 0 0 0\ncpu3 0 0 0 1010 0 0 0 30 0 0\nintr 7 8\nctxt 9\n"
	whole := machineTime{busy: 10, steal: 0.4, all: 40.4}
	for _, c := range []struct {
		cores []int
		want  machineTime
	}{
		{[]int{0, 1}, machineTime{busy: 1, steal: 0.1, all: 20}},
		{[]int{0, 1, 2, 3}, whole},
		{nil, whole},
		{[]int{0, 64}, whole}, // as a container counts them that numbers its own from 0
	} {
		if got := machineOf(stat, c.cores); got != c.want {
			t.Errorf("cores %v: %+v, want %+v", c.cores, got, c.want)
		}
	}
}

// TestThrottled: what the limit of a control group below the root takes is seen, in both versions.
func TestThrottled(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"version 2": {
			"proc/7/cgroup": "0::/job\n", "sys/fs/cgroup/cpu.stat": "usage_usec 100\n",
			"sys/fs/cgroup/job/cpu.stat": "usage_usec 100\nnr_throttled 2\nthrottled_usec 30000\n",
		},
		"version 1": {
			"proc/7/cgroup":                          "4:cpu,cpuacct:/job\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.stat":     "nr_throttled 0\nthrottled_time 0\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.stat": "nr_throttled 2\nthrottled_time 30000000\n",
		},
	} {
		root := t.TempDir()
		for name, text := range files {
			name = filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("7", filepath.Join(root, "proc/self")); err != nil {
			t.Fatal(err)
		}
		if d := throttled(host.Options{Root: root}); d != 30*time.Millisecond {
			t.Errorf("%s: throttled for %v, want 30ms", name, d)
		}
	}
	s := &sampler{}
	s.first = reading{at: time.Unix(0, 0), cpu: map[int]cpuTime{}}
	s.last = reading{at: time.Unix(1, 0), cpu: map[int]cpuTime{}, machine: machineTime{all: 1}, throttled: 30 * time.Millisecond}
	if flags := s.flags(); !slices.Equal(flags, []string{"the control group was throttled for 30 ms"}) {
		t.Errorf("flags %q", flags)
	}
}

// TestFreeMemory: in a control group with a limit, as in a container, there is no more room than that leaves.
func TestFreeMemory(t *testing.T) {
	const limit = 1 << 30
	resident := int64(2048 * os.Getpagesize())
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no group", nil, 6000000 << 10},
		{"version 2", map[string]string{"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, limit - resident},
		{"version 2 without a limit", map[string]string{"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 6000000 << 10},
		{"version 2, more than there is", map[string]string{"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "68719476736\n"}, 6000000 << 10},
		{"version 2, full", map[string]string{"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, 0},
		{"version 1", map[string]string{"proc/7/cgroup": "4:memory:/docker/x\n", "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "1073741824\n"}, limit - resident},
	} {
		root := t.TempDir()
		files := map[string]string{
			"proc/meminfo": "MemTotal:        8000000 kB\nMemAvailable:    6000000 kB\n",
			"proc/7/stat": "7 (trivium) S 1 7 7 0 -1 4194560 1000 0 0 0 250 50 0 0 20 0 8 0 100 1000000000 2048 " +
				"18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		}
		maps.Copy(files, c.files)
		for name, text := range files {
			name = filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("7", filepath.Join(root, "proc/self")); err != nil {
			t.Fatal(err)
		}
		if got, ok := freeMemory(host.Options{Root: root}); !ok || got != c.want {
			t.Errorf("%s: %d bytes, %v; want %d", c.name, got, ok, c.want)
		}
	}
}
