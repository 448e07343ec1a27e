package collective

import (
	"fmt"
	"hash/fnv"

	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/wire"
)

// A descriptor is what ranks compare. Its bytes are hashed into the fingerprint of every frame, and travel whole when two differ.
type descriptor struct {
	kind, dtype, reduce, root, codec, scale, shape, counts, plan string
	n                                                            int
	from, to                                                     int // of Send and Receive; from is to where any rank may send
	splits                                                       string
}

// A quickKey is all that an op without lists and codec is described by: most ops of a run repeat one of the step before.
type quickKey struct {
	kind     Kind
	reduce   Reduce
	root     int
	scale    float64
	shards   int
	plan     Algorithm
	dtype    tensor.DType
	dst, src int
	in       [2]bool // the arena
	fits     bool    // there
}

// A prepared op has been checked, described and planned.
type prepared struct {
	job  job
	plan *Plan
}

func (op *Op) quick(dst, src Buffer) (quickKey, bool) {
	k := quickKey{op.Kind, op.Reduce, op.Root, op.Scale, op.Shards, op.Plan, dtypeOf(dst, src), len(dst.Bytes), len(src.Bytes), [2]bool{}, false}
	return k, op.Counts == nil && op.Recv == nil && op.Shape == nil && op.Codec == nil && op.Plain == 0 && op.Residual == nil && op.Owner == nil && op.Scale == op.Scale &&
		(src.DType == dst.DType || !src.DType.Valid() || !dst.DType.Valid())
}

// again is what must be checked of the buffers of an op that is known.
func again(dst, src Buffer) bool {
	return dst.validate("") == nil && src.validate("") == nil && !overlap(dst.Bytes, src.Bytes)
}

// describe takes the plan, which follows from the operation and the group's costs, which all ranks share.
func (j *job) describe(rank int, plan string) {
	d := &j.desc
	d.plan = plan
	d.kind, d.dtype, d.n = j.Kind.String(), j.dtype.String(), j.n
	if j.Kind.reduces() {
		d.reduce = j.Reduce.String()
	}
	switch j.Kind {
	case ReduceTo, Broadcast, Gather, Scatter:
		d.root = fmt.Sprint(j.Root)
	case Send, Receive: // one operation with two ends
		d.kind, d.from, d.to = "send", rank, j.Root
		if j.Kind == Receive {
			if d.from, d.to = j.Root, rank; j.Root == AnyRank {
				d.from = rank
			}
		}
	case AllToAll: // its counts differ from rank to rank
		d.n = 0
		d.splits = fmt.Sprint("sends ", j.Counts, ", receives ", j.Recv)
	}
	if j.Counts != nil && j.Kind != AllToAll {
		d.counts = fmt.Sprint(j.Counts)
	}
	if j.Codec != nil {
		d.codec = j.Codec.String()
		if j.Plain > 0 {
			d.codec += fmt.Sprintf(" after %d plain", j.Plain)
		}
	}
	if j.Shards != 0 {
		d.codec = fmt.Sprintf("exact over %d shards", j.Shards)
	}
	if j.Scale != 0 && j.Scale != 1 {
		d.scale = fmt.Sprint(j.Scale)
	}
	if j.Shape != nil {
		d.shape = fmt.Sprint(j.Shape)
	}
	h := fnv.New32a()
	_, _ = h.Write(d.append(nil, false))
	j.print = max(h.Sum32(), 1)
}

// printFor is the fingerprint of the frames to a rank, and printBy of those from it. In AllToAll only the two know how many elements there are.
func (j *job) printFor(rank int) uint32 {
	if j.Kind != AllToAll {
		return j.print
	}
	return printOf(j.print, j.Counts[rank])
}

func (j *job) printBy(rank int) uint32 {
	if j.Kind != AllToAll {
		return j.print
	}
	return printOf(j.print, j.Recv[rank])
}

func printOf(print uint32, n int) uint32 { return (print ^ uint32(n)*0x9e3779b9) * 0x85ebca6b }

// append appends d; splits differ between ranks and are hashed by none.
func (d *descriptor) append(p []byte, splits bool) []byte {
	for _, s := range []string{d.kind, d.dtype, d.reduce, d.root, d.codec, d.scale, d.shape, d.counts, d.plan} {
		p = wire.AppendString(p, s)
	}
	for _, n := range []int{d.n, d.from, d.to} {
		p = wire.AppendUvarint(p, uint64(n))
	}
	if splits {
		p = wire.AppendString(p, d.splits)
	}
	return p
}

// texts are those of d; that which ranks do not compare is the last.
func (d *descriptor) texts() []*string {
	return []*string{&d.kind, &d.dtype, &d.reduce, &d.root, &d.codec, &d.scale, &d.shape, &d.counts, &d.plan, &d.splits}
}

func (d *descriptor) read(r *wire.Reader) {
	texts := d.texts()
	last := len(texts) - 1
	for _, s := range texts[:last] {
		*s = r.String("descriptor", maxFaultText)
	}
	for _, n := range []*int{&d.n, &d.from, &d.to} {
		*n = int(r.Uvarint("descriptor", 1<<62))
	}
	*texts[last] = r.String("descriptor", maxFaultText)
}

// differs names the first field in which d and e differ, and both values; empty: none. Where the receiver of a transfer has not named
// the sender, several ranks may be that.
func (d *descriptor) differs(e *descriptor, named bool) (field, a, b string) {
	text := func(d *descriptor) [10]string {
		return [...]string{d.kind, d.dtype, d.reduce, d.root, d.codec, d.scale, d.shape, fmt.Sprint(d.n), d.counts, d.plan}
	}
	x, y := text(d), text(e)
	for i, name := range [...]string{"operation", "dtype", "reduction", "root", "codec", "scale", "shape", "count", "splits", "plan"} {
		if x[i] != y[i] {
			return name, x[i], y[i]
		}
	}
	if d.to != e.to || named && d.from != e.from {
		return "ends", d.ends(), e.ends()
	}
	return "", "", ""
}

// apart says that d and e are transfers that have nothing to do with each other: none of the four ends is at one rank, nor any.
func (d *descriptor) apart(e *descriptor) bool {
	named := func(d *descriptor) bool { return d.kind == Send.String() && d.from != d.to }
	return named(d) && named(e) && d.from != e.from && d.from != e.to && d.to != e.from && d.to != e.to
}

func (d *descriptor) ends() string {
	if d.from == d.to {
		return fmt.Sprintf("any to %d", d.to)
	}
	return fmt.Sprintf("%d to %d", d.from, d.to)
}
