//go:build unix

package demo

import (
	"os/exec"
	"syscall"
)

// supported says why the demo cannot run on this system; nil where it can.
func supported() error { return nil }

// ownGroup keeps a Ctrl-C at the terminal away from the workers: the demo stops them.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func (w *worker) kill() error   { return w.cmd.Process.Signal(syscall.SIGKILL) }
func (w *worker) freeze() error { return w.cmd.Process.Signal(syscall.SIGSTOP) }
func (w *worker) thaw() error   { return w.cmd.Process.Signal(syscall.SIGCONT) }
