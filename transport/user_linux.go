package transport

import (
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// admitUser refuses processes of other users.
func admitUser(nc net.Conn) error {
	c, ok := nc.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("whose process it is: %w", credErr)
	}
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("process %d is user %d's, this one user %d's", cred.Pid, cred.Uid, os.Getuid())
	}
	return nil
}

// bootID changes each time the host starts. A container shares its host's, and has a host name of its own.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
