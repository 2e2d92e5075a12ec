package storage

import (
	"os"
	"syscall"
	"unsafe"

	bolt "go.etcd.io/bbolt"
)

// forgetPages tells the kernel that what was read of the file through its memory
// map is not needed: it would count as this process's memory for good.
func forgetPages(db *bolt.DB) {
	st, err := os.Stat(db.Path())
	if err != nil || st.Size() == 0 {
		return
	}
	mapped := unsafe.Slice((*byte)(unsafe.Pointer(db.Info().Data)), st.Size()) //nolint:gosec,govet // the map covers the file, which only grows
	_ = syscall.Madvise(mapped, syscall.MADV_DONTNEED)                         // only advice
}
