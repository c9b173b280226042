//go:build !linux && !darwin && !freebsd && !dragonfly && !windows

package filelock

import (
	"errors"
	"os"
)

// Lock fails: here no lock ends with its process.
func Lock(*os.File) error { return errors.ErrUnsupported }
