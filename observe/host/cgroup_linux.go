package host

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// A cgroup is where the files of this process's control group are: one folder in version 2, one a controller in version 1.
type cgroup struct {
	version     int    // 0: none
	root        string // of the controllers' file systems
	cpu, memory string // folders
	cpuRoot     string // where the search for limits of ancestors ends
	memoryRoot  string
}

func findCgroup(o Options, proc procfs.FS) (cgroup, error) {
	self, err := proc.Self()
	if err != nil {
		return cgroup{}, err
	}
	groups, err := self.Cgroups()
	if err != nil {
		return cgroup{}, fmt.Errorf("control groups: %w", err)
	}
	g := cgroup{root: filepath.Join(o.root(), "sys/fs/cgroup")}
	for _, c := range groups {
		switch {
		case slices.Contains(c.Controllers, "cpu"):
			g.cpuRoot = g.mount("cpu", "cpu,cpuacct", "cpuacct,cpu")
			g.cpu, g.version = within(g.cpuRoot, c.Path), 1
		case slices.Contains(c.Controllers, "memory"):
			g.memoryRoot = g.mount("memory")
			g.memory, g.version = within(g.memoryRoot, c.Path), 1
		}
	}
	if g.version == 1 {
		return g, nil
	}
	for _, c := range groups {
		if c.HierarchyID == 0 { // version 2
			g.cpuRoot, g.memoryRoot, g.version = g.root, g.root, 2
			g.cpu = within(g.root, c.Path)
			g.memory = g.cpu
		}
	}
	return g, nil
}

// mount returns the first folder under the root that exists.
func (g *cgroup) mount(names ...string) string {
	for _, n := range names {
		if _, err := os.Stat(filepath.Join(g.root, n)); err == nil {
			return filepath.Join(g.root, n)
		}
	}
	return filepath.Join(g.root, names[0])
}

// within returns the folder of a group. In a container, the path may be the host's, of which only the container's own part is
// mounted: then that is the root. One above the container's begins with /.., which leads nowhere from there.
func within(root, path string) string {
	dir := filepath.Join(root, filepath.Join("/", path))
	if _, err := os.Stat(dir); err != nil {
		return root
	}
	return dir
}

// limits returns the smallest limit of the group and its ancestors.
func (g *cgroup) limits() (cores float64, memory uint64) {
	cores, memory = math.Inf(1), math.MaxUint64
	upward(g.cpu, g.cpuRoot, func(dir string) {
		if c, ok := g.cpuLimit(dir); ok {
			cores = min(cores, c)
		}
	})
	upward(g.memory, g.memoryRoot, func(dir string) {
		name := "memory.max"
		if g.version == 1 {
			name = "memory.limit_in_bytes"
		}
		if words := readWords(filepath.Join(dir, name)); len(words) == 1 {
			// Version 1 says no limit by a number near 2⁶³, rounded to pages.
			if n, err := strconv.ParseUint(words[0], 10, 64); err == nil && n < 1<<62 {
				memory = min(memory, n)
			}
		}
	})
	if math.IsInf(cores, 1) {
		cores = 0
	}
	if memory == math.MaxUint64 {
		memory = 0
	}
	return cores, memory
}

func (g *cgroup) cpuLimit(dir string) (float64, bool) {
	var words []string
	if g.version == 2 {
		words = readWords(filepath.Join(dir, "cpu.max")) // "max 100000" or "150000 100000"
	} else {
		words = append(readWords(filepath.Join(dir, "cpu.cfs_quota_us")), readWords(filepath.Join(dir, "cpu.cfs_period_us"))...)
	}
	if len(words) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseFloat(words[0], 64)
	period, err2 := strconv.ParseFloat(words[1], 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		return 0, false
	}
	return quota / period, true
}

// throttled returns how long the group was held back.
func (g *cgroup) throttled() time.Duration {
	p, err := os.ReadFile(filepath.Join(g.cpu, "cpu.stat"))
	if err != nil {
		return 0 // no such file at the root of a hierarchy: nobody throttles it
	}
	in := bufio.NewScanner(bytes.NewReader(p))
	for in.Scan() {
		key, value, _ := strings.Cut(in.Text(), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case key == "throttled_usec":
			return time.Duration(n) * time.Microsecond
		case key == "throttled_time": // version 1
			return time.Duration(n)
		}
	}
	return 0
}

// upward calls f with dir and its ancestors down to root.
func upward(dir, root string, f func(dir string)) {
	for {
		f(dir)
		if dir == root || len(dir) <= len(root) {
			return
		}
		dir = filepath.Dir(dir)
	}
}

// readWords returns the words of a small file, none if it cannot be read: a group without a controller lacks its files.
func readWords(name string) []string {
	p, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(p))
}
