package tensor

import (
	"fmt"
	"unsafe"
)

// Attach makes t lie over flat, with rows as the length of axis 0: the header is used again for a batch elsewhere in memory, so that a
// training loop allocates none. The type and the other axes stay. The error says what does not fit; t is then as before.
func Attach[T Elem](t *Tensor, flat []T, rows int) error {
	if dt := TypeOf[T](); dt != t.dt || len(t.shape) == 0 {
		return fmt.Errorf("tensor: attach %v elements to a tensor of %v%v: want the same type, and an axis for the rows", dt, t.dt, t.shape)
	}
	if n := rows * t.shape[1:].Len(); n != len(flat) {
		return fmt.Errorf("tensor: attach %d rows of shape %v: want %d elements, the slice has %d", rows, t.shape[1:], n, len(flat))
	}
	t.shape[0], t.n, t.data = rows, len(flat), nil
	if t.n > 0 {
		t.data = unsafe.Pointer(unsafe.SliceData(flat))
	}
	return nil
}
