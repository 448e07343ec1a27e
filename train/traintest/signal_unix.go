//go:build unix

package traintest

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/train"
)

// SignalInTraining has process number victim of a job get a signal once, in the middle of training. It takes two fields of a
// processes.Driver before its Train, and returns the processes' numbers, and when it sent the signal: to be read after Train.
func SignalInTraining(
	t testing.TB, started *func(index, pid int, host string), watch *train.Watch, victim int, s syscall.Signal,
) (pids map[int]int, at *time.Time) {
	pids, at = map[int]int{}, new(time.Time)
	*started = func(index, pid int, _ string) { pids[index] = pid }
	var once sync.Once
	watch.Progress = func(p train.Progress) {
		if p.Step > 10 {
			once.Do(func() {
				*at = time.Now()
				if err := syscall.Kill(pids[victim], s); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return pids, at
}

// NoneLeft wants all of a job's processes to have ended.
func NoneLeft(t testing.TB, pids map[int]int) {
	t.Helper()
	for index, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d (%d) is still there: %v", index, pid, err)
		}
	}
}
