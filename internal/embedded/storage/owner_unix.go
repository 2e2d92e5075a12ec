//go:build unix

package storage

import (
	"errors"
	"os"
	"syscall"
)

// chownAs gives the file at path the owner and group of another.
func chownAs(other os.FileInfo, path string) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	want, is := other.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	if want.Uid == is.Uid && want.Gid == is.Gid {
		return nil
	}
	return os.Chown(path, int(want.Uid), int(want.Gid))
}

// syncPath makes a file with its owner and mode durable, or the names in a folder.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
