package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

func describe(o Options, f *Facts) error {
	proc, err := procfs.NewFS(filepath.Join(o.root(), "proc"))
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	var errs []error
	if cpus, err := proc.CPUInfo(); err != nil {
		errs = append(errs, err)
	} else if len(cpus) > 0 {
		f.CPU = cpus[0].ModelName
	}
	if memory, err := proc.Meminfo(); err != nil {
		errs = append(errs, err)
	} else if memory.MemTotalBytes != nil {
		f.MemoryBytes = *memory.MemTotalBytes
	}
	if release, err := os.ReadFile(filepath.Join(o.root(), "proc/sys/kernel/osrelease")); err != nil {
		errs = append(errs, err)
	} else {
		f.Kernel = strings.TrimSpace(string(release))
	}
	if name := distribution(filepath.Join(o.root(), "etc/os-release")); name != "" {
		f.OS = name
	}
	group, err := findCgroup(o, proc)
	if err != nil {
		errs = append(errs, err)
	} else {
		f.Cgroup = group.version()
		f.CPULimit, f.MemoryLimit = group.limits()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

// distribution returns PRETTY_NAME of an os-release file, or nothing: a container may have none.
func distribution(name string) string {
	p, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	in := bufio.NewScanner(bytes.NewReader(p))
	for in.Scan() {
		if v, ok := strings.CutPrefix(in.Text(), "PRETTY_NAME="); ok {
			if text, err := strconv.Unquote(v); err == nil {
				return text
			}
			return v
		}
	}
	return ""
}

func readFigures(o Options, f *Figures) error {
	proc, err := procfs.NewFS(filepath.Join(o.root(), "proc"))
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	self, err := proc.Self()
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	var errs []error
	if stat, err := self.Stat(); err != nil {
		errs = append(errs, err)
	} else {
		f.ResidentBytes = uint64(max(stat.ResidentMemory(), 0))
	}
	// A container may hide it, which is no error.
	if io, err := self.IO(); err == nil {
		f.DiskRead, f.DiskWritten = io.ReadBytes, io.WriteBytes
	}
	if group, err := findCgroup(o, proc); err != nil {
		errs = append(errs, err)
	} else {
		f.Throttled = group.throttled()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}
