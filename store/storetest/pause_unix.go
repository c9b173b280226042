//go:build unix

package storetest

import (
	"os"
	"syscall"
)

// become replaces this process's program; the process goes on with the same id.
func become(job string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(jobVariable, job); err != nil {
		return err
	}
	return syscall.Exec(exe, []string{exe}, os.Environ())
}

// pause stops a process, which stays alive, until it is told to go on.
func pause(p *os.Process) (goOn func() error, err error) {
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}
