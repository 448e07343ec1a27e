package cores

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is also where a process begins that keeps to a core: it says where its threads may run, before, meanwhile and afterwards.
func TestMain(m *testing.M) {
	if os.Getenv("CORES_CHILD") != "" {
		os.Exit(child())
	}
	os.Exit(m.Run())
}

func child() int {
	ctx, cancel := context.WithCancel(context.Background())
	all := where()
	fmt.Println(all)
	fmt.Println(Keep(ctx, 1, 1))
	more := make(chan struct{})
	for range 3 { // threads that are started now
		go func() {
			runtime.LockOSThread()
			<-more
		}()
	}
	for len(threads()) < 6 {
		runtime.Gosched()
	}
	fmt.Println(where())
	cancel()
	for end := time.Now().Add(10 * time.Second); where() != all && time.Now().Before(end); {
		runtime.Gosched()
	}
	fmt.Println(where())
	close(more)
	return 0
}

// where names the sets of cores that threads have, one after the other.
func where() string {
	var sets []string
	for _, id := range threads() {
		var set unix.CPUSet
		if unix.SchedGetaffinity(id, &set) != nil {
			continue
		}
		var list []string
		for i := range 1024 {
			if set.IsSet(i) {
				list = append(list, fmt.Sprint(i))
			}
		}
		if s := strings.Join(list, " "); len(sets) == 0 || sets[len(sets)-1] != s {
			sets = append(sets, s)
		}
	}
	return strings.Join(sets, "|")
}

// TestKeep: all threads of a process, and those that it starts later, run on the core that it keeps to, and everywhere again afterwards.
func TestKeep(t *testing.T) {
	all := where()
	if strings.Contains(all, "|") {
		t.Fatalf("the threads of this process differ: %s", all)
	}
	list := strings.Fields(all)
	if len(list) < 2 {
		t.Skip("one core")
	}
	if _, told := waited(); !told {
		t.Skip("the system does not tell how long threads wait for a core")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), "CORES_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		got = append(got, lines.Text())
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := []string{all, "true", list[1], all}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("a process that keeps to its second core says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNoSuchCores: who asks for cores that there are not stays where it is.
func TestNoSuchCores(t *testing.T) {
	n := len(strings.Fields(where()))
	for _, c := range [][2]int{{-1, 1}, {0, 0}, {0, n + 1}, {n, 1}, {1, n}, {1 << 40, 1}} {
		if Keep(t.Context(), c[0], c[1]) {
			t.Errorf("Keep(%d, %d) of %d cores did", c[0], c[1], n)
		}
	}
}

func TestPart(t *testing.T) {
	var all unix.CPUSet
	for _, c := range []int{3, 5, 6, 70, 71, 200} {
		all.Set(c)
	}
	own, ok := part(&all, 2, 3)
	if !ok || own.Count() != 3 || !own.IsSet(6) || !own.IsSet(70) || !own.IsSet(71) {
		t.Errorf("the third to fifth of cores 3, 5, 6, 70, 71 and 200: %v, %v", own, ok)
	}
}

// TestWaited: what the system says is of this process, and only grows.
func TestWaited(t *testing.T) {
	one, ok := waited()
	if !ok {
		t.Skip("the system does not tell")
	}
	if two, also := waited(); !also || two < one {
		t.Errorf("waited %v, then %v (told: %v)", one, two, also)
	}
}

// TestThreads: also threads that start while others are seen are seen, each once.
func TestThreads(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	started, seen := map[int]bool{}, map[int]int{}
	Threads(func(id int) {
		if seen[id]++; len(started) == 3 {
			return
		}
		one := make(chan int)
		go func() {
			runtime.LockOSThread()
			one <- unix.Gettid()
			<-stop
		}()
		started[<-one] = true
	})
	for id := range started {
		if seen[id] == 0 {
			t.Errorf("thread %d was not seen", id)
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("thread %d was seen %d times", id, n)
		}
	}
}
