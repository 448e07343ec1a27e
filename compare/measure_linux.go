package compare

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivium-ml/trivium/observe/host"
)

// ticks is the unit of processor time in /proc: 100 a second on all that Linux runs on.
const ticks = 100

// readMachine reads what there is of those processes, with all that they started, and of the cores that they may run on; nil: all.
func readMachine(processes []Process, cores []int) reading {
	return readAsOf(processes, cores, descendants)
}

// readAsOf is readMachine with what looks for what processes started. What they say themselves comes first, as near as can be to the reading's time: they
// go on meanwhile, and to look through all processes of a busy machine has taken 0.3 s.
func readAsOf(processes []Process, cores []int, started func([]Process) map[int][]int) reading {
	r := reading{at: time.Now(), processes: processes, cpu: map[int]cpuTime{}, net: map[int][2]int64{}}
	for _, p := range processes {
		r.cpu[p.PID] = processTime(p.PID)
		if p.Iface == "" {
			r.missing = "the processes share the machine's loopback"
			continue
		}
		if n, ok := interfaceBytes(p.PID, p.Iface); ok {
			r.net[p.PID] = n
		} else {
			r.missing = fmt.Sprintf("process %d has no interface %s", p.PID, p.Iface)
		}
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		r.self = cpuTime{seconds(u.Utime), seconds(u.Stime)}
	}
	if p, err := os.ReadFile("/proc/stat"); err == nil {
		r.machine = machineOf(string(p), cores)
	}
	if len(processes) > 0 {
		for pid, children := range started(processes) {
			c := r.cpu[pid]
			for _, child := range children {
				x := processTime(child)
				c.user, c.system = c.user+x.user, c.system+x.system
			}
			r.cpu[pid] = c
		}
	}
	r.throttled, r.hot = throttled(host.Options{}), throttledEvents("/sys/devices/system/cpu")
	return r
}

func seconds(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// descendants are what the processes started, as far as it lives, by the process that it comes from.
func descendants(processes []Process) map[int][]int {
	parent := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if f := statFields(pid); len(f) > 1 {
				parent[pid], _ = strconv.Atoi(f[1]) // of a field of /proc, a number
			}
		}
	}
	out := map[int][]int{}
	for pid := range parent {
		for at, n := parent[pid], 0; at > 1 && n < 32; at, n = parent[at], n+1 {
			if slices.ContainsFunc(processes, func(p Process) bool { return p.PID == at }) {
				out[at] = append(out[at], pid)
				break
			}
		}
	}
	return out
}

// statFields are the fields of /proc/PID/stat from the state on; the name before it may hold anything.
func statFields(pid int) []string {
	p, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(p)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// processStart is when a process began: the boot of the machine, and ticks since then. Empty: there is none.
func processStart(pid int) string {
	const began = 19 // of statFields
	f := statFields(pid)
	if len(f) <= began {
		return ""
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, ticks are better than nothing
	return strings.TrimSpace(string(boot)) + ", " + f[began]
}

// processTime is what a process took, with those of its children that ended: they are in no list of processes any more, and what they took
// while they lived would else be gone from the next reading.
func processTime(pid int) cpuTime {
	f := statFields(pid)
	if len(f) < 15 {
		return cpuTime{}
	}
	var x [4]float64 // user and system, of itself and of its children
	for i := range x {
		x[i], _ = strconv.ParseFloat(f[11+i], 64)
	}
	return cpuTime{(x[0] + x[2]) / ticks, (x[1] + x[3]) / ticks}
}

// residentBytes is the proportional set size of each process that is there, with what it started.
func residentBytes(processes []Process) map[int]float64 {
	children, out := descendants(processes), map[int]float64{}
	for _, p := range processes {
		if n, ok := setSize(p.PID); ok {
			out[p.PID] = n
			for _, child := range children[p.PID] {
				n, _ := setSize(child) // none, once it has ended
				out[p.PID] += n
			}
		}
	}
	return out
}

// setSize is the proportional set size of one process.
func setSize(pid int) (float64, bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb * 1024, err == nil
		}
	}
	return 0, false
}

// interfaceBytes are what came in and went out of an interface in the namespace of a process.
func interfaceBytes(pid int, iface string) (n [2]int64, ok bool) {
	p, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return n, false
	}
	for line := range strings.Lines(string(p)) {
		name, rest, found := strings.Cut(line, ":")
		if !found || strings.TrimSpace(name) != iface {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 9 {
			return n, false
		}
		in, err1 := strconv.ParseInt(f[0], 10, 64)
		out, err2 := strconv.ParseInt(f[8], 10, 64)
		return [2]int64{in, out}, err1 == nil && err2 == nil
	}
	return n, false
}

// machineOf is what /proc/stat says of those cores: a row is bound to them, and what others do on the rest of the machine, as beside a
// container that has a part of it, takes nothing from the row. Where they are all that there are, or are numbered in another way there, it
// is that of the machine.
func machineOf(stat string, cores []int) (all machineTime) {
	var of machineTime
	found, there := 0, 0
	for line := range strings.Lines(stat) {
		if !strings.HasPrefix(line, "cpu") { // they are the first
			break
		}
		f := strings.Fields(line)
		if len(f) < 9 {
			continue
		}
		x := coreTime(f[1:9])
		if f[0] == "cpu" {
			all = x
			continue
		}
		there++
		if n, err := strconv.Atoi(f[0][len("cpu"):]); err == nil && slices.Contains(cores, n) {
			found++
			of = machineTime{of.busy + x.busy, of.steal + x.steal, of.all + x.all}
		}
	}
	if found == 0 || found < len(cores) || found == there {
		return all
	}
	return of
}

// coreTime are the fields of a line: user nice system idle iowait irq softirq steal.
func coreTime(fields []string) (m machineTime) {
	for i, s := range fields {
		x, _ := strconv.ParseFloat(s, 64)
		x /= ticks
		m.all += x
		switch i {
		case 3, 4:
		case 7:
			m.steal += x
		default:
			m.busy += x
		}
	}
	return m
}

// throttled is how long the control group of this process, in which those of a trial are too, was held back, where it says so.
func throttled(o host.Options) time.Duration {
	figures, _ := host.NewReader(o).Read() // what could not be read is zero
	return figures.Throttled
}

// ownCores are those that this process may run on.
func ownCores() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var list []int
	for i := range 1024 {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// freeMemory is what this process and its children may still take, in bytes: what the machine has left, or the limit of their control group,
// less what this process has.
func freeMemory(o host.Options) (int64, bool) {
	free, ok := machineMemory(filepath.Join("/", o.Root, "proc/meminfo"))
	facts, _ := host.Describe(o) // what could not be read is zero
	if facts.MemoryLimit > 0 {
		figures, _ := host.NewReader(o).Read() // likewise
		free = min(free, max(0, int64(facts.MemoryLimit)-int64(figures.ResidentBytes)))
	}
	return free, ok
}

// machineMemory is what the machine has left, in bytes, as its file meminfo says.
func machineMemory(meminfo string) (int64, bool) {
	p, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(p)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

// freeDisk is what the file system of dir has left, in bytes.
func freeDisk(dir string) (int64, bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
