package pull

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// due stores n tasks of another process that are due since that long.
func (p *process) due(n int, typ, limitKey string, since time.Duration) {
	p.t.Helper()
	tasks := make([]*model.Task, n)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: typ, Key: fmt.Sprint(limitKey, i), Options: model.Options{LimitKey: limitKey}}, p.serverTime().Add(-since))
	}
	_, err := p.room.Store.Tasks.Insert(p.t.Context(), tasks)
	require.NoError(p.t, err)
}

// one fetches one task of the types, and returns its type and limit_key.
func (p *process) one(types ...string) string {
	p.t.Helper()
	got, err := p.Fetch(p.t.Context(), FetchRequest{WorkerID: "w", Types: types})
	require.NoError(p.t, err)
	require.Len(p.t, got, 1)
	return got[0].Task.Type + " " + got[0].Task.Options.LimitKey
}

func TestAKeyWithoutRoomHidesNoOtherFromAFetch(t *testing.T) {
	p := newProcess(t)
	require.NoError(t, p.room.Prepare(t.Context()))
	p.due(1000, "t", "full", time.Hour)
	p.due(3, "t", "other", time.Minute)
	require.Equal(t, "t full", p.one("t"))
	require.Equal(t, "t other", p.one("t"))
}

func TestATypeWithoutRoomHidesNoOtherFromAFetch(t *testing.T) {
	p := newProcess(t)
	require.NoError(t, p.room.Prepare(t.Context()))
	var types []string
	for i := range 2 * tries {
		typ := fmt.Sprint("full", i)
		_, err := admin.New(p.sender).PutType(t.Context(), model.TaskType{Code: typ, MaxRunning: 1})
		require.NoError(t, err)
		p.due(3, typ, "", time.Hour)
		require.Equal(t, typ+" ", p.one(typ))
		types = append(types, typ)
	}
	p.due(1, "t", "", time.Minute)
	require.Equal(t, "t ", p.one(append(types, "t")...))
}
