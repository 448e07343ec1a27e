package data

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/trivium-ml/trivium"
)

// Who walks a third of the rows in parts of a mebibyte holds a third: huge pages, which the system gives to whom asks, would hold them all.
func TestLateRowsTakeNoMemory(t *testing.T) {
	if mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil && strings.Contains(string(mode), "[always]") {
		t.Skip("this system gives huge pages to who did not ask for them too")
	}
	const fresh = "TRIVIUM_TEST_FRESH" // memory that earlier tests had is held already
	if os.Getenv(fresh) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLateRowsTakeNoMemory$", "-test.v")
		cmd.Env = append(os.Environ(), fresh+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "of the rows are made") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	const rows, columns = 4000, 8000
	s, err := logistic(t.Context(), trivium.Data{Source: "logistic", Rows: rows, Columns: columns}, true)
	if err != nil {
		t.Fatal(err)
	}
	const from = 3232 // enough of them, and the second part of each 96 rows
	if err := Prepare(t.Context(), s.Train, BatchOptions{Batch: 96, Part: 1, Parts: 3, From: from}); err != nil {
		t.Fatal(err)
	}
	all := s.Train.(*memory).all.Inputs[0].Values
	whole, made := resident(t, all), float64(rows-from)/3/rows
	t.Logf("%.3f of the rows are made, and %.3f of their memory is held", made, whole)
	if whole < 0.9*made || whole > 1.2*made {
		t.Errorf("%.3f of the rows are made, and %.3f of their memory is held", made, whole)
	}
}

// resident is which part of x is in memory.
func resident(t *testing.T, x []float32) float64 {
	t.Helper()
	page := syscall.Getpagesize()
	p := uintptr(unsafe.Pointer(unsafe.SliceData(x)))
	skip := int(-p % uintptr(page))
	held := make([]byte, (4*len(x)-skip)/page)
	if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, p+uintptr(skip), uintptr(len(held)*page), uintptr(unsafe.Pointer(&held[0]))); errno != 0 {
		t.Fatalf("mincore: %v", errno)
	}
	n := 0
	for _, b := range held {
		n += int(b & 1)
	}
	return float64(n) / float64(len(held))
}
