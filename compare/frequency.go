package compare

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// frequencyPolicy is how the processors choose their frequency, as Linux says it under dir.
func frequencyPolicy(dir string) string {
	governors := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(dir, "cpu[0-9]*", "cpufreq", "scaling_governor")) // the pattern is right
	for _, name := range files {
		if p, err := os.ReadFile(name); err == nil {
			governors[strings.TrimSpace(string(p))]++
		}
	}
	if len(governors) == 0 {
		return "not said: this machine shows no frequency policy, as virtual ones do not; throttling is seen by the control group and by stolen time alone"
	}
	var words []string
	for _, g := range slices.Sorted(maps.Keys(governors)) {
		words = append(words, fmt.Sprintf("%s on %d processors", g, governors[g]))
	}
	text := "governor " + strings.Join(words, ", ")
	for _, x := range []struct{ file, on, off string }{
		{"intel_pstate/no_turbo", "no turbo", "turbo allowed"},
		{"cpufreq/boost", "boost allowed", "no boost"},
	} {
		if p, err := os.ReadFile(filepath.Join(dir, x.file)); err == nil {
			if strings.TrimSpace(string(p)) == "1" {
				text += "; " + x.on
			} else {
				text += "; " + x.off
			}
		}
	}
	return text
}

// throttledEvents is how often the processors were slowed down because they were hot, as far as Linux says it.
func throttledEvents(dir string) (n int64) {
	files, _ := filepath.Glob(filepath.Join(dir, "cpu[0-9]*", "thermal_throttle", "core_throttle_count"))
	for _, name := range files {
		var one int64
		if p, err := os.ReadFile(name); err == nil {
			_, _ = fmt.Sscan(string(p), &one) // of a file that says no number, none
			n += one
		}
	}
	return n
}

// congestionControl is the one of TCP that the system's connections begin with, as Linux says it under dir; empty: it does not say.
func congestionControl(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "tcp_congestion_control"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
