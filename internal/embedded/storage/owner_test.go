//go:build linux

package storage

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompactKeepsOwnerAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, open(t, path).Close())
	require.NoError(t, os.Chmod(path, 0o640))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(path, 4711, 4712))
	}
	before, err := os.Stat(path)
	require.NoError(t, err)
	_, _, err = Compact(path)
	require.NoError(t, err)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
	require.Equal(t, before.Mode(), after.Mode())
	was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	require.Equal(t, []uint32{was.Uid, was.Gid}, []uint32{is.Uid, is.Gid})
}

// Whoever may read and write the file, and make files beside it, may still not give one away.
func TestCompactThatCannotKeepTheOwnerChangesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs a file of another user")
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "db")
	s := open(t, path)
	require.NoError(t, insert(t, s, doc(1)))
	require.NoError(t, s.Close())
	require.NoError(t, os.Chmod(path, 0o666))
	for _, above := range []string{folder, filepath.Dir(folder)} {
		require.NoError(t, os.Chmod(above, 0o777))
	}
	before, err := os.Stat(path)
	require.NoError(t, err)

	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is another user's and ends with the goroutine
		if err := syscall.Setfsuid(4711); err != nil {
			failed <- err
			return
		}
		_, _, err := Compact(path)
		failed <- err
	}()
	require.ErrorContains(t, <-failed, "give the new file the owner of the old one")
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoFileExists(t, path+".compact")
	require.Equal(t, 1, open(t, path).Snapshot().Collection("t.c").Len())
}
