package kernel

import "unsafe"

// Fetch asks the processor for the first bytes of what will be read soon, where it could not foresee it: in rows that come in random order it
// would wait for memory at the beginning of each. From there on it fetches ahead by itself.
func Fetch[T any](s []T) {
	var x T
	if n := min(uintptr(len(s))*unsafe.Sizeof(x), fetchMost); n > 0 {
		fetch(unsafe.Pointer(unsafe.SliceData(s)), n)
	}
}

// fetchMost is what may be asked for at a time: more requests than a processor keeps under way wait for one another.
const fetchMost = 512

// FetchRows asks the processor for rows that will be read soon, as Fetch does: for the first and the last cache line of each.
func FetchRows[T any](s []T, rows []int32, cols int) {
	var x T
	if len(rows) > 0 {
		fetchRows(unsafe.Pointer(unsafe.SliceData(s)), &rows[0], len(rows), uintptr(cols)*unsafe.Sizeof(x))
	}
}
