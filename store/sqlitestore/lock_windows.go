package sqlitestore

import (
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

var (
	kernel32     = syscall.NewLazyDLL("kernel32.dll")
	lockFileEx   = kernel32.NewProc("LockFileEx")
	getDriveType = kernel32.NewProc("GetDriveTypeW")
)

const (
	lockFailImmediately = 1
	lockExclusive       = 2
	driveFixed          = 3
	driveRAM            = 6
)

// lockFile takes the lock of an open file, or fails at once. The lock ends with the
// process, and children do not inherit it.
func lockFile(f *os.File) error {
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

// localDisk reports whether a directory is certainly on a disk of this host.
func localDisk(dir string) bool {
	root, err := syscall.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return false
	}
	kind, _, _ := getDriveType.Call(uintptr(unsafe.Pointer(root)))
	return kind == driveFixed || kind == driveRAM
}
