//go:build !linux

package tensor

// adviseHuge does nothing where huge pages cannot be asked for one allocation at a time.
func adviseHuge([]byte) {}
