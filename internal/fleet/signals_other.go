//go:build !unix

package fleet

import (
	"errors"
	"os/exec"
)

var errUnsupported = errors.New("freezing a process requires SIGSTOP, which this system does not support; use Linux, macOS or a container")

func ownGroup(*exec.Cmd) {}

// Supported is the error of [Process.Freeze] on this system; nil where it can freeze.
func Supported() error { return errUnsupported }

// Freeze stops the process where it stands, until [Process.Thaw].
func (p *Process) Freeze() error { return errUnsupported }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return errUnsupported }
