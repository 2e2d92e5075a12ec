//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a Ctrl-C at the terminal away from the workers: the bench stops them.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
