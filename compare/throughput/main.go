// Command throughput measures training of the evaluation's tasks in one process, beside PyTorch, TensorFlow and MXNet on the same
// cores: each system at each thread count is a process of its own, they take turns cell by cell, and the table has medians with minimum
// and maximum.
//
//	go run ./compare/throughput -pytorch PYTHON -tensorflow PYTHON -mxnet PYTHON
//
// Each flag is the Python of an environment with that system (README.md beside this file); a system without one is left out, and the
// table says so. Ours is train/local as the command runs it: data in memory in index order, SGD at 0.1, observation off. Inputs are noise, or,
// with -digits, generated images of MNIST's shape, which are mostly zeros; all systems have the same images.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/median"
)

// A contestant is a process that trains what it is told to, and says how fast.
type contestant struct {
	system string
	kinds  []string // ways to run it that the process is asked for, such as xla; "" is the plain one
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr string // a file
}

func main() {
	pytorch := flag.String("pytorch", "", "Python with torch")
	tensorflow := flag.String("tensorflow", "", "Python with tensorflow")
	mxnet := flag.String("mxnet", "", "Python with mxnet 1.9")
	tasks := flag.String("tasks", "softmax;mlp:100;mlp:128,32;logistic", "tasks, by semicolon")
	only := flag.String("batches", "", "batches, by comma; empty: 100 and 500, and full for logistic")
	rounds := flag.Int("rounds", 5, "trials of each cell, after one that warms up and does not count")
	seconds := flag.Float64("seconds", 1, "measured time of a trial; half as much goes before it")
	images := flag.Bool("digits", false, "inputs of the tasks but logistic are generated digits, mostly zeros, in place of noise")
	step := flag.Bool("step", false, "wait for Enter before each round, so that rounds can be taken while the machine is quiet")
	scripts := flag.String("scripts", "compare/throughput", "where the peers' programs are")
	self := flag.Bool("self", false, "be one of the processes: ours")
	flag.Parse()
	var err error
	if *self {
		err = serve(os.Stdin, os.Stdout)
	} else {
		err = run(map[string]string{"pytorch.py": *pytorch, "tensorflow_function.py": *tensorflow, "mxnet_module.py": *mxnet},
			cells(*tasks, *only), *rounds, *seconds, *step, *scripts, *images)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "throughput:", err)
		os.Exit(1)
	}
}

// A cell is a row of the table.
type cell struct{ task, batch string }

func cells(tasks, only string) []cell {
	var all []cell
	for task := range strings.SplitSeq(tasks, ";") {
		batches := []string{"100", "500"}
		if task == "logistic" {
			batches = append(batches, "full")
		}
		if only != "" {
			batches = strings.Split(only, ",")
		}
		for _, b := range batches {
			all = append(all, cell{task, b})
		}
	}
	return all
}

// run starts the contestants, takes the rounds, and prints the table.
func run(pythons map[string]string, cells []cell, rounds int, seconds float64, step bool, scripts string, images bool) (err error) {
	digits := ""
	if images {
		if digits, err = writeDigits(); err != nil {
			return err
		}
		defer os.Remove(digits)
	}
	if err := os.Setenv(digitsFile, digits); err != nil { // which all contestants read
		return err
	}
	var all []*contestant
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.stop())
		}
	}()
	add := func(system string, kinds []string, name string, args ...string) error {
		c := &contestant{system: system, kinds: kinds, cmd: exec.Command(name, args...)}
		if err := c.start(); err != nil {
			return fmt.Errorf("%s: %w", system, err)
		}
		all = append(all, c)
		return nil
	}
	if err := add("trivium", []string{""}, os.Args[0], "-self"); err != nil {
		return err
	}
	for _, script := range []string{"pytorch.py", "tensorflow_function.py", "mxnet_module.py"} {
		system, _, _ := strings.Cut(strings.TrimSuffix(script, ".py"), "_")
		kinds := []string{""}
		if system == "tensorflow" {
			kinds = append(kinds, "xla")
		}
		if pythons[script] == "" {
			fmt.Printf("%s: left out, no Python given\n", system)
			continue
		}
		for threads := 1; threads <= runtime.NumCPU(); threads *= 2 {
			if err := add(system, kinds, pythons[script], filepath.Join(scripts, script), strconv.Itoa(threads)); err != nil {
				return err
			}
		}
	}
	rates := map[cell]map[string][]float64{} // by system, process and kind
	enter := bufio.NewScanner(os.Stdin)
	for round := range rounds + 1 {
		took := seconds
		if round == 0 {
			took = 0.01
		}
		if step && round > 0 && !enter.Scan() {
			break
		}
		for _, cell := range cells {
			if rates[cell] == nil {
				rates[cell] = map[string][]float64{}
			}
			for i, c := range all {
				if c.system == "mxnet" && cell.task == "logistic" {
					continue // its Module has no loss for it that the others share
				}
				for _, kind := range c.kinds {
					rate, err := c.trial(cell, took, kind)
					if err != nil {
						return fmt.Errorf("%s, %s at %s: %w", c.system, cell.task, cell.batch, err)
					}
					if round > 0 {
						key := fmt.Sprintf("%s/%d/%s", c.system, i, kind)
						rates[cell][key] = append(rates[cell][key], rate)
					}
				}
			}
		}
		if step || round == rounds {
			for _, cell := range cells {
				print(cell, rates[cell])
			}
		}
		fmt.Printf("round %d of %d done\n", round, rounds)
	}
	return nil
}

// print shows the best way to run each system, and our ratio to it: that of the medians, and the range of those round by round.
func print(c cell, rates map[string][]float64) {
	best := map[string]string{}
	for key, r := range rates {
		system, _, _ := strings.Cut(key, "/")
		if b := best[system]; b == "" || median.Of(r) > median.Of(rates[b]) || median.Of(r) == median.Of(rates[b]) && key < b {
			best[system] = key
		}
	}
	ours := rates[best["trivium"]]
	for _, system := range []string{"trivium", "pytorch", "tensorflow", "mxnet"} {
		r := rates[best[system]]
		if len(r) == 0 {
			continue
		}
		fmt.Printf("%-10s batch %-4s  %-10s %9.0f [%.0f to %.0f] samples/s", c.task, c.batch, system, median.Of(r), slices.Min(r), slices.Max(r))
		if system != "trivium" {
			ratios := make([]float64, len(r))
			for i := range r {
				ratios[i] = ours[i] / r[i]
			}
			fmt.Printf("   ours is %.2f times [%.2f to %.2f]", median.Of(ratios), slices.Min(ratios), slices.Max(ratios))
		}
		fmt.Println()
	}
}

// start starts the process and waits until it is ready.
func (c *contestant) start() error {
	f, err := os.CreateTemp("", "throughput-*.txt")
	if err != nil {
		return err
	}
	defer f.Close()
	c.stderr, c.cmd.Stderr = f.Name(), f
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		return err
	}
	_, err = c.answer("ready")
	return err
}

// answer returns what follows a line's first word, which is to be want.
func (c *contestant) answer(want string) (string, error) {
	for c.out.Scan() {
		switch word, rest, _ := strings.Cut(c.out.Text(), " "); word {
		case want:
			return rest, nil
		case "failed":
			return "", errors.New(rest)
		}
	}
	said, err := os.ReadFile(c.stderr)
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return "", errors.Join(fmt.Errorf("it ended: %s", lines[len(lines)-1]), err)
}

// trial returns samples/s.
func (c *contestant) trial(cell cell, seconds float64, kind string) (float64, error) {
	if _, err := fmt.Fprintln(c.in, cell.task, cell.batch, seconds, kind); err != nil {
		return 0, err
	}
	rate, err := c.answer("rate")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(rate, 64)
}

func (c *contestant) stop() error {
	err := c.in.Close()
	_ = c.cmd.Wait() // what it did counted when it did it
	return errors.Join(err, os.Remove(c.stderr))
}
