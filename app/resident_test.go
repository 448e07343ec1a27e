package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// residentArgument makes of the test program a command, that says in the end how much memory it had at most.
const residentArgument = "resident-child"

// residentChild runs the command that args are, if they begin with residentArgument.
func residentChild(args []string) (code int, ok bool) {
	if len(args) == 0 || args[0] != residentArgument {
		return 0, false
	}
	code = Run(context.Background(), args[1:], io.Discard, os.Stderr, Options{})
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return Failed, true
	}
	fmt.Printf("%s\n", status)
	return code, true
}

// TestResidentMemory: a training takes at most the data, its parameters and their gradient, a vector for each of the optimizer's slots,
// the activations and 64 MiB, from reading the data to the last checkpoint. L-BFGS takes (4 + 2 × history) × the parameters in all;
// exact mode four times the parameters more, for the partial sums of its tree. A run that goes on from a checkpoint takes no more.
// What is measured is the kernel's account of the most memory that a process had, of one that runs the command and nothing else.
func TestResidentMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: trains models of some hundred megabytes for seconds, which the whole tests have")
	}
	if runtime.GOOS != "linux" {
		t.Skip("not run here: the most memory that a process had is read from Linux's /proc")
	}
	dir := t.TempDir()
	const rows, entries, width = 1500, 100, 1_000_000 // enough entries for every page of the parameters to be touched
	writeSparse(t, filepath.Join(dir, "wide.libsvm"), rows, entries, width)
	const images = 76_000
	writePacked(t, dir, images)

	const (
		digit    = 4 * (784 + 1) // bytes of a row, with its label
		wide     = 784*2000 + 2000 + 2000*2000 + 2000 + 2000*10 + 10
		lenet    = 25*20 + 20 + 25*20*50 + 50 + 800*500 + 500 + 500*10 + 10
		lenetRow = 24*24*20 + 12*12*20 + 8*8*50 + 4*4*50 + 500 + 10 // values of a row's activations
	)
	holds := func(command string, data, parameters, vectors, activations int) {
		t.Helper()
		peak := peakOf(t, dir, append(strings.Fields(command), "--threads", "2")...)
		most := data + 4*vectors*parameters + 2*4*activations + 64<<20
		t.Logf("%s: %d MiB of %d", command, peak>>20, most>>20)
		if peak > most {
			t.Errorf("%s: %d bytes were resident, want at most %d: %d of data, %d of parameters %d times, %d of activations, 64 MiB",
				command, peak, most, data, 4*parameters, vectors, 2*4*activations)
		}
	}
	for _, c := range []struct {
		args        string
		data        int // bytes
		parameters  int
		vectors     int // of so many numbers
		activations int // numbers, of one batch; each has a gradient
	}{
		{"mlp:2000,2000 --optimizer sgd --data digits --rows 300 --batch 100 --epochs 2", 350 * digit, wide, 2, 100 * 4010},
		{"mlp:2000,2000 --optimizer adam --data digits --rows 300 --batch 100 --epochs 2", 350 * digit, wide, 4, 100 * 4010},
		{"mlp:2000,2000 --optimizer adam --data digits --rows 300 --batch 100 --epochs 1 --exact", 350 * digit, wide, 8, 100 * 4010},
		{"mlp:2000,2000 --optimizer lbfgs --data digits --rows 120 --epochs 12", 140 * digit, wide, 24, 120 * 4010},
		{"mlp:2000,2000 --optimizer lbfgs --set history=3 --data digits --rows 120 --epochs 5 --exact", 140 * digit, wide, 14, 120 * 4010},
		{"cnn --data digits --rows 1000 --batch 500 --epochs 2", 1200 * digit, lenet, 4, 500 * lenetRow},
		{"fm:8 --optimizer sgd --data wide.libsvm --columns 1000000 --epochs 2", rows * (8*entries + 12), 9*width + 1, 2, 0},
		{"fm:8 --optimizer adam --data wide.libsvm --columns 1000000 --epochs 2", rows * (8*entries + 12), 9*width + 1, 4, 0},
		{"fm:8 --optimizer adam --data wide.libsvm --columns 1000000 --epochs 1 --exact", rows * (8*entries + 12), 9*width + 1, 8, 0},
		{"logistic --data logistic --batch 250 --epochs 10", 12_000 * 40_004, 10_001, 3, 0},
		{"logistic --data logistic --batch full --epochs 3", 12_000 * 40_004, 10_001, 3, 0},
		{"softmax --optimizer sgd --data packed --batch 500 --epochs 1", images * (784 + 1), 7850, 2, 500 * 10}, // bytes stay bytes
	} {
		holds("train "+c.args, c.data, c.parameters, c.vectors, c.activations)
	}

	// What a run goes on from, or is compared with, is not there twice: a rerun has the parameters to compare with, and no more.
	for _, c := range []struct {
		first, then string
		rows        int
		vectors     int
	}{
		{"mlp:2000,2000 --optimizer adam --data digits --rows 300 --batch 100 --epochs 1 --name adam", "train --resume adam --epochs 2", 350, 4},
		{"mlp:2000,2000 --optimizer lbfgs --set history=3 --data digits --rows 120 --epochs 4 --name lbfgs", "train --resume lbfgs --epochs 6", 140, 10},
		{"", "rerun adam", 350, 4 + 1},
	} {
		if c.first != "" {
			peakOf(t, dir, append(strings.Fields("train "+c.first), "--threads", "2")...)
		}
		holds(c.then, c.rows*digit, wide, c.vectors, 120*4010)
	}
}

// peakOf runs a command in a process of its own and returns the bytes that it had at most.
func peakOf(t *testing.T, dir string, args ...string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, append([]string{residentArgument}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, problems.String())
	}
	m := regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("no VmHWM in %s", out.String())
	}
	kilobytes, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// writeSparse writes rows with so many entries each, in columns below width.
func writeSparse(t *testing.T, name string, rows, entries, width int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 3))
	var b []byte
	for row := range rows {
		b = strconv.AppendInt(b, int64(row%2), 10)
		for i := range entries { // in ascending order
			c := 1 + i*width/entries + r.IntN(width/entries)
			b = append(strconv.AppendInt(append(b, ' '), int64(c), 10), ":1"...)
		}
		b = append(b, '\n')
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// writePacked writes a folder, packed, with so many images of bytes and their labels, as MNIST comes.
func writePacked(t *testing.T, dir string, images int) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "packed"), 0o755); err != nil {
		t.Fatal(err)
	}
	pack := func(name string, f func(w io.Writer) error) {
		t.Helper()
		file, err := os.Create(filepath.Join(dir, "packed", name))
		if err != nil {
			t.Fatal(err)
		}
		z, _ := gzip.NewWriterLevel(file, gzip.BestSpeed)
		if err := errors.Join(f(z), z.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	pack("train-images-idx3-ubyte.gz", func(w io.Writer) error {
		head := binary.BigEndian.AppendUint32(nil, 2051)
		for _, d := range []int{images, 28, 28} {
			head = binary.BigEndian.AppendUint32(head, uint32(d))
		}
		_, err := w.Write(head)
		image := make([]byte, 784)
		for i := 0; i < images && err == nil; i++ {
			image[i%784]++
			_, err = w.Write(image)
		}
		return err
	})
	pack("train-labels-idx1-ubyte.gz", func(w io.Writer) error {
		_, err := io.WriteString(w, idxLabels(images, func(i int) byte { return byte(i % 10) }))
		return err
	})
}
