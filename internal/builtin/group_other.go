//go:build !unix

package builtin

import "os/exec"

// processGroup is a program; this system has no process groups.
type processGroup struct{ cmd *exec.Cmd }

func ownGroup(cmd *exec.Cmd) processGroup { return processGroup{cmd} }

func (g processGroup) terminate() error { return g.kill() }
func (g processGroup) kill() error      { return g.cmd.Process.Kill() }

// shield cannot be had on this system.
func shield() error { return nil }
