package engine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// Secantusd is secantusd-rs on PATH or in ~/.cargo/bin: a MongoDB-compatible server of
// other people, which shows what is only true of our own. It is slow under contention
// and not always right, so users are never given it.
func Secantusd() Engine {
	return Engine{Name: "secantusd", Slow: true, Start: func(ctx context.Context) (*Deployment, error) {
		path, err := exec.LookPath("secantusd-rs")
		if home, homeErr := os.UserHomeDir(); err != nil && homeErr == nil {
			path, err = exec.LookPath(filepath.Join(home, ".cargo", "bin", "secantusd-rs"))
		}
		if err != nil {
			return nil, missing("secantusd", "secantusd-rs is neither on PATH nor in ~/.cargo/bin")
		}
		return startProcess(ctx, program{
			name: "secantusd",
			args: func(port, data string) []string {
				return []string{path, "--host", "127.0.0.1", "--port", port, "--storage-path", data, "--sync-on-commit"}
			},
		})
	}}
}
