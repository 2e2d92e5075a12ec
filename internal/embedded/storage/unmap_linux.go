package storage

import (
	"os"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// forgetPages tells the kernel that what was read of the file through its memory
// map is not needed: it would count as this process's memory for good.
func forgetPages(db *bolt.DB) {
	if st, err := os.Stat(db.Path()); err == nil {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, db.Info().Data, uintptr(st.Size()), syscall.MADV_DONTNEED) // only advice
	}
}
