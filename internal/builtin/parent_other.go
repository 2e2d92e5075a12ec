//go:build unix && !linux

package builtin

import "syscall"

// endWithParent cannot be had on this system: a program goes on when the worker is
// killed.
func endWithParent(*syscall.SysProcAttr) {}

// shield cannot be had on this system.
func shield() error { return nil }
