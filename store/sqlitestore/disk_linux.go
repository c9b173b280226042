package sqlitestore

import "syscall"

// Types of file systems that no other host can write to, from statfs(2).
var localTypes = map[uint32]bool{
	0xef53:     true, // ext2, ext3, ext4
	0x58465342: true, // XFS
	0x9123683e: true, // Btrfs
	0x2fc12fc1: true, // ZFS
	0xf2f52010: true, // F2FS
	0xca451a4e: true, // bcachefs
	0x3153464a: true, // JFS
	0x794c7630: true, // overlayfs
	0x01021994: true, // tmpfs
	0x858458f6: true, // ramfs
}

// localDisk reports whether a directory is certainly on a disk of this host. A lock on a
// network file system may be lost while its owner lives, or be unknown to other hosts.
func localDisk(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && localTypes[uint32(s.Type)]
}
