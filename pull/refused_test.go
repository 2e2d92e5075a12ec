package pull

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// The server refuses one of the two commands of a fetch. What the other one has won is returned.
func TestAFetchReturnsWhatItWonThoughACommandWasRefused(t *testing.T) {
	const inTwo = 500 // statements are two commands
	px := testdb.Behind(t)
	px.Patient()
	b := setupOn(t, testdb.Through(t, px))
	require.NoError(t, b.p.room.Prepare(t.Context()))
	tasks := make([]*model.Task, inTwo)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: mailType.Name(), Key: fmt.Sprint(i)}, b.p.room.Store.Clock.Now())
		tasks[i].Rev = int64(i + 1) // each write is a statement of its own
	}
	_, err := b.p.room.Store.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	px.Set(proxy.Rule{Command: "update", Collection: "tasks", Skip: 1, Do: proxy.Refuse, Code: 13})
	got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w", Types: []string{mailType.Name()}, Max: inTwo})
	require.NoError(t, err)
	require.Len(t, got, inTwo/2)
}
