package filelock

import (
	"os"
	"syscall"
	"unsafe"
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

const (
	lockFailImmediately = 1
	lockExclusive       = 2
)

// Lock takes the lock of an open file, or fails at once. The lock ends with the
// process, and children do not inherit it.
func Lock(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := c.Control(func(fd uintptr) {
		var at syscall.Overlapped
		ok, _, err := lockFileEx.Call(fd, lockFailImmediately|lockExclusive, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
		if ok == 0 {
			locked = err
		}
	}); err != nil {
		return err
	}
	return locked
}
