//go:build unix

package processes_test

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestKilledWorker kills a process in the middle of training.
func TestKilledWorker(t *testing.T) {
	d := driver(t, nil)
	d.Job.Epochs = 1 << 20
	pids, killed := traintest.SignalInTraining(t, &d.Started, &d.Watch, 1, syscall.SIGKILL)
	_, err := d.Train(t.Context())
	var lost *processes.WorkerError
	if !errors.As(err, &lost) || lost.Index != 1 || !lost.Lost || !strings.Contains(err.Error(), "was killed") {
		t.Fatalf("error %v", err)
	}
	if took := time.Since(*killed); took > 25*time.Second {
		t.Errorf("the others took %v to end", took)
	}
	traintest.NoneLeft(t, pids)
}

// TestInterruptReachesChild: a Ctrl-C, a hangup or a SIGTERM that comes before a child can heed it ends it, and interrupts the job.
func TestInterruptReachesChild(t *testing.T) {
	for _, variable := range []string{interrupted, hungUp, terminated} {
		t.Run(variable, func(t *testing.T) {
			if variable == hungUp && signal.Ignored(syscall.SIGHUP) {
				t.Skip("not run here: the tests run under nohup, and so would the child")
			}
			t.Setenv(variable, "worker/1")
			if r, err := driver(t, nil).Train(t.Context()); err != nil || r.Reason != trivium.Interrupted {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestStoppedBeforeHello: a child that is asked to end before it has said hello says so, and is not missed as one that is lost.
func TestStoppedBeforeHello(t *testing.T) {
	t.Setenv(stopped, "worker/1")
	if r, err := driver(t, nil).Train(t.Context()); err != nil || r.Reason != trivium.Interrupted {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestWorkerThatIsSilent stops a process: the others miss it, not at once, and say for how long it was silent.
func TestWorkerThatIsSilent(t *testing.T) {
	d := driver(t, nil)
	d.Job.Epochs, d.Grace = 1<<20, 200*time.Millisecond
	_, stopped := traintest.SignalInTraining(t, &d.Started, &d.Watch, 2, syscall.SIGSTOP)
	_, err := d.Train(t.Context())
	if lost, ok := errors.AsType[*processes.WorkerError](err); !ok || lost.Index != 2 || !lost.Lost || !strings.Contains(err.Error(), "silent for") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(*stopped); took < 2*time.Second {
		t.Errorf("it was missed after %v: that long a worker may be kept from running", took)
	}
}

// TestWorkerThatDoesNotEnd stops a process and then asks all to end: the driver waits for a while, and leaves none behind.
func TestWorkerThatDoesNotEnd(t *testing.T) {
	d := driver(t, nil)
	d.Job.Epochs, d.Finish, d.Grace = 1<<20, 200*time.Millisecond, 200*time.Millisecond
	pids := map[int]int{}
	d.Started = func(index, pid int, _ string) { pids[index] = pid }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.Watch.Progress = func(p train.Progress) {
		if p.Step > 10 && ctx.Err() == nil {
			if err := syscall.Kill(pids[2], syscall.SIGSTOP); err != nil {
				t.Error(err)
			}
			// Until the thread that takes the signal has a processor, the others go on, and may end as they are asked to.
			if _, err := syscall.Wait4(pids[2], nil, syscall.WUNTRACED, nil); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	_, err := d.Train(ctx)
	if lost, ok := errors.AsType[*processes.WorkerError](err); !ok || !lost.Lost {
		t.Errorf("error %v", err)
	}
	traintest.NoneLeft(t, pids)
}
