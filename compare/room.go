package compare

import (
	"fmt"

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
		return fmt.Errorf("compare: %s with %d processes wants about %s of memory (each reads all %d rows), and %s are free: name fewer workers",
			e.task.Name, most, byteWord(float64(want)), e.rows(), byteWord(float64(there)))
	}
	params := int64(e.model.Layout().Len()) * 4
	if there, ok := freeDisk(r.dir.path); ok && params*int64(r.plan.Most)*2+(64<<20) > there {
		return fmt.Errorf("compare: %s: a trial keeps up to %d copies of the parameters, %s in all, and the disk has %s left",
			r.dir.path, r.plan.Most, byteWord(float64(params*int64(r.plan.Most))), byteWord(float64(there)))
	}
	return nil
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
