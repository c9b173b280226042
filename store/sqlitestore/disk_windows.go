package sqlitestore

import (
	"path/filepath"
	"syscall"
	"unsafe"
)

var getDriveType = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDriveTypeW")

const (
	driveFixed = 3
	driveRAM   = 6
)

// localDisk reports whether a directory is certainly on a disk of this host.
func localDisk(dir string) bool {
	root, err := syscall.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return false
	}
	kind, _, _ := getDriveType.Call(uintptr(unsafe.Pointer(root)))
	return kind == driveFixed || kind == driveRAM
}
