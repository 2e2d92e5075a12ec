package engine

import (
	"io"
	"os/exec"
	"strconv"
)

// guard ends a process and removes its directory when this process is gone, however it
// went: a panic, a signal or a test's os.Exit runs no clean-up. It is a shell that waits
// for the end of its input, which this process holds open. Without a shell (Windows)
// there is no guard.
type guard struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

func startGuard(pid int, dir string) *guard {
	//nolint:gosec // the arguments are a number and a directory that we made
	cmd := exec.Command("sh", "-c", `trap "" INT TERM HUP; cat >/dev/null; kill -9 "$1"; rm -rf "$2"`, "guard", strconv.Itoa(pid), dir)
	input, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return &guard{}
	}
	return &guard{cmd: cmd, input: input}
}

// dismiss ends the guard without its doing anything.
func (g *guard) dismiss() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill() // first, so that it does not see the end of its input
	_ = g.cmd.Wait()         // it was killed: that is the error
	_ = g.input.Close()
}
