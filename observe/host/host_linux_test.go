package host

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A machine is made of its files; proc/self is a link, which neither archives of modules nor all systems keep.
var common = map[string]string{
	"proc/cpuinfo": `processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model		: 143
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping	: 8
cpu MHz		: 2700.000
physical id	: 0
siblings	: 2
core id		: 0
cpu cores	: 1
flags		: fpu avx2 fma avx512f

`,
	"proc/meminfo":              "MemTotal:        8000000 kB\nMemFree:         4000000 kB\n",
	"proc/sys/kernel/osrelease": "6.1.0-28-amd64\n",
	"etc/os-release":            "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
	"proc/4711/stat": "4711 (trivium worker) S 1 4711 4711 0 -1 4194560 1000 0 0 0 250 50 0 0 20 0 8 0 100 1000000000 2048 " +
		"18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
	"proc/4711/io": "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n",
}

func machine(t *testing.T, more map[string]string) Options {
	t.Helper()
	root := t.TempDir()
	files := maps.Clone(common)
	maps.Copy(files, more)
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("4711", filepath.Join(root, "proc/self")); err != nil {
		t.Fatal(err)
	}
	return Options{Root: root}
}

func TestMachines(t *testing.T) {
	for _, c := range []struct {
		name      string
		files     map[string]string
		version   int
		cores     float64
		memory    uint64
		throttled time.Duration
	}{
		{"version 2, limited, an ancestor more so", map[string]string{
			"proc/4711/cgroup":                              "0::/user.slice/job.scope\n",
			"sys/fs/cgroup/user.slice/job.scope/cpu.max":    "250000 100000\n",
			"sys/fs/cgroup/user.slice/cpu.max":              "150000 100000\n",
			"sys/fs/cgroup/user.slice/job.scope/memory.max": "1073741824\n",
			"sys/fs/cgroup/user.slice/memory.max":           "max\n",
			"sys/fs/cgroup/user.slice/job.scope/cpu.stat":   "usage_usec 100\nnr_periods 9\nnr_throttled 3\nthrottled_usec 2500\n",
		}, 2, 1.5, 1 << 30, 2500 * time.Microsecond},
		{"version 2, no limits", map[string]string{
			"proc/4711/cgroup":         "0::/\n",
			"sys/fs/cgroup/cpu.max":    "max 100000\n",
			"sys/fs/cgroup/memory.max": "max\n",
			"sys/fs/cgroup/cpu.stat":   "usage_usec 100\n",
		}, 2, 0, 0, 0},
		{"version 2, the host's path in a container", map[string]string{
			"proc/4711/cgroup":         "0::/kubepods/pod1/abc\n",
			"sys/fs/cgroup/cpu.max":    "50000 100000\n",
			"sys/fs/cgroup/memory.max": "536870912\n",
			"sys/fs/cgroup/cpu.stat":   "throttled_usec 1\n",
		}, 2, 0.5, 1 << 29, time.Microsecond},
		{"version 2, the path of a group outside the container's", map[string]string{
			"proc/4711/cgroup":         "0::/..\n",
			"sys/fs/cgroup/cpu.max":    "50000 100000\n",
			"sys/fs/cgroup/memory.max": "536870912\n",
			"sys/fs/cgroup/cpu.stat":   "throttled_usec 1\n",
		}, 2, 0.5, 1 << 29, time.Microsecond},
		{"version 1", map[string]string{
			"proc/4711/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/system.slice\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us":  "200000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":             "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":            "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat":          "nr_periods 1\nnr_throttled 1\nthrottled_time 7000\n",
			"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes":  "2147483648\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":             "9223372036854771712\n",
		}, 1, 2, 2 << 30, 7 * time.Microsecond},
		{"version 1, both controllers in one hierarchy", map[string]string{
			"proc/4711/cgroup": "3:cpu,memory:/job\n",
			"sys/fs/cgroup/cpu,memory/job/cpu.cfs_quota_us":      "150000\n",
			"sys/fs/cgroup/cpu,memory/job/cpu.cfs_period_us":     "100000\n",
			"sys/fs/cgroup/cpu,memory/job/cpu.stat":              "throttled_time 7000\n",
			"sys/fs/cgroup/cpu,memory/job/memory.limit_in_bytes": "2147483648\n",
		}, 1, 1.5, 2 << 30, 7 * time.Microsecond},
		{"the processor in version 1, memory in version 2", map[string]string{
			"proc/4711/cgroup": "2:cpu,cpuacct:/job\n0::/job.scope\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us":  "150000\n",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/unified/job.scope/memory.max":      "2147483648\n",
		}, 1, 1.5, 2 << 30, 0},
		{"memory in version 1, the processor in version 2", map[string]string{
			"proc/4711/cgroup": "4:memory:/job\n0::/job.scope\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2147483648\n",
			"sys/fs/cgroup/unified/job.scope/cpu.max":        "150000 100000\n",
			"sys/fs/cgroup/unified/job.scope/cpu.stat":       "throttled_usec 7\n",
		}, 1, 1.5, 2 << 30, 7 * time.Microsecond},
		{"version 1, no limits", map[string]string{
			"proc/4711/cgroup":                           "4:memory:/\n2:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":        "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := machine(t, c.files)
			f, err := Describe(o)
			if err != nil {
				t.Fatal(err)
			}
			want := Facts{
				Name: f.Name, OS: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0-28-amd64", Arch: runtime.GOARCH, CPU: f.CPU,
				Cores: runtime.NumCPU(), MemoryBytes: 8000000 * 1024, Cgroup: c.version, CPULimit: c.cores, MemoryLimit: c.memory,
			}
			if d := cmp.Diff(want, f); d != "" {
				t.Error(d)
			}
			// procfs reads cpuinfo as this architecture writes it.
			if runtime.GOARCH == "amd64" && f.CPU != "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz" {
				t.Errorf("processor %q", f.CPU)
			}
			got, err := NewReader(o).Read()
			if err != nil {
				t.Fatal(err)
			}
			if got.ResidentBytes != uint64(2048*os.Getpagesize()) || got.DiskRead != 4096 || got.DiskWritten != 8192 || got.Throttled != c.throttled {
				t.Errorf("figures %+v", got)
			}
		})
	}
}

func TestMissingFilesAreNamed(t *testing.T) {
	if _, err := Describe(Options{Root: filepath.Join(t.TempDir(), "none")}); err == nil || !strings.HasPrefix(err.Error(), "host: ") {
		t.Errorf("no proc: %v", err)
	}
	o := machine(t, nil) // proc/self/cgroup is missing
	f, err := Describe(o)
	if err == nil || !strings.Contains(err.Error(), "cgroup") || f.Kernel != "6.1.0-28-amd64" {
		t.Errorf("no control groups: %v, facts %+v: want what could be read, and what could not", err, f)
	}
}
