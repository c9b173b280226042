//go:build linux || darwin || freebsd || dragonfly

package filelock

import (
	"os"
	"syscall"
)

// Lock takes the lock of an open file, or fails at once. The lock belongs to the open
// file and ends with it: when the process ends, too, since children do not inherit it.
func Lock(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := c.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) }); err != nil {
		return err
	}
	return locked
}
