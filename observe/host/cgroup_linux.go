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

// A cgroup is where the files of this process's control groups are. In version 2 there is one, in version 1 one for each hierarchy of
// controllers; a system may have both, each controller in one of them.
type cgroup struct{ cpu, memory controller }

// A controller has its files in dir, and those of its ancestors from there up to root.
type controller struct {
	version   int // 0: there is none
	dir, root string
}

func findCgroup(o Options, proc procfs.FS) (g cgroup, err error) {
	self, err := proc.Self()
	if err != nil {
		return g, err
	}
	groups, err := self.Cgroups()
	if err != nil {
		return g, fmt.Errorf("control groups: %w", err)
	}
	mounts := filepath.Join(o.root(), "sys/fs/cgroup")
	for _, c := range groups {
		if slices.Contains(c.Controllers, "cpu") {
			g.cpu = controllerIn(1, mount(mounts, "cpu", strings.Join(c.Controllers, ","), "cpu,cpuacct", "cpuacct,cpu"), c.Path)
		}
		if slices.Contains(c.Controllers, "memory") {
			g.memory = controllerIn(1, mount(mounts, "memory", strings.Join(c.Controllers, ",")), c.Path)
		}
	}
	for _, c := range groups {
		if c.HierarchyID != 0 {
			continue
		}
		second := mounts // beside hierarchies of version 1, that of version 2 has a folder of its own
		if g.version() == 1 {
			second = mount(mounts, "unified")
		}
		for _, x := range []*controller{&g.cpu, &g.memory} {
			if x.version == 0 {
				*x = controllerIn(2, second, c.Path)
			}
		}
	}
	return g, nil
}

func controllerIn(version int, root, path string) controller {
	return controller{version, within(root, path), root}
}

// version is 1 where any controller is of that; 0: there are none.
func (g *cgroup) version() int {
	if g.cpu.version == 1 || g.memory.version == 1 {
		return 1
	}
	return max(g.cpu.version, g.memory.version)
}

// mount returns the first folder under root that exists.
func mount(root string, names ...string) string {
	for _, n := range names {
		if _, err := os.Stat(filepath.Join(root, n)); err == nil {
			return filepath.Join(root, n)
		}
	}
	return filepath.Join(root, names[0])
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
	g.cpu.upward(func(dir string) {
		if c, ok := g.cpu.cores(dir); ok {
			cores = min(cores, c)
		}
	})
	g.memory.upward(func(dir string) {
		name := "memory.max"
		if g.memory.version == 1 {
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

// cores is the limit of processors that a folder of c has.
func (c *controller) cores(dir string) (float64, bool) {
	var words []string
	if c.version == 2 {
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
	if g.cpu.version == 0 {
		return 0
	}
	p, err := os.ReadFile(filepath.Join(g.cpu.dir, "cpu.stat"))
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

// upward calls f with the folder of c and its ancestors up to the root.
func (c *controller) upward(f func(dir string)) {
	if c.version == 0 {
		return
	}
	for dir := c.dir; ; dir = filepath.Dir(dir) {
		f(dir)
		if len(dir) <= len(c.root) {
			return
		}
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
