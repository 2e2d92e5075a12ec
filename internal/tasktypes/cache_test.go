package tasktypes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func opened(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	return st
}

func TestRefreshTellsOfAChangeThatFreshHasRead(t *testing.T) {
	st := opened(t)
	c := New(st)
	refresh := func() bool {
		doc, err := st.Control.Read(t.Context())
		require.NoError(t, err)
		changed, err := c.Refresh(t.Context(), doc.Types)
		require.NoError(t, err)
		return changed
	}
	require.True(t, refresh(), "the first reading")
	require.NoError(t, st.Types.Put(t.Context(), &model.TaskType{Code: "mail"}))
	require.NoError(t, c.Fresh(t.Context(), 0))
	require.NotNil(t, c.Get("mail"))
	require.True(t, refresh())
	require.False(t, refresh())
}
