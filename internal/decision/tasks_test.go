package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// One document has no room for its change. The others are changed all the same, and the caller hears of it.
func TestATaskWhoseChangeTheServerRefusesKeepsNoOtherBack(t *testing.T) {
	db := testdb.New(t)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	now := time.Now()
	full := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "full"}, now)
	other := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "other"}, now)
	_, err = st.Tasks.Insert(t.Context(), []*model.Task{other})
	require.NoError(t, err)
	var doc bson.D
	require.NoError(t, bson.Unmarshal(codec.AppendTask(nil, full), &doc))
	padded := func(n int) bson.D {
		return append(doc[:len(doc):len(doc)], bson.E{Key: "padding", Value: make([]byte, n)})
	}
	empty, err := bson.Marshal(padded(0))
	require.NoError(t, err)
	_, err = db.Collection("tasks").InsertOne(t.Context(), padded(16<<20-len(empty)))
	require.NoError(t, err)

	held, err := ChangeTasks(t.Context(), st, "cancelling", []string{full.ID, other.ID}, func(task *model.Task) *model.Task {
		after, err := lifecycle.Cancel(task, "not wanted any more", lifecycle.EffectiveOf(task, model.Options{}), now)
		require.NoError(t, err)
		return after
	})
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.ErrorContains(t, held[full.ID], "large")
	changed, err := st.Tasks.Get(t.Context(), other.ID)
	require.NoError(t, err)
	require.Equal(t, model.StatusCancelled, changed.Status)
}

// A person has the task run again while its cancel is decided once more.
func TestAChangeKnowsTheFirstLifeOfATask(t *testing.T) {
	inFirstLife := FirstLife()
	require.True(t, inFirstLife(&model.Task{ID: "a", Generation: 1}))
	require.True(t, inFirstLife(&model.Task{ID: "b", Generation: 2}))
	require.True(t, inFirstLife(&model.Task{ID: "a", Generation: 1}))
	require.False(t, inFirstLife(&model.Task{ID: "a", Generation: 2}))
}
