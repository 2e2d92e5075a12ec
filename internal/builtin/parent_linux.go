package builtin

import "syscall"

// endWithParent has the program killed when this process dies: its task is taken over
// then, and must not be run by two. It reaches the program itself, not what that
// started. (The kernel goes by the thread that started it; those of Go live as long as
// the process, unless somebody locks and leaves them, which nobody here does.)
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
