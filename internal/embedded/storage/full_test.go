//go:build unix

package storage

import (
	"fmt"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// TestFullDiskLosesNothing fills the file up to a limit of the kernel, which
// answers as a full disk does.
func TestFullDiskLosesNothing(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	setLimit := func(most uint64) {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: limit.Max}))
	}
	t.Cleanup(func() { setLimit(limit.Cur) })

	stored := 0
	fill := func() (err error) {
		for range 10_000 {
			if err = insert(t, s, doc(stored, bson.E{Key: "text", Value: fmt.Sprintf("%04000d", stored)})); err != nil {
				return err
			}
			stored++
		}
		return nil
	}
	check := func() {
		c := s.Snapshot().Collection("t.c")
		require.Equal(t, stored, c.Len())
		problems, err := c.Validate(t.Context())
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	setLimit(3 << 20)
	err := fill()
	require.Equal(t, mongoerr.OutOfDiskSpace, mongoerr.Code(err), "%v", err)
	require.Greater(t, stored, 100)
	check()
	require.Equal(t, mongoerr.OutOfDiskSpace, mongoerr.Code(fill()), "it is refused for as long as there is no space")
	require.NoError(t, s.Close())
	s = open(t, path)
	check()
	setLimit(6 << 20)
	before := stored
	require.Equal(t, mongoerr.OutOfDiskSpace, mongoerr.Code(fill()))
	require.Greater(t, stored, before+100, "it goes on when there is")
	setLimit(limit.Cur)
	require.NoError(t, insert(t, s, doc("last")))
	stored++
	check()
	require.NoError(t, s.Close())
	s = open(t, path)
	check()
}
