package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// weighed is a store of which the answers are weighed.
type weighed struct {
	*past
	answered, largest int // bytes of all answers, and of the largest one
}

func newWeighed(t *testing.T) *weighed {
	w := &weighed{}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			w.answered, w.largest = w.answered+len(e.Reply), max(w.largest, len(e.Reply))
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	w.past = pastIn(t, client.Database(testdb.New(t).Name()))
	return w
}

// outcomes stores tasks that have ended with all that may be large, of which something must follow. It returns them as
// they are stored.
func (w *weighed) outcomes(n, bytes int) (tasks []*model.Task) {
	w.t.Helper()
	now := w.Clock.Now()
	for i := range n {
		task := lifecycle.NewTask(lifecycle.Draft{Tenant: "acme", Type: "t", Key: key(i), Args: text(bytes)}, now.Add(-time.Hour))
		task.Origin, task.Trace = &model.Origin{Kind: lifecycle.OutcomePlan, ID: "p", Step: 7, Generation: 2}, &model.Trace{Parent: "00-1-2-01"}
		task.Status, task.ErrorInfo, task.Remark, task.DueAt, task.FinishedAt = model.StatusSuccess, "why", "so", time.Time{}, now
		task.Result, task.Checkpoint, task.Steps = text(bytes), text(bytes), []model.Step{{Name: "s", Value: text(bytes)}}
		task.WorkerStates = []model.WorkerState{{
			ExecID: "e", WorkerID: "w", ClaimedAt: now, SuccessTime: now, FailTime: now, FailKind: "error", FailReason: "why", Parked: true, Unstarted: true,
			Returns: text(bytes), Checkpoint: text(bytes),
		}}
		task.Outbox, task.OutboxAt = []model.OutboxEntry{{Kind: lifecycle.OutcomePlan, Rev: 3}}, now
		_, err := w.Tasks.Insert(w.t.Context(), []*model.Task{task})
		require.NoError(w.t, err)
		task, err = w.Tasks.Get(w.t.Context(), task.ID)
		require.NoError(w.t, err)
		tasks = append(tasks, task)
	}
	return tasks
}

// asEnd is what a look reads of a task that has ended.
func asEnd(t *model.Task, history bool) OutboxLife {
	end := &model.Task{
		ID: t.ID, Generation: t.Generation, Tenant: t.Tenant, Status: t.Status, CreatedAt: t.CreatedAt, StartTime: t.StartTime, FinishedAt: t.FinishedAt,
		ErrorInfo: t.ErrorInfo, Remark: t.Remark, Origin: t.Origin, Trace: t.Trace, Outbox: t.Outbox, OutboxAt: t.OutboxAt,
	}
	for _, w := range t.WorkerStates {
		end.WorkerStates = append(end.WorkerStates, model.WorkerState{
			ClaimedAt: w.ClaimedAt, SuccessTime: w.SuccessTime, FailTime: w.FailTime, FailKind: w.FailKind, Parked: w.Parked, Unstarted: w.Unstarted,
		})
	}
	return OutboxLife{Task: end, InHistory: history}
}

func TestALookForEndsReadsNothingThatMayBeLarge(t *testing.T) {
	w := newWeighed(t)
	const each = 100 << 10
	tasks := w.outcomes(6, each)
	w.moves(tasks[4].ID, tasks[5].ID) // with an earlier life each
	var present, all []OutboxLife
	var ids []string
	for _, task := range tasks[:4] {
		present, ids = append(present, asEnd(task, false)), append(ids, task.ID)
	}
	all = append(all, present...)
	for _, task := range tasks[4:] {
		earlier := *task
		earlier.Generation--
		all = append(all, asEnd(&earlier, true), asEnd(task, true))
	}
	kind, from, now := lifecycle.OutcomePlan, w.Clock.Now().Add(-time.Minute), w.Clock.Now().Add(time.Minute)
	asked := func() (lives []OutboxLife, err error) {
		err = w.Ask(t.Context(), "looking", w.Tasks.OutboxQuestions(kind, from, now, 100, func(l *OutboxLife, _ bool) { lives = append(lives, *l) })...)
		return lives, err
	}
	page := func() (lives []OutboxLife, err error) {
		lives, _, err = w.Tasks.Outboxes(t.Context(), []string{kind}, from, now, 100)
		return lives, err
	}
	for _, c := range []struct {
		name string
		look func() ([]OutboxLife, error)
		want []OutboxLife
	}{
		{"a look", asked, all},
		{"a page", page, all},
		{"those of some tasks", func() ([]OutboxLife, error) { return w.Tasks.OutboxesOf(t.Context(), ids, kind) }, present},
	} {
		w.answered = 0
		lives, err := c.look()
		require.NoError(t, err, c.name)
		require.Less(t, w.answered, each/2, c.name)
		require.ElementsMatch(t, c.want, lives, c.name)
	}
	_, err := w.tasks.UpdateMany(t.Context(), bson.D{}, bson.D{d("$set", bson.D{d("outbox", bson.A{})})})
	require.NoError(t, err)
	w.answered = 0
	empty, err := w.Tasks.EmptyOutboxes(t.Context(), now, 100)
	require.NoError(t, err)
	require.Len(t, empty, 4)
	require.Less(t, w.answered, each/2)
}

// A checkpoint may be large. The rule's record wants the call that the task of an HTTP target has in it.
func TestALookForEndsReadsTheCallInACheckpointAlone(t *testing.T) {
	w := newWeighed(t)
	const each = 100 << 10
	task := w.outcomes(1, each)[0]
	call := bson.D{d("http_call", bson.D{d("url", "http:")}), d("more", text(each))}
	_, err := w.tasks.UpdateByID(t.Context(), task.ID, bson.D{d("$set", bson.D{d("checkpoint", call), d("worker_states.0.checkpoint", call)})})
	require.NoError(t, err)
	w.answered = 0
	lives, _, err := w.Tasks.Outboxes(t.Context(), []string{lifecycle.OutcomePlan}, time.Time{}, w.Clock.Now().Add(time.Minute), 100)
	require.NoError(t, err)
	require.Less(t, w.answered, each/2)
	require.Len(t, lives, 1)
	for _, kept := range []bson.RawValue{lives[0].Checkpoint, lives[0].WorkerStates[0].Checkpoint} {
		require.JSONEq(t, `{"http_call":{"url":"http:"}}`, kept.String())
	}
}

func TestAPageOfLivesHasFewMegabytesAndIsInOrder(t *testing.T) {
	w := newWeighed(t)
	const each = 600 << 10
	tasks := w.outcomes(40, 0)
	_, err := w.tasks.UpdateMany(t.Context(), bson.D{}, bson.D{d("$set", bson.D{d("result", text(each))})})
	require.NoError(t, err)
	var lives []OutboxLife
	for _, task := range tasks {
		lives = append(lives, asEnd(task, false)) // as a look has found them
	}
	w.moves(tasks[3].ID, tasks[20].ID, tasks[21].ID)
	earlier := *lives[20].Task
	earlier.Generation--
	lives = append(lives, OutboxLife{Task: &earlier, InHistory: true})
	const again, gone = 25, 30
	w.change(tasks[again].ID, func(t *model.Task) *model.Task {
		after, err := lifecycle.SendAgain(t, lifecycle.Draft{Tenant: "acme", Type: "t", Key: key(again)}, model.RestartSucceeded, w.Clock.Now())
		require.NoError(w.t, err)
		return after
	})
	_, err = w.tasks.DeleteOne(t.Context(), bson.D{d("_id", tasks[gone].ID)})
	require.NoError(t, err)
	for from, pages := 0, 0; from < len(lives); pages++ {
		require.Less(t, pages, 5)
		w.largest = 0
		found, n, err := w.Tasks.LivesPage(t.Context(), lives[from:], Returned)
		require.NoError(t, err)
		require.Positive(t, n)
		require.Len(t, found, n)
		require.LessOrEqual(t, w.largest, pageBytes+each)
		bytes := 0
		for i, got := range found {
			l := lives[from+i]
			if from+i == gone {
				require.Nil(t, got)
				continue
			}
			require.Equal(t, []any{l.ID, l.Generation, l.Origin, model.StatusSuccess}, []any{got.ID, got.Generation, got.Origin, got.Status})
			require.Equal(t, []any{"e", "w", "why"}, []any{got.WorkerStates[0].ExecID, got.WorkerStates[0].WorkerID, got.WorkerStates[0].FailReason})
			require.Zero(t, got.Args.Type)
			bytes += len(got.Result.Value)
		}
		require.LessOrEqual(t, bytes, pageBytes+each)
		from += n
	}
	found, n, err := w.Tasks.LivesPage(t.Context(), nil, Returned)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, found)

	_, err = w.tasks.UpdateByID(t.Context(), tasks[0].ID, bson.D{d("$set", bson.D{d("worker_states.0.worker_id", 7)})})
	require.NoError(t, err)
	_, _, err = w.Tasks.LivesPage(t.Context(), lives[:2], Returned)
	var unread *model.UnreadableError
	require.ErrorAs(t, err, &unread, "nobody may take it for one that is gone")
}
