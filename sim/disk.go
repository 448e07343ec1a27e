package sim

import (
	"errors"
	"fmt"
	"io"

	"github.com/trivium-ml/trivium/protocol"
)

// A Disk is what a node keeps over a restart.
type Disk struct{ n *node }

// Get returns what rests under key.
func (d Disk) Get(key string) (value []byte, ok bool) {
	value, ok = d.n.disk.kept[key]
	return value, ok
}

// Name is that of the machine that boots, with its incarnation.
func (d Disk) Name() protocol.Name { return d.n.name }

// Boots is 1 for the first start, and one more for each restart.
func (d Disk) Boots() int { return d.n.boots }

// disk holds a node's values, and the writes that are not done.
type disk struct {
	kept    map[string][]byte
	writing []writing
	limit   int64
	used    int64
	free    int64 // until when it writes: one after the other
	// faults in force
	torn, short, failing, full bool
}

type writing struct {
	id    uint64
	key   string
	value []byte
	fails bool
}

var (
	errIO   = errors.New("sim: disk: the write failed")
	errFull = errors.New("sim: disk: no space left")
)

// write begins a Store. It rests when its Stored comes; a crash before that leaves the old value or the new one, by a draw.
func (w *World) write(n *node, c protocol.Store) {
	d := &n.disk
	n.stores++
	id := n.stores // of this write; the machine's ID travels beside it
	wr := writing{id: id, key: c.Key, value: append([]byte(nil), c.Value...)}
	var err error
	switch {
	case d.failing:
		err, wr.fails = errIO, true
	case d.full, d.limit > 0 && d.used-int64(len(d.kept[c.Key]))+int64(len(c.Value)) > d.limit:
		err, wr.fails = errFull, true
	case d.short:
		err = fmt.Errorf("sim: disk: %w", io.ErrShortWrite)
		wr.value = wr.value[:upTo(w.bits(n, drawShort, id), int64(len(wr.value)))]
	case d.torn:
		d.keep(c.Key, wr.value[:upTo(w.bits(n, drawTorn, id), int64(len(wr.value)))])
		w.crash(n, false)
		return
	}
	d.writing = append(d.writing, wr)
	d.free = max(d.free, w.now) + scaled(int64(w.o.StoreTime)+int64(len(c.Value)), n.slow, one)
	w.push(d.free, slot{what: storedEvent, node: n.index, gen: n.gen, id: c.ID, err: err})
}

// finish lets the oldest write rest: they end in order.
func (d *disk) finish() bool {
	if len(d.writing) == 0 {
		return false
	}
	wr := d.writing[0]
	d.writing = d.writing[:copy(d.writing, d.writing[1:])]
	if !wr.fails {
		d.keep(wr.key, wr.value)
	}
	return true
}

func (d *disk) keep(key string, value []byte) {
	if d.kept == nil {
		d.kept = map[string][]byte{}
	}
	d.used += int64(len(value)) - int64(len(d.kept[key]))
	d.kept[key] = value
}

// crash ends the writes under way: the first few of them rest, as a draw says.
func (d *disk) crash(w *World, n *node) {
	for _, wr := range d.writing {
		if wr.fails || chance(w.bits(n, drawCrash, wr.id), 1<<31) {
			break
		}
		d.keep(wr.key, wr.value)
	}
	d.writing = d.writing[:0]
}

func (d *disk) wipe() { d.kept, d.used, d.writing = nil, 0, d.writing[:0] }
