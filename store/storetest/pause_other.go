//go:build !unix

package storetest

import (
	"errors"
	"os"
)

func become(string) error { return errors.ErrUnsupported }

// pause cannot stop a process here.
func pause(*os.Process) (goOn func() error, err error) { return nil, errors.ErrUnsupported }
