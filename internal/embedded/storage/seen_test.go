package storage

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A writer that finds nothing to do because of a write that is not durable yet
// answers no earlier than that write: what made it so can then be read.
func TestNothingToDoIsSaidOnceTheReasonIsDurable(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	require.NoError(t, insert(t, s, doc("first")))
	hold, err := s.file.db.Begin(true)
	require.NoError(t, err)
	first := make(chan error)
	go func() { first <- insert(t, s, doc("second")) }()
	id := doc("second").Lookup("_id")
	require.Eventually(t, func() bool {
		w := s.Writer(t.Context(), nil)
		_, there := w.FindID("t.c", id)
		w.unlock()
		return there
	}, 2*time.Minute, time.Millisecond)

	looked := make(chan error)
	go func() {
		w := s.Writer(t.Context(), nil)
		w.FindID("t.c", id)
		looked <- w.Finish()
	}()
	select {
	case <-looked:
		t.Fatal("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, hold.Rollback())
	require.NoError(t, <-looked)
	_, there := s.Snapshot().Collection("t.c").ByID(id)
	require.True(t, there)
	require.NoError(t, <-first)
}
