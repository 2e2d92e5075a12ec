//go:build unix

package builtin

import (
	"errors"
	"os/exec"
	"syscall"
)

// processGroup is a program with everything it starts, as far as that does not leave
// the group on purpose.
type processGroup struct{ cmd *exec.Cmd }

// ownGroup makes the program the head of a group of its own. Call it before Start.
func ownGroup(cmd *exec.Cmd) processGroup {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	return processGroup{cmd}
}

func (g processGroup) terminate() error { return g.signal(syscall.SIGTERM) }
func (g processGroup) kill() error      { return g.signal(syscall.SIGKILL) }

func (g processGroup) signal(s syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return nil // all gone
	}
	return err
}
