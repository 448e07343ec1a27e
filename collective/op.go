package collective

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/trivium-ml/trivium/compress"
	"github.com/trivium-ml/trivium/shards"
	"github.com/trivium-ml/trivium/tensor"
)

// An Op is what a group does at one tag. All ranks must ask for the same; what differs is found at the first frame and is the same
// *Mismatch at every rank.
type Op struct {
	Kind   Kind
	Reduce Reduce
	Root   int // Reduce, Broadcast, Gather, Scatter; Send and Receive: the other rank; Receive: or AnyRank

	// Counts are the elements of each rank's part in AllGather, Gather, Scatter and ReduceScatter; nil: equal parts, or, in
	// ReduceScatter, as equal as can be: of n elements rank r of P has [r·n/P, (r+1)·n/P). In AllToAll they are what this rank sends
	// to each, and Recv what it receives from each.
	Counts, Recv []int

	Scale float64 // what the result of a reduction is multiplied by; 0: 1
	Shape []int   // of the tensor, if it should be compared too

	// Codec makes AllReduce of F32 lossy, save the first Plain elements, 8 at most: numbers that ride with a gradient. Residual keeps what this
	// rank's contribution lost (by Hierarchy, its part of what its host's sum lost), and Owner what the sums lost that it encodes for all; both
	// are as long as what is encoded, or nil, and belong to the operation until its commit. If that fails, they are as before where
	// Options.NotFinite is Refuse or Skip and the operation was not settled; else they lack what it has encoded.
	Codec           compress.Codec
	Plain           int
	Residual, Owner *compress.Residual

	// Shards is the job's number of virtual shards: AllReduce adds along their tree, the same bits for every number of ranks. The
	// source then holds, one after the other, a vector for each of shards.Owned(rank, size, Shards). 65,536 at most. Of the reductions only Sum:
	// Mean would divide by the number of ranks. The mean over shards is Scale 1/Shards. A NaN of the sum is quiet, positive and without payload.
	Shards int

	Plan     Algorithm // Auto: the planner chooses, as where Plan does not fit the operation
	Priority Priority
	Aside    bool   // the caller has something else to do than to send: another goroutine does what is long of it
	Label    string // what errors call it: the bucket, the tensor
}

// A Kind is what an Op does.
type Kind uint8

// The kinds.
const (
	AllReduce Kind = iota
	ReduceTo
	ReduceScatter
	AllGather
	Gather
	Scatter
	Broadcast
	AllToAll
	Barrier
	Send    // to Root: complete when it is on its way, and the step counts only if it was received
	Receive // from Root
	numKinds
)

var kindNames = [...]string{"allreduce", "reduce", "reduce-scatter", "all-gather", "gather", "scatter", "broadcast", "all-to-all", "barrier", "send", "receive"}

func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

func (k Kind) reduces() bool { return k == AllReduce || k == ReduceTo || k == ReduceScatter }

// fromAny says that any rank may send.
func (op *Op) fromAny() bool { return op.Kind == Receive && op.Root == AnyRank }

// A Reduce is how elements are combined.
type Reduce uint8

// The reductions. What is beyond the type wraps round in whole numbers, and is infinite in others. That holds too for the sum that Mean
// divides, or Scale multiplies: of F16 it is 65,504 at most, of U8 255. Mean of whole numbers rounds towards zero. And and Or are those of bits.
const (
	Sum Reduce = iota
	Mean
	Min
	Max
	Product
	And
	Or
	numReduces
)

var reduceNames = [...]string{"sum", "mean", "min", "max", "product", "and", "or"}

func (r Reduce) String() string {
	if int(r) >= len(reduceNames) {
		return fmt.Sprintf("reduce(%d)", uint8(r))
	}
	return reduceNames[r]
}

// A Priority orders ops that are under way at once: what the next forward pass needs first goes first.
type Priority uint8

// The priorities.
const (
	Normal Priority = iota
	Front           // before all others
	Back            // after all others
)

// A Buffer is memory of one type. Its first byte lies where an element may lie.
type Buffer struct {
	DType tensor.DType
	Bytes []byte
}

// A Number is an element that Of and the typed functions take.
type Number interface {
	float32 | float64 | int32 | int64 | uint8
}

// Of is x as a Buffer, a view.
func Of[T Number](x []T) Buffer {
	var z T
	var dt tensor.DType
	switch any(z).(type) {
	case float32:
		dt = tensor.F32
	case float64:
		dt = tensor.F64
	case int32:
		dt = tensor.I32
	case int64:
		dt = tensor.I64
	case uint8:
		dt = tensor.U8
	}
	return Buffer{dt, bytesOf(x)}
}

func bytesOf[T any](x []T) []byte {
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(z)))
}

// as is b as elements. The caller has checked length and place.
func as[T any](b []byte) []T {
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}

// Len is the number of elements.
func (b Buffer) Len() int {
	if s := b.DType.Size(); s > 0 {
		return len(b.Bytes) / s
	}
	return 0
}

func (b Buffer) validate(what string) error {
	s := b.DType.Size()
	switch {
	case len(b.Bytes) == 0:
		return nil
	case s == 0:
		return fmt.Errorf("%s: %d bytes of %v", what, len(b.Bytes), b.DType)
	case len(b.Bytes)%s != 0:
		return fmt.Errorf("%s: %d bytes are no whole number of %v", what, len(b.Bytes), b.DType)
	case uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes)))%uintptr(s) != 0:
		return fmt.Errorf("%s: its first byte is not where a %v may lie: its address is no multiple of %d", what, b.DType, s)
	}
	return nil
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// A job is an Op at one rank, checked, with its sizes in elements.
type job struct {
	Op
	dtype    tensor.DType
	n        int // of the whole vector, or of all parts together
	dst, src Buffer
	desc     descriptor
	print    uint32
}

// dtypeOf is the type of an op with these buffers, of which one may have none.
func dtypeOf(dst, src Buffer) tensor.DType {
	if src.DType.Valid() {
		return src.DType
	}
	return dst.DType
}

// validate checks op at this rank alone and fixes its sizes.
func (op Op) validate(rank, size int, dst, src Buffer) (job, error) {
	j := job{Op: op, dst: dst, src: src, dtype: dtypeOf(dst, src)}
	err := errors.Join(dst.validate("the destination"), src.validate("the source"))
	say := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	if dst.DType.Valid() && src.DType.Valid() && dst.DType != src.DType {
		say("the source is %v, the destination %v", src.DType, dst.DType)
	}
	if overlap(dst.Bytes, src.Bytes) {
		say("source and destination overlap: the source must survive until the commit")
	}
	if op.Kind >= numKinds || op.Reduce >= numReduces {
		say("there is no %v with %v", op.Kind, op.Reduce)
	}
	if int(op.Plan) >= len(algorithmNames) {
		say("there is no plan %v", op.Plan)
	}
	if (op.Kind == Send || op.Kind == Receive || op.Kind == ReduceTo || op.Kind == Broadcast || op.Kind == Gather || op.Kind == Scatter) && (op.Root < 0 || op.Root >= size) && !op.fromAny() {
		say("rank %d is none of the %d", op.Root, size)
	}
	if (op.Kind == Send || op.Kind == Receive) && op.Root == rank || op.fromAny() && size == 1 {
		say("rank %d cannot send to itself", rank)
	}
	if op.Kind.reduces() {
		whole := j.dtype == tensor.I32 || j.dtype == tensor.I64 || j.dtype == tensor.U8 || j.dtype == tensor.Bool
		switch {
		case j.dtype == tensor.Bool && op.Reduce != And && op.Reduce != Or:
			say("%v of bool; want and, or", op.Reduce)
		case (op.Reduce == And || op.Reduce == Or) && !whole:
			say("%v of %v; want a type of whole numbers", op.Reduce, j.dtype)
		case whole && op.Scale != 0 && op.Scale != 1:
			say("whole numbers cannot be scaled by %v", op.Scale)
		}
	} else if op.Scale != 0 && op.Scale != 1 {
		say("%v does not reduce, and cannot be scaled by %v", op.Kind, op.Scale)
	}
	if op.Scale-op.Scale != 0 {
		say("the scale is %v", op.Scale)
	}
	err = errors.Join(err, j.sizes(rank, size), j.special())
	if err != nil {
		return j, err
	}
	return j, nil
}

// sizes checks the lengths of the buffers and of the counts.
func (j *job) sizes(rank, size int) error {
	var err error
	say := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	s, d := j.src.Len(), j.dst.Len()
	want := func(what string, found, want int) {
		if found != want {
			say("the %s has %d elements, want %d", what, found, want)
		}
	}
	total := func(counts []int) int {
		n := 0
		if len(counts) != size {
			say("%d counts for %d ranks", len(counts), size)
		}
		for _, c := range counts {
			if c < 0 || c > math.MaxInt-n {
				say("a count of %d, after %d elements", c, n)
				return n
			}
			n += c
		}
		return n
	}
	switch j.Kind {
	case AllReduce:
		j.n = d
		switch {
		case j.Shards > 1<<16: // as of a job
			say("%d shards, at most %d", j.Shards, 1<<16)
		case j.Shards == 0:
			want("destination", d, s)
		case j.Shards > 0:
			want("source", s, d*len(shards.Owned(rank, size, j.Shards)))
		}
	case ReduceTo:
		j.n = s
		if rank == j.Root {
			want("destination", d, s)
		}
	case ReduceScatter:
		j.n = s
		if j.Counts == nil {
			j.Counts = make([]int, size)
			for r := range j.Counts {
				j.Counts[r] = (r+1)*s/size - r*s/size
			}
		}
		want("source", s, total(j.Counts))
		if err == nil {
			want("destination", d, j.Counts[rank])
		}
	case AllGather, Gather:
		if j.Counts == nil {
			j.Counts = slices.Repeat([]int{s}, size)
		}
		if j.n = total(j.Counts); err != nil {
			break
		}
		want("source", s, j.Counts[rank])
		if j.Kind == AllGather || rank == j.Root {
			want("destination", d, j.n)
		}
	case Scatter:
		if j.Counts == nil {
			j.Counts = slices.Repeat([]int{d}, size)
		}
		if j.n = total(j.Counts); err != nil {
			break
		}
		want("destination", d, j.Counts[rank])
		if rank == j.Root {
			want("source", s, j.n)
		}
	case Broadcast:
		j.n = d
		if rank == j.Root {
			want("source", s, d)
		}
	case AllToAll:
		if j.Counts == nil {
			if s%size != 0 {
				say("%d elements are not a multiple of %d ranks; give counts", s, size)
			}
			j.Counts = slices.Repeat([]int{s / size}, size)
		}
		if j.Recv == nil {
			j.Recv = j.Counts
		}
		want("source", s, total(j.Counts))
		want("destination", d, total(j.Recv))
		if err == nil && j.Counts[rank] != j.Recv[rank] {
			say("rank %d sends %d elements to itself, and receives %d from itself", rank, j.Counts[rank], j.Recv[rank])
		}
	case Send:
		j.n = s
	case Receive:
		j.n = d
	}
	return err
}

// special checks codecs and exact mode.
func (j *job) special() error {
	var err error
	say := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	if j.Codec != nil {
		switch {
		case j.Kind != AllReduce || j.dtype != tensor.F32 || j.Reduce > Mean:
			say("codec %s: only a sum or mean of f32 over all ranks can be compressed, not %v %v of %v", j.Codec, j.Kind, j.Reduce, j.dtype)
		case j.Shards != 0:
			say("codec %s: exact mode allows no codec", j.Codec)
		}
		for _, e := range []*compress.Residual{j.Residual, j.Owner} {
			if e != nil && e.Len() != j.n-j.Plain {
				say("codec %s: a residual of %d values for %d", j.Codec, e.Len(), j.n-j.Plain)
			}
		}
		if j.Plain < 0 || j.Plain > min(j.n, maxPlain) {
			say("codec %s: %d of %d elements cannot be plain: %d at most", j.Codec, j.Plain, j.n, maxPlain)
		}
	} else if j.Residual != nil || j.Owner != nil || j.Plain != 0 {
		say("a residual, or plain elements, without a codec")
	}
	if j.Shards == 0 {
		return err
	}
	switch {
	case j.Shards < 0:
		say("%d shards", j.Shards)
	case j.Kind != AllReduce || j.Reduce != Sum || !j.dtype.Float():
		say("exact mode: only a sum of f32 or f64 over all ranks, not %v %v of %v", j.Kind, j.Reduce, j.dtype)
	case j.Plan == Ring:
		say("exact mode: a ring adds in an order that depends on the number of ranks")
	}
	return err
}

// maxPlain elements are plain at most: of the smallest frame most is left for what is encoded.
const maxPlain = 8

// plainBytes is what the elements take that no codec encodes.
func (op *Op) plainBytes() int { return op.Plain * tensor.F32.Size() }
