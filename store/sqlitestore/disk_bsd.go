//go:build darwin || freebsd || dragonfly

package sqlitestore

import "syscall"

const mntLocal = 0x1000 // MNT_LOCAL

// localDisk reports whether a directory is certainly on a disk of this host. A lock on a
// network file system may be lost while its owner lives, or be unknown to other hosts.
func localDisk(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && uint64(s.Flags)&mntLocal != 0
}
