//go:build !linux && !darwin && !freebsd && !dragonfly && !windows

package sqlitestore

import (
	"errors"
	"os"
)

// Here no lock ends with its process, so leases expire by their TTL.

func lockFile(*os.File) error { return errors.ErrUnsupported }

func localDisk(string) bool { return false }
