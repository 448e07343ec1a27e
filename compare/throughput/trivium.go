package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/local"
)

// serve answers each line "TASK BATCH SECONDS" with "rate N", as turns.py does for the peers.
func serve(in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	sets := map[bool]data.Dataset{} // by whether it is the logistic one
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 3 {
			return fmt.Errorf("want a task, a batch and seconds, found %q", lines.Text())
		}
		logistic := words[0] == "logistic"
		if sets[logistic] == nil {
			clear(sets)
			set, err := rows(logistic)
			if err != nil {
				return err
			}
			sets[logistic] = set
		}
		seconds, err := strconv.ParseFloat(words[2], 64)
		rate := 0.0
		if err == nil {
			rate, err = trial(sets[logistic], words[0], words[1], seconds)
		}
		if rate == 0 {
			_, err = fmt.Fprintln(out, "failed", err)
		} else {
			_, err = fmt.Fprintln(out, "rate", rate)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// digitsFile is the environment variable that names the file of images, float32 in the machine's order, where tasks have them.
const digitsFile = "DIGITS"

// digitRows and digitCols are what of them there is.
const digitRows, digitCols = 10_000, 784

// writeDigits writes generated images to a file, and returns its name.
func writeDigits() (string, error) {
	f, err := os.CreateTemp("", "throughput-*.f32")
	if err != nil {
		return "", err
	}
	out := bufio.NewWriter(f)
	var pixels [digitCols]byte
	for i := range int64(digitRows) {
		data.Digit(pixels[:], i)
		for _, p := range pixels {
			if err := binary.Write(out, binary.NativeEndian, float32(p)/255); err != nil {
				return "", errors.Join(err, f.Close(), os.Remove(f.Name()))
			}
		}
	}
	return f.Name(), errors.Join(out.Flush(), f.Close())
}

// rows is a task's data: noise of its shape, or the images.
func rows(logistic bool) (data.Dataset, error) {
	rows, cols, classes := digitRows, digitCols, 10
	if logistic {
		cols, classes = 10_000, 2
	}
	x := tensor.Aligned[float32](rows * cols)
	if file := os.Getenv(digitsFile); file != "" && !logistic {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := binary.Read(bufio.NewReader(f), binary.NativeEndian, x); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	} else {
		for i := range x {
			if x[i] = draw.Unit(42, 0, uint64(i)); !logistic {
				x[i] = (x[i] + 1) / 2
			}
		}
	}
	class := make([]int32, rows)
	for i := range class {
		class[i] = int32(draw.Below(42, 1, uint64(i), uint64(classes)))
	}
	schema := trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{cols}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: classes},
	}
	return data.Memory(schema, trivium.Batch{
		Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{cols}, Values: x}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: classes, Class: class},
	}), nil
}

// trial trains for the given time after half as long a warm-up, and returns samples/s.
func trial(set data.Dataset, task, batch string, seconds float64) (float64, error) {
	job := &trivium.Job{
		Version: trivium.JobVersion, Model: task, Batch: trivium.FullBatch, Epochs: 1 << 30, Seed: 42,
		Data:      trivium.Data{Source: "memory", Order: "index"},
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1},
	}
	if batch != "full" {
		var err error
		if job.Batch, err = strconv.Atoi(batch); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var began time.Time
	var from, rate float64
	env := train.Env{Splits: &data.Splits{Train: set}, Watch: train.Watch{Progress: func(p train.Progress) {
		switch s := p.Elapsed.Seconds(); {
		case rate > 0:
		case began.IsZero() && s >= seconds/2:
			began, from = time.Now(), float64(p.Samples)
		case !began.IsZero() && time.Since(began).Seconds() >= seconds:
			rate = (float64(p.Samples) - from) / time.Since(began).Seconds()
			cancel()
		}
	}}}
	_, err := local.New(env, local.Options{}).Train(ctx, job)
	return rate, err
}
