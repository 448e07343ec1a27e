package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// A Child is what a process that was started by [Children] or [Goroutines] knows of its start.
type Child struct {
	Name   string
	Args   []string // the Spec's
	Config []byte
	// Stop is closed when the parent asks for the end by other means than a signal, or is gone. When it is gone, the process has a quarter of a
	// second to end by itself; on Linux it has been killed before.
	Stop           <-chan struct{}
	Stdout, Stderr io.Writer
}

// childArgument is the first argument of a child process: an argument that nobody types, since an environment variable would be
// inherited by whatever a child starts. The name follows.
const childArgument = "\x7fchild-process="

// lastWill is how long a child may live without its parent.
const lastWill = 250 * time.Millisecond

// orphaned is the exit code of a child whose parent is gone.
const orphaned = 125

// What goes through the pipe: magic, length and checksum of the configuration, and the configuration; later perhaps stopByte; then
// nothing, until the end of the parent closes it.
const (
	pipeMagic  = 0x54524356 // "TRCV" turned round
	pipeHeader = 12
	stopByte   = 'S'
)

// Enter looks whether this process was started by [Children], and reads what its parent gave it. It is called once, with os.Args, first
// thing in main. If ok is false, and err nil, this is a process of its own. From Enter on, the process ends with its parent.
func Enter(args []string) (child Child, ok bool, err error) {
	if len(args) < 2 || len(args[1]) < len(childArgument) || args[1][:len(childArgument)] != childArgument {
		return Child{}, false, nil
	}
	child.Name, child.Args = args[1][len(childArgument):], args[2:]
	pipe, err := inherited()
	if err == nil {
		child.Config, err = readConfig(pipe)
	}
	if err != nil {
		return Child{}, true, fmt.Errorf("launch: %s: the parent's configuration: %w", child.Name, err)
	}
	nameProcess(args[0])
	stop := make(chan struct{})
	child.Stop, child.Stdout, child.Stderr = stop, os.Stdout, os.Stderr
	go func() {
		var b [1]byte
		for asked := false; ; {
			n, err := pipe.Read(b[:])
			if n == 1 && b[0] == stopByte && !asked {
				asked = true
				close(stop)
			}
			if err == nil {
				continue
			}
			if !asked {
				close(stop)
			}
			break
		}
		time.Sleep(lastWill)
		os.Exit(orphaned)
	}()
	return child, true, nil
}

// writeConfig is the parent's end of readConfig.
func writeConfig(w io.Writer, config []byte) error {
	p := make([]byte, pipeHeader, pipeHeader+len(config))
	binary.LittleEndian.PutUint32(p[0:], pipeMagic)
	binary.LittleEndian.PutUint32(p[4:], uint32(len(config)))
	binary.LittleEndian.PutUint32(p[8:], crc32.ChecksumIEEE(config))
	_, err := w.Write(append(p, config...))
	return err
}

func readConfig(r io.Reader) ([]byte, error) {
	var header [pipeHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, fmt.Errorf("%w: the parent ended, or this process was not started by it", err)
	}
	magic, length := binary.LittleEndian.Uint32(header[0:]), binary.LittleEndian.Uint32(header[4:])
	if magic != pipeMagic {
		return nil, fmt.Errorf("want %#x at its beginning, found %#x", uint32(pipeMagic), magic)
	}
	if length > MaxConfig {
		return nil, fmt.Errorf("%d bytes are announced, and at most %d may come", length, MaxConfig)
	}
	config := make([]byte, length)
	if _, err := io.ReadFull(r, config); err != nil {
		return nil, fmt.Errorf("of its %d bytes not all came: %w", length, err)
	}
	if crc32.ChecksumIEEE(config) != binary.LittleEndian.Uint32(header[8:]) {
		return nil, errors.New("its checksum is wrong")
	}
	return config, nil
}

// closer closes a file once, from whichever goroutine comes first.
type closer struct {
	file   *os.File
	closed atomic.Bool
}

func (c *closer) close() {
	if !c.closed.Swap(true) {
		c.file.Close()
	}
}
