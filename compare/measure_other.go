//go:build !linux

package compare

import (
	"time"

	"github.com/trivium-ml/trivium/observe/host"
)

// readMachine reads nothing: this system has no /proc.
func readMachine(processes []Process, _ []int) reading {
	return reading{
		at: time.Now(), processes: processes, cpu: map[int]cpuTime{}, missing: "this system does not count bytes for each process",
	}
}

func residentBytes([]Process) map[int]float64 { return nil }

func ownCores() []int { return nil }

func freeMemory(host.Options) (int64, bool) { return 0, false }

func freeDisk(string) (int64, bool) { return 0, false }

func interfaceBytes(int, string) ([2]int64, bool) { return [2]int64{}, false }

// processStart is not known here.
func processStart(int) string { return "" }
