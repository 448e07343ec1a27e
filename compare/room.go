package compare

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/trivium-ml/trivium"
)

// processBytes is what a process takes beside its data.
const processBytes = 64 << 20

// room refuses what the machine cannot hold, before anything runs.
func (r *runner) room(e *evaluator) error {
	most := 0
	for _, g := range r.groups {
		for _, c := range g.cells {
			most = max(most, c.Workers+c.Servers)
		}
	}
	want := int64(most) * (e.bytes() + processBytes)
	if there, ok := freeMemory(); ok && want > there {
		return &PlanError{fmt.Errorf("compare: %s with %d processes wants about %s of memory (each reads all %d rows), and %s are free: name fewer workers",
			e.task.Name, most, byteWord(float64(want)), e.rows(), byteWord(float64(there)))}
	}
	params := int64(e.model.Layout().Len()) * 4
	want = params*int64(r.plan.Most)*2 + diskBytes
	if there, ok := freeDisk(r.dir.path); ok && want > there {
		return fmt.Errorf("compare: %s wants about %s of disk (a trial of %s keeps up to %d copies of the parameters until they are evaluated), and %s are free: make room, or name another folder with --out",
			r.dir.path, byteWord(float64(want)), e.task.Name, r.plan.Most, byteWord(float64(there)))
	}
	return nil
}

// diskBytes are for results, curves, the parameters of the proof and the report.
const diskBytes = 64 << 20

// A FullDiskError says that the disk was full in the middle of a trial, which therefore is none.
type FullDiskError struct {
	Dir, Why string
}

func (e *FullDiskError) Error() string {
	return fmt.Sprintf("compare: the disk of %s is full, and what is finished is kept there: make room, and the same command goes on (%s)", e.Dir, e.Why)
}

// fullDisk is err as a FullDiskError, where that is what it comes from: in this process, or in one of a trial's.
func (r *runner) fullDisk(err error, result *Result) error {
	full := syscall.ENOSPC.Error()
	if err == nil && result != nil && result.Error != "" {
		for _, line := range append([]string{result.Error}, result.Last...) {
			if strings.Contains(strings.ToLower(line), full) {
				err = errors.New(line)
			}
		}
	}
	if err == nil || !errors.Is(err, syscall.ENOSPC) && !strings.Contains(strings.ToLower(err.Error()), full) {
		return err
	}
	return &FullDiskError{r.dir.path, err.Error()}
}

// bytes is what the data takes in memory: dense cells as they are, sparse ones at the least.
func (e *evaluator) bytes() int64 {
	var n int64
	for _, s := range []string{"train", "valid", "test"} {
		ds := e.split(s)
		if ds == nil {
			continue
		}
		columns := int64(0)
		for _, in := range ds.Schema().Inputs {
			if in.Form == trivium.CSR {
				columns += 32 // of a sparse row, a guess
				continue
			}
			columns += int64(in.Columns())
		}
		n += ds.Rows() * columns * 4
	}
	return n
}
