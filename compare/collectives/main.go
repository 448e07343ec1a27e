// Command collectives measures an allreduce of float32 sums among processes of one machine, over TCP and in shared memory, beside Gloo's
// native benchmark, PyTorch's c10d with Gloo, and Open MPI.
//
//	go run ./compare/collectives -gloo BENCHMARK -pytorch PYTHON -mpi PROGRAM
//
// README.md beside this file says where each comes from; a system without its flag is left out, and the table says so. In each cell (bytes,
// processes) a scouting round finds the two best algorithms of each peer; then all take turns in short windows. What counts is the median of
// the iterations of a window at rank 0, and of the windows once their median and once the lowest, which is least disturbed by other load.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/internal/median"
)

// A system is one way to do an allreduce: a library with a transport and an algorithm.
type system interface {
	// run does count iterations among ranks processes, and returns the median of their times at rank 0.
	run(ctx context.Context, ranks, bytes, count int) (time.Duration, error)
}

// A column of the table is a library over one transport: the best of its algorithms counts.
type column struct {
	name  string
	ways  []way
	ratio bool // set beside Gloo: ours
}

// A way is one algorithm.
type way struct {
	name string
	system
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "child" {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "collectives: child:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 4 && os.Args[1] == "on" {
		if err := on(os.Args[2], os.Args[3], os.Args[4:]); err != nil {
			fmt.Fprintln(os.Stderr, "collectives: on:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.gloo, "gloo", "", "Gloo's benchmark program")
	flag.StringVar(&o.pytorch, "pytorch", "", "Python with torch")
	flag.StringVar(&o.mpi, "mpi", "", "mpi_allreduce.c, compiled; mpirun must be in the path")
	flag.IntVar(&o.windows, "windows", 9, "windows of each way")
	flag.DurationVar(&o.window, "window", 150*time.Millisecond, "length of a window, about")
	flag.IntVar(&o.threads, "procs", 0, "GOMAXPROCS of our processes; 0: the cores divided among them")
	sizes := flag.String("sizes", "1024,262144,4194304,33554432", "bytes, by comma")
	ranks := flag.String("ranks", "2,4", "processes, by comma")
	only := flag.String("only", "", "columns, by comma; empty: all")
	flag.Parse()
	err := errors.Join(numbers(*sizes, &o.sizes), numbers(*ranks, &o.ranks))
	if err == nil {
		err = o.compare(context.Background(), *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "collectives:", err)
		os.Exit(1)
	}
}

type options struct {
	gloo, pytorch, mpi string
	windows, threads   int
	window             time.Duration
	sizes, ranks       []int
}

func numbers(s string, to *[]int) error {
	for f := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no list of numbers above 0", s)
		}
		*to = append(*to, n)
	}
	return nil
}

func (o *options) compare(ctx context.Context, only string) error {
	dir, err := os.MkdirTemp("", "collectives")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %d cores, load %s\n", runtime.Version(), runtime.NumCPU(), load())
	t := table{}
	for _, ranks := range o.ranks {
		columns, stop, err := o.columns(dir, ranks)
		if err != nil {
			return errors.Join(err, stop())
		}
		columns = slices.DeleteFunc(columns, func(c column) bool { return only != "" && !slices.Contains(strings.Split(only, ","), c.name) })
		for _, bytes := range o.sizes {
			c, err := o.cell(ctx, columns, ranks, bytes)
			if err != nil {
				return errors.Join(fmt.Errorf("%d bytes, %d processes: %w", bytes, ranks, err), stop())
			}
			t = append(t, c)
			c.print(os.Stdout)
		}
		if err := stop(); err != nil {
			return err
		}
	}
	fmt.Println()
	t.print(os.Stdout)
	fmt.Println("load at the end:", load())
	return nil
}

// columns starts what stays for all sizes, and returns what stops it.
func (o *options) columns(dir string, ranks int) ([]column, func() error, error) {
	var list []column
	var end []func() error
	stop := func() error {
		var err error
		for _, f := range end {
			err = errors.Join(err, f())
		}
		return err
	}
	for _, c := range []struct{ name, network, how string }{
		{"tcp", "tcp", "commit"}, {"tcp-step", "tcp", "step"}, {"shared", "shared", "commit"}, {"shared-step", "shared", "step"}, {"in-place", "inside", "commit"},
	} {
		crew, err := newCrew(dir, c.network, c.how, ranks, o.threads)
		if err != nil {
			return nil, stop, err
		}
		end = append(end, crew.close)
		list = append(list, column{c.name, []way{{c.how, crew}}, true})
	}
	if o.gloo != "" {
		g := column{name: "gloo"}
		for _, a := range []string{"allreduce_ring", "allreduce_ring_chunked", "allreduce_halving_doubling", "allreduce_bcube", "new_allreduce_ring"} {
			name := strings.Replace(a, "allreduce_", "", 1)
			g.ways = append(g.ways, way{name, &gloo{o.gloo, dir, a, 0}})
			if n := coresEach(ranks); n > 0 {
				g.ways = append(g.ways, way{name + ", bound", &gloo{o.gloo, dir, a, n}})
			}
		}
		list = append(list, g)
	} else {
		fmt.Println("gloo: not run here: no -gloo")
	}
	if o.pytorch != "" {
		p, err := newPyTorch(o.pytorch, dir, ranks)
		if err != nil {
			return nil, stop, err
		}
		end = append(end, p.close)
		list = append(list, column{"c10d", []way{{"gloo", p}}, false})
	} else {
		fmt.Println("c10d: not run here: no -pytorch")
	}
	if o.mpi != "" {
		for _, btl := range []string{"tcp", "vader"} {
			c := column{name: "mpi-" + btl}
			for i, name := range openMPI {
				c.ways = append(c.ways, way{name, &mpi{o.mpi, btl, i}})
			}
			list = append(list, c)
		}
	} else {
		fmt.Println("mpi: not run here: no -mpi")
	}
	return list, stop, nil
}

// mostOps bound a window: a peer that polls may, where others compute too, take a time slice for each.
const mostOps = 500

// hopeless is how many times as long as the fastest an algorithm may take at first: who takes longer is not scouted any further.
const hopeless = 5

// cell measures one size. Ways that a scouting round finds slow take no part in the windows.
func (o *options) cell(ctx context.Context, columns []column, ranks, bytes int) (*cell, error) {
	c := &cell{ranks: ranks, bytes: bytes}
	type runner struct {
		way
		column *timing
		count  int
		scout  time.Duration
		took   []time.Duration
	}
	var all []*runner
	for _, col := range columns {
		t := &timing{name: col.name, ratio: col.ratio}
		c.columns = append(c.columns, t)
		var list []*runner
		var first time.Duration // of the fastest
		for _, w := range col.ways {
			r := &runner{way: w, column: t}
			d, err := w.run(ctx, ranks, bytes, 3)
			if first == 0 || d > 0 && d < first {
				first = d
			}
			for range 2 {
				if err == nil && d <= hopeless*first {
					r.count = min(max(int(o.window/max(d, time.Microsecond)), 3), mostOps)
					d, err = w.run(ctx, ranks, bytes, max(3, r.count/3))
				}
			}
			if err != nil {
				if ctx.Err() != nil || col.ratio {
					return nil, fmt.Errorf("%s, %s: %w", col.name, w.name, err)
				}
				fmt.Printf("%s, %s: left out at %d bytes, %d processes: %v\n", col.name, w.name, bytes, ranks, err)
				continue
			}
			r.count = min(max(int(o.window/max(d, time.Microsecond)), 3), mostOps)
			r.scout = d
			list = append(list, r)
		}
		slices.SortFunc(list, func(a, b *runner) int { return cmp.Compare(a.scout, b.scout) })
		all = append(all, list[:min(2, len(list))]...)
	}
	for w := range o.windows {
		for i := range all {
			r := all[(i+w)%len(all)] // nobody always follows the same
			d, err := r.run(ctx, ranks, bytes, r.count)
			if err != nil && !r.column.ratio { // a peer's program that fails now and then has the other windows
				fmt.Printf("%s, %s: a window fails: %v\n", r.column.name, r.name, err)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", r.column.name, r.name, err)
			}
			r.took = append(r.took, d)
			if c, ok := r.system.(*crew); ok {
				r.column.cpu = append(r.column.cpu, c.cpu)
				r.name = c.plan
			}
		}
	}
	for _, r := range all {
		if len(r.took) == 0 {
			continue
		}
		slices.Sort(r.took)
		r.column.note(r.name, median.Of(r.took), r.took[0])
	}
	return c, nil
}

// load is what other processes ask of the machine.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(b))[:1], " ")
}
