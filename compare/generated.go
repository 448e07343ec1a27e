package compare

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// generatedSource is the source of digits that are drawn as they are read. To draw all of them takes a processor a second and more: too
// long for each process of each trial, so a comparison draws them once, and its processes read the files.
const generatedSource = "digits"

// drawn writes the generated digits of a task as MNIST's four files, once, and returns the data to train on: the same rows, byte for byte.
// Other data, and a part of the digits, is as it was.
func drawn(ctx context.Context, d trivium.Data, dir string) (trivium.Data, error) {
	if !reflect.DeepEqual(d, trivium.Data{Source: generatedSource, Order: d.Order}) {
		return d, nil
	}
	to := d
	to.Source = filepath.Join(dir, generatedSource)
	last := filepath.Join(to.Source, "t10k-labels-idx1-ubyte")
	if _, err := os.Stat(last); err == nil {
		return to, nil
	}
	if err := os.MkdirAll(to.Source, 0o755); err != nil {
		return d, err
	}
	splits, err := data.Digits(ctx, d)
	if err != nil {
		return d, err
	}
	defer splits.Close() // it was only read
	err = errors.Join(
		writeImages(ctx, to.Source, "train", splits.Train),
		writeImages(ctx, to.Source, "t10k", splits.Test), // its labels are the last file
	)
	return to, err
}

// writeImages writes rows of 28 × 28 pixels and their labels in LeCun's format.
func writeImages(ctx context.Context, dir, name string, ds data.Dataset) error {
	const side = 28
	labels := make([]byte, 0, ds.Rows())
	err := writeFile(filepath.Join(dir, name+"-images-idx3-ubyte"), func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		head := []uint32{2051, uint32(ds.Rows()), side, side}
		if err := binary.Write(w, binary.BigEndian, head); err != nil {
			return err
		}
		pixels := make([]byte, 0, 256*side*side)
		for b, err := range data.Batches(ctx, ds, data.BatchOptions{Batch: 256}) {
			if err != nil {
				return err
			}
			pixels = pixels[:0]
			for _, v := range b.Inputs[0].Values[:b.Rows*side*side] {
				pixels = append(pixels, byte(math.Round(float64(v)*255)))
			}
			if _, err := w.Write(pixels); err != nil {
				return err
			}
			for _, c := range b.Labels.Class[:b.Rows] {
				labels = append(labels, byte(c))
			}
		}
		return w.Flush()
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, name+"-labels-idx1-ubyte"), func(f *os.File) error {
		err := binary.Write(f, binary.BigEndian, []uint32{2049, uint32(len(labels))})
		_, err2 := f.Write(labels)
		return errors.Join(err, err2)
	})
}
