//go:build unix

package fleet

import (
	"errors"
	"os/exec"
	"syscall"
)

// ownGroup keeps a Ctrl-C at the terminal away from the process: who started it stops it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Supported is the error of [Process.Freeze] on this system; nil where it can freeze.
func Supported() error { return nil }

// Freeze stops the process where it stands, until [Process.Thaw].
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	if p.cmd == nil {
		return errors.New(p.name + " is not a separate process")
	}
	return p.cmd.Process.Signal(s)
}
