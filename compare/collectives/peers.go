package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trivium-ml/trivium/internal/cores"
)

// patience is how long a window of a peer may take: one that polls while others compute takes very long.
const patience = 20 * time.Second

// coresEach is how many cores each process has for itself; 0: there are more processes, or cores would be left.
func coresEach(ranks int) int {
	if n := runtime.NumCPU() / ranks; n*ranks == runtime.NumCPU() {
		return n
	}
	return 0
}

// on is a program in place of this process, on n cores from the from-th on.
func on(from, n string, args []string) error {
	f, err := strconv.Atoi(from)
	k, err2 := strconv.Atoi(n)
	path, err3 := exec.LookPath(args[0])
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	runtime.LockOSThread() // whose cores the program gets
	if !cores.Keep(context.Background(), f, k) {
		return fmt.Errorf("there are no %d cores from core %d on to keep to", k, f)
	}
	return syscall.Exec(path, args, os.Environ())
}

// gloo is one algorithm of Gloo's benchmark: processes of their own for every window, over loopback TCP.
type gloo struct {
	program, dir, algorithm string
	cores                   int // for each process; 0: all
}

func (g *gloo) run(ctx context.Context, ranks, size, count int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(g.dir, "gloo")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var first bytes.Buffer
	var all []*exec.Cmd
	for r := range ranks {
		cmd := exec.CommandContext(ctx, g.program, "--size", strconv.Itoa(ranks), "--rank", strconv.Itoa(r), "--shared-path", dir, "--prefix", "a",
			"--transport", "tcp", "--tcp-device", "lo", "--elements", strconv.Itoa(size/4), "--iteration-count", strconv.Itoa(count),
			"--warmup-iters", "2", "--no-verify", "--nanos", g.algorithm)
		if g.cores > 0 {
			cmd = exec.CommandContext(ctx, self, append([]string{"on", strconv.Itoa(r * g.cores), strconv.Itoa(g.cores)}, cmd.Args...)...)
		}
		if r == 0 {
			cmd.Stdout = &first
		}
		if err = cmd.Start(); err != nil {
			break
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if e := cmd.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", g.program, e))
			cancel()
		}
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(first.String()) {
		f := strings.Fields(line) // size, elements, min, p50, p99, max, bandwidth, iterations
		if len(f) == 8 && f[0] == strconv.Itoa(size/4*4) {
			n, err := strconv.ParseInt(f[3], 10, 64)
			return time.Duration(n), err
		}
	}
	return 0, fmt.Errorf("%s printed no times: %q", g.program, first.String())
}

// openMPI are the algorithms that coll_tuned_allreduce_algorithm counts; 0 leaves the choice to Open MPI.
var openMPI = []string{"default", "linear", "nonoverlapping", "recursive-doubling", "ring", "segmented-ring", "rabenseifner"}

// mpi is one of Open MPI's algorithms over one of its byte transfer layers.
type mpi struct {
	program, btl string
	algorithm    int
}

func (m *mpi) run(ctx context.Context, ranks, size, count int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", strconv.Itoa(ranks), "--mca", "pml", "ob1", "--mca", "btl", m.btl + ",self"}
	if m.btl == "tcp" {
		args = append(args, "--mca", "btl_tcp_if_include", "lo")
	}
	if m.algorithm > 0 {
		args = append(args, "--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", strconv.Itoa(m.algorithm))
	}
	cmd := exec.CommandContext(ctx, "mpirun", append(args, m.program, strconv.Itoa(size), strconv.Itoa(count))...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("mpirun: %w: %s", err, errs.String())
	}
	s, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return time.Duration(s * 1e9), err
}

//go:embed peers/c10d.py
var c10d string

// A pyTorch is processes of c10d that stay.
type pyTorch struct {
	all []*exec.Cmd
	in  []io.WriteCloser
	out *bufio.Scanner
}

func newPyTorch(python, dir string, ranks int) (*pyTorch, error) {
	p := &pyTorch{}
	store := filepath.Join(dir, fmt.Sprintf("torch-%d", ranks))
	for r := range ranks {
		cmd := exec.Command(python, "-c", c10d, strconv.Itoa(r), strconv.Itoa(ranks), store)
		cmd.Stderr = os.Stderr
		cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo")
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if r == 0 {
			p.out = bufio.NewScanner(out)
		}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.all, p.in = append(p.all, cmd), append(p.in, in)
	}
	return p, nil
}

func (p *pyTorch) run(_ context.Context, _, size, count int) (time.Duration, error) {
	for _, in := range p.in {
		if _, err := fmt.Fprintln(in, size, count); err != nil {
			return 0, err
		}
	}
	if !p.out.Scan() {
		return 0, errors.Join(errors.New("c10d.py ended"), p.out.Err())
	}
	s, err := strconv.ParseFloat(p.out.Text(), 64)
	return time.Duration(s * 1e9), err
}

func (p *pyTorch) close() error {
	for _, in := range p.in {
		_ = in.Close() // they end
	}
	var err error
	for _, cmd := range p.all {
		err = errors.Join(err, cmd.Wait())
	}
	return err
}
