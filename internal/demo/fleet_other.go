//go:build !unix

package demo

import (
	"errors"
	"os/exec"
)

var errUnsupported = errors.New("the demo freezes a process by SIGSTOP, which this system does not have; run it on Linux, macOS or in a container")

func supported() error { return errUnsupported }

func ownGroup(*exec.Cmd) {}

func (w *worker) kill() error   { return w.cmd.Process.Kill() }
func (w *worker) freeze() error { return errUnsupported }
func (w *worker) thaw() error   { return errUnsupported }
