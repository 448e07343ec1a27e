package compare

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/trivium-ml/trivium/internal/atomicfile"
)

// writeFile writes a file that is there whole or not at all, also after the machine lost its power.
func writeFile(path string, write func(f *os.File) error) error {
	return writeShown(path, write, atomicfile.Options{Mode: 0o644})
}

// writeWhole writes a file that is there whole or not at all, as long as the machine has power.
func writeWhole(path string, write func(f *os.File) error) error {
	return writeShown(path, write, atomicfile.Options{Mode: 0o644, Unsynced: true})
}

// writeShown writes a file that others may read, whatever the umask: a report is there to be shown.
func writeShown(path string, write func(f *os.File) error, o atomicfile.Options) error {
	readable := func(f *os.File) error { return errors.Join(write(f), f.Chmod(o.Mode)) }
	if err := atomicfile.Write(path, readable, o); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// synchronise has what was written to a file outlast a loss of power.
func synchronise(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // some systems want it open for writing
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeJSON writes v as JSON, whole or not at all.
func writeJSON(path string, v any) error {
	p, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, func(f *os.File) error {
		_, err := f.Write(append(p, '\n'))
		return err
	})
}

// readJSON reads what writeJSON wrote.
func readJSON(path string, v any) error {
	p, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(p, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// snapshotName is the file of the parameters after an update.
func snapshotName(update int64) string { return fmt.Sprintf("update-%06d.safetensors", update) }

// writeFloats writes x, little-endian.
func writeFloats(w io.Writer, x []float32) error {
	buf := make([]byte, 0, 4*len(x))
	for _, v := range x {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	_, err := w.Write(buf)
	return err
}

// writeInts writes x, little-endian.
func writeInts(w io.Writer, x []int32) error {
	buf := make([]byte, 0, 4*len(x))
	for _, v := range x {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(v))
	}
	_, err := w.Write(buf)
	return err
}
