//go:build !linux

package launch

import (
	"errors"
	"os"
)

func program() (string, error) { return os.Executable() }

func nameProcess(string) {}

func pin(cpus []int) (restore func() error, err error) {
	if len(cpus) == 0 {
		return nil, nil
	}
	return nil, errors.New("this system does not bind a process to cores: leave CPUs empty")
}

func enter(space string) (leave func() error, err error) {
	if space == "" {
		return nil, nil
	}
	return nil, errors.New("this system has no network namespaces: leave Space empty")
}
