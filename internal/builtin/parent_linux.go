package builtin

import (
	"fmt"
	"syscall"
)

// endWithParent has the program killed when this process dies: its task is taken over
// then, and must not be run by two. It reaches the program itself, not what that
// started. (The kernel goes by the thread that started it; those of Go live as long as
// the process, unless somebody locks and leaves them, which nobody here does.)
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// shield keeps the programs of this process's user, those of exec tasks among them, from reading its environment
// and memory in /proc: they hold the password of the database. Root reads them all the same.
func shield() error {
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		return fmt.Errorf("hiding this process's environment from programs: %w", errno)
	}
	return nil
}
