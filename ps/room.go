package ps

import (
	"unsafe"

	"github.com/trivium-ml/trivium/tensor"
)

// A room is memory for the shards of a table at a lane, in one piece: with large pages beneath it, where rows that lie far apart are not waited for
// twice, once for the page's place.
type room struct{ left []byte }

// newRoom returns room for these shards.
func newRoom(t *table, shards []int) *room {
	size := 0
	for _, k := range shards {
		cells, segments := t.cut.sizes(k)
		size += align(int(cells)*t.spec.Cell.Size()) + align(4*segments)
		if t.opt != nil {
			size += t.opt.Slots() * align(4*int(cells))
		}
	}
	return &room{tensor.AlignedBytes(size)}
}

func align(n int) int { return (n + tensor.Align - 1) &^ (tensor.Align - 1) }

// take returns n zeroed numbers; a nil room makes them.
func take[T Number | uint32](r *room, n int) []T {
	var x T
	size := n * int(unsafe.Sizeof(x))
	if r == nil || n == 0 || align(size) > len(r.left) {
		return make([]T, n)
	}
	v := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(r.left))), n)
	r.left = r.left[align(size):]
	return v
}
