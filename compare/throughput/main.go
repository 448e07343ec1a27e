// Command throughput measures training of the evaluation's tasks in one process, beside PyTorch, TensorFlow and MXNet on the same
// cores: each trial is a process of its own, the systems take turns, and the table has medians with minimum and maximum.
//
//	go run ./compare/throughput -pytorch PYTHON -tensorflow PYTHON -mxnet PYTHON
//
// Each flag is the Python of an environment with that system (README.md beside this file); a system without one is left out, and the
// table says so. Ours is train/local as the command runs it: data in memory in index order, SGD at 0.1, observation off.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

// A variant is one way to run a system: its program, Python and further arguments.
type variant struct {
	system  string
	command func(task, batch string, seconds float64) *exec.Cmd
}

func main() {
	pytorch := flag.String("pytorch", "", "Python with torch")
	tensorflow := flag.String("tensorflow", "", "Python with tensorflow")
	mxnet := flag.String("mxnet", "", "Python with mxnet 1.9")
	tasks := flag.String("tasks", "softmax;mlp:100;mlp:128,32;logistic", "tasks, by semicolon")
	only := flag.String("batches", "", "batches, by comma; empty: 100 and 500, and full for logistic")
	rounds := flag.Int("rounds", 5, "trials of each cell")
	seconds := flag.Float64("seconds", 2, "measured time of a trial")
	scripts := flag.String("scripts", "compare/throughput", "where the peers' programs are")
	self := flag.String("self", "", "TASK/BATCH: run one trial of ours and print samples/s")
	flag.Parse()
	if *self != "" {
		task, batch, _ := strings.Cut(*self, "/")
		rate, err := trial(task, batch, *seconds)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(rate)
		return
	}
	variants := []variant{{"trivium", func(task, batch string, seconds float64) *exec.Cmd {
		return exec.Command(os.Args[0], "-self", task+"/"+batch, "-seconds", fmt.Sprint(seconds))
	}}}
	peer := func(system, python, script string, more ...string) {
		if python == "" {
			fmt.Printf("%s: left out, no Python given\n", system)
			return
		}
		for threads := 1; threads <= runtime.NumCPU(); threads *= 2 {
			variants = append(variants, variant{system, func(task, batch string, seconds float64) *exec.Cmd {
				args := []string{filepath.Join(*scripts, script), task, batch, strconv.Itoa(threads), fmt.Sprint(seconds)}
				return exec.Command(python, append(args, more...)...)
			}})
		}
	}
	peer("pytorch", *pytorch, "pytorch.py")
	peer("tensorflow", *tensorflow, "tensorflow_function.py")
	peer("tensorflow", *tensorflow, "tensorflow_function.py", "xla")
	peer("mxnet", *mxnet, "mxnet_module.py")
	for task := range strings.SplitSeq(*tasks, ";") {
		batches := []string{"100", "500"}
		if task == "logistic" {
			batches = append(batches, "full")
		}
		if *only != "" {
			batches = strings.Split(*only, ",")
		}
		for _, batch := range batches {
			cell(variants, task, batch, *rounds, *seconds)
		}
	}
}

// cell runs the variants in turn and prints the best variant of each system, with our ratio to it.
func cell(variants []variant, task, batch string, rounds int, seconds float64) {
	rates := make([][]float64, len(variants))
	for range rounds {
		for i, v := range variants {
			if v.system == "mxnet" && task == "logistic" {
				continue
			}
			var stderr bytes.Buffer
			c := v.command(task, batch, seconds)
			c.Stderr = &stderr
			out, err := c.Output()
			rate, parseErr := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			if err != nil || parseErr != nil {
				fmt.Printf("%s %s/%s failed: %v %s\n", v.system, task, batch, err, lastLine(stderr.String()))
				continue
			}
			rates[i] = append(rates[i], rate)
		}
	}
	best := map[string][]float64{}
	for i, v := range variants {
		if slices.Sort(rates[i]); len(rates[i]) > 0 && (best[v.system] == nil || median(rates[i]) > median(best[v.system])) {
			best[v.system] = rates[i]
		}
	}
	ours := best["trivium"]
	for _, system := range []string{"trivium", "pytorch", "tensorflow", "mxnet"} {
		if r := best[system]; r != nil {
			fmt.Printf("%-10s batch %-4s  %-10s %9.0f [%.0f to %.0f] samples/s", task, batch, system, median(r), r[0], r[len(r)-1])
			if system != "trivium" && ours != nil {
				fmt.Printf("   ours is %.2f times", median(ours)/median(r))
			}
			fmt.Println()
		}
	}
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// trial trains for the given time after half as long a warm-up, and returns samples/s.
func trial(task, batch string, seconds float64) (float64, error) {
	rows, cols, classes := 10_000, 784, 10
	if task == "logistic" {
		cols, classes = 10_000, 2
	}
	x := tensor.Aligned[float32](rows * cols)
	for i := range x {
		if x[i] = draw.Unit(42, 0, uint64(i)); task != "logistic" {
			x[i] = (x[i] + 1) / 2
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
	set := data.Memory(schema, trivium.Batch{
		Rows: rows, Inputs: []trivium.Input{{Name: "x", Shape: []int{cols}, Values: x}},
		Labels: trivium.Labels{Kind: trivium.Class, Width: classes, Class: class},
	})
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
