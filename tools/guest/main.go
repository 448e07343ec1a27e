//go:build linux

// Command guest is the first process of a machine that .ci/bochs emulates: it runs /program with the arguments of the file /arguments, one a
// line, and then prints how that ended.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("guest: failed:", err)
	} else {
		fmt.Println("guest: passed")
	}
	time.Sleep(24 * time.Hour) // .ci/bochs ends the machine; where this process ends, the system panics
}

func run() error {
	for at, system := range map[string]string{"/proc": "proc", "/dev": "devtmpfs", "/tmp": "tmpfs"} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(system, at, system, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
	}
	arguments, err := os.ReadFile("/arguments")
	if err != nil {
		return err
	}
	cmd := exec.Command("/program", strings.Split(strings.TrimSuffix(string(arguments), "\n"), "\n")...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, []string{"HOME=/tmp"}
	return cmd.Run()
}
