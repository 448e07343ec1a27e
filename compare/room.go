package compare

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/host"
)

// What a process takes beside its rows: one of ours, and one of another system that does not say (peer.json: memory_mb).
const (
	processBytes = 64 << 20
	peerBytes    = 512 << 20
)

// room refuses what the machine cannot hold, before anything runs.
func (r *runner) room(e *evaluator) error {
	var most int64
	var at Cell
	for _, g := range r.groups {
		for _, c := range g.cells {
			if g.task.Name == e.task.Name && r.absent[c.System] == nil {
				if want := e.takes(c, r.plan.Systems[c.index]); want > most {
					most, at = want, c
				}
			}
		}
	}
	if there, ok := freeMemory(host.Options{}); ok && most > there {
		return &PlanError{fmt.Errorf("compare: %s with the %d processes of %s wants about %s of memory, and %s are free: name fewer workers, or other systems",
			e.task.Name, at.Workers+at.Servers, at.System, quantity.Bytes(most), quantity.Bytes(there))}
	}
	params := int64(e.model.Layout().Len()) * 4
	want := params*int64(r.plan.Most)*2 + diskBytes
	if there, ok := freeDisk(r.dir.path); ok && want > there {
		return fmt.Errorf("compare: %s wants about %s of disk (a trial of %s keeps up to %d copies of the parameters until they are evaluated), and %s are free: make room, or name another folder with --dir",
			r.dir.path, quantity.Bytes(want), e.task.Name, r.plan.Most, quantity.Bytes(there))
	}
	return nil
}

// diskBytes are for results, curves, the parameters of the proof and the report.
const diskBytes = 64 << 20

// A FullDiskError says that the disk was full: in the middle of a trial, which therefore is none, or before.
type FullDiskError struct {
	Dir, Why string
}

func (e *FullDiskError) Error() string {
	return fmt.Sprintf("compare: the disk of %s is full: make room, and repeat the command, which goes on after what is finished there (%s)", e.Dir, e.Why)
}

// fullDisk is err as a FullDiskError of dir, where that is what it comes from: in this process, or in one of a trial's.
func fullDisk(dir string, err error, result *Result) error {
	if _, said := errors.AsType[*FullDiskError](err); said {
		return err
	}
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
	return &FullDiskError{dir, strings.ReplaceAll(err.Error(), "\n", "; ")} // joined ones are a line each
}

// takes is about what all processes of a cell have in memory.
func (e *evaluator) takes(c Cell, system System) int64 {
	rows, process := e.holds(c, system.About()), int64(processBytes)
	if p, ok := system.(*peer); ok {
		process = peerBytes
		if p.Memory > 0 {
			process = int64(p.Memory) << 20
		}
	}
	return int64(c.Workers)*rows + int64(c.Workers+c.Servers)*process
}

// holds is about what one worker of a cell has of the data in memory: of files everything, of a generated set the training rows that it
// trains on, which lie apart by update. Other systems read those alone, and lay them side by side.
func (e *evaluator) holds(c Cell, a About) int64 {
	train, cell := e.resident(e.splits.Train), data.CellBytes(e.splits.Train)
	numbers := train * 4 / cell / int64(c.Workers) // of four bytes
	update := int64(0)
	if c.Batch == trivium.FullBatch && cell < 4 { // images become numbers where they are computed with: here all
		update = numbers
	}
	switch {
	case a.Peer:
		return numbers
	case !e.late():
		return train + update + e.resident(e.splits.Valid) + e.resident(e.splits.Test)
	}
	return train/int64(c.Workers) + update
}

// late reports whether the rows are those of a generator that makes them when a worker first wants them: see train.Env.Walk.
func (e *evaluator) late() bool {
	d := &e.task.Job.Data
	_, generated := data.Generators()[d.Source]
	return generated && !e.programs() && d.Order == "index"
}

// programs reports whether the rows are those of a source of the user's program, which holds them as it likes.
func (e *evaluator) programs() bool {
	_, ok := e.host.Sources[e.task.Job.Data.Source]
	return ok
}

// Rows that take more than data.Options.Budget are read anew in every epoch, through two windows.
const (
	budgetBytes = 4 << 30
	windowRows  = 2 * 16384
)

// resident is what rows take in memory: dense cells as they are, sparse ones at the least.
func (e *evaluator) resident(ds data.Dataset) int64 {
	if ds == nil {
		return 0
	}
	row := int64(0)
	for _, in := range ds.Schema().Inputs {
		if in.Form == trivium.CSR {
			row += 32 * 4 // of a sparse row, a guess
			continue
		}
		row += int64(in.Columns()) * data.CellBytes(ds)
	}
	if n := ds.Rows() * row; n <= budgetBytes || e.programs() {
		return n
	}
	return min(ds.Rows(), windowRows) * row
}
