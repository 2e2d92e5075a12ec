package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func text(n int) bson.RawValue {
	_, raw, _ := bson.MarshalValue(strings.Repeat("x", n))
	return bson.RawValue{Type: bson.TypeString, Value: raw}
}

// ends stores tasks that have ended with results of so many bytes, and returns their ids, the last one first.
func (p *past) ends(n, bytes int) (ids []string) {
	p.t.Helper()
	for i := range n {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprintf("%03d", i), Args: text(10)}, p.Clock.Now())
		task.Status, task.ErrorInfo, task.Result, task.Checkpoint, task.DueAt = model.StatusSuccess, "why", text(bytes), text(10), task.FinishedAt
		task.Steps = []model.Step{{Name: "s"}}
		task.WorkerStates = []model.WorkerState{{ExecID: "e", WorkerID: "w", ClaimedAt: p.Clock.Now(), Returns: text(10), Checkpoint: text(10)}}
		_, err := p.Tasks.Insert(p.t.Context(), []*model.Task{task})
		require.NoError(p.t, err)
		ids = append([]string{task.ID}, ids...)
	}
	return ids
}

// moves has tasks be in the history alone, with an earlier life each.
func (p *past) moves(ids ...string) {
	p.t.Helper()
	for _, id := range ids {
		task, err := p.Tasks.Get(p.t.Context(), id)
		require.NoError(p.t, err)
		for _, generation := range []int64{task.Generation - 1, task.Generation} {
			task.Generation = generation
			raw, err := bson.Marshal(task)
			require.NoError(p.t, err)
			var doc bson.D
			require.NoError(p.t, bson.Unmarshal(raw, &doc))
			doc[0].Value = lifeID(id, generation)
			_, err = p.history.InsertOne(p.t.Context(), append(doc, d("task_id", id)))
			require.NoError(p.t, err)
		}
		_, err = p.tasks.DeleteOne(p.t.Context(), bson.D{d("_id", id)})
		require.NoError(p.t, err)
	}
}

func TestAPartOfALastLifeIsReadAlone(t *testing.T) {
	p := newPast(t)
	ids := p.ends(2, 10)
	p.moves(ids[0])
	for _, id := range ids {
		whole, err := p.Tasks.LastLives(t.Context(), ids)
		require.NoError(t, err)
		require.NotEmpty(t, whole[id].Args.Value)
		require.NotEmpty(t, whole[id].Steps)
		for part, result := range map[*Part]bool{&State: false, &Output: true} {
			found, err := p.Tasks.LastLivesOf(t.Context(), append(ids, "-/t/none"), *part)
			require.NoError(t, err)
			require.Len(t, found, 2)
			got := found[id]
			require.Equal(t, whole[id].Generation, got.Generation, "the newest life")
			require.Equal(t, model.StatusSuccess, got.Status)
			require.Equal(t, "why", got.ErrorInfo)
			require.Equal(t, whole[id].WorkerStates[0].ClaimedAt, got.WorkerStates[0].ClaimedAt)
			require.Equal(t, result, got.Result.Type != 0)
			require.Zero(t, got.Args.Type)
			require.Zero(t, got.Checkpoint.Type)
			require.Empty(t, got.Steps)
			require.Zero(t, got.WorkerStates[0].Returns.Type)
			require.Zero(t, got.WorkerStates[0].Checkpoint.Type)
		}
	}
}

func TestAPageOfLastLivesHasFewMegabytesAndIsInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	p := newPast(t)
	const each = 600 << 10
	ids := p.ends(40, each)
	p.moves(ids[3], ids[20], ids[21])
	ids = append(ids[:30:30], append([]string{"-/t/none"}, ids[30:]...)...)
	for from, pages := 0, 0; from < len(ids); pages++ {
		require.Less(t, pages, 5)
		found, n, err := p.Tasks.LastLivesPage(t.Context(), ids[from:], Output)
		require.NoError(t, err)
		require.Positive(t, n)
		bytes := 0
		for _, id := range ids[from : from+n] {
			if got := found[id]; id != "-/t/none" {
				require.NotNil(t, got, id)
				bytes += len(got.Result.Value)
			}
		}
		require.LessOrEqual(t, bytes, pageBytes+each)
		require.LessOrEqual(t, len(found), n, "and nothing behind the page")
		from += n
	}
	_, n, err := p.Tasks.LastLivesPage(t.Context(), ids, State)
	require.NoError(t, err)
	require.Len(t, ids, n, "states are small")
}
