package audit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// The first change of an empty database sets it up, which takes longer than a write may.
func TestTheLimitOfAWriteDoesNotBoundTheSetup(t *testing.T) {
	db := testdb.New(t)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	_, err = st.Topology(t.Context())
	require.NoError(t, err)
	entry := func(id string) *store.AuditEntry { return &store.AuditEntry{ID: id, Operation: "send-task"} }
	require.ErrorIs(t, New(Config{Store: st, Timeout: time.Nanosecond}).Begin(t.Context(), entry("a")), context.DeadlineExceeded)
	names, err := db.ListCollectionNames(t.Context(), struct{}{})
	require.NoError(t, err)
	require.Contains(t, names, "audit")
	require.NoError(t, New(Config{Store: st, Timeout: testdb.Patience}).Begin(t.Context(), entry("b")))
}
