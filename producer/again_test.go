package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestADuplicateLeavesTheTaskAlone(t *testing.T) {
	b := setup(t)
	first := b.send(mail{To: "ann"}, Key("k"))
	stored := b.get(first.ID)
	second := b.send(mail{To: "bob"}, Key("k"), Priority(9), In(time.Hour))
	require.False(t, second.Created)
	require.Equal(t, first.Generation, second.Generation)
	require.Equal(t, stored, b.get(first.ID))
}

func TestADuplicateUpdatesArgumentsStartAndOptionsWithTheFlag(t *testing.T) {
	b := setup(t)
	s := b.send(mail{To: "ann"}, Key("k"))
	at := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	again := b.send(mail{To: "bob"}, Key("k"), At(at), MaxLapses(1), OnExisting(model.UpdateArgs))
	require.False(t, again.Created)
	require.Equal(t, s.Generation, again.Generation)
	doc := b.get(s.ID)
	require.JSONEq(t, `{"to":"bob"}`, string(codec.ValueJSON(doc.Args)))
	require.Equal(t, at, doc.StartTime)
	require.Equal(t, at, doc.DueAt)
	require.Equal(t, 1, *doc.Options.MaxLapses)
}

func TestUpdateIdleLeavesARunningTaskAlone(t *testing.T) {
	b := setup(t)
	s := b.send(mail{To: "ann"}, Key("k"))
	b.send(mail{To: "bob"}, Key("k"), OnExisting(model.UpdateIdle))
	b.Claim(s.ID, "w")
	again := b.send(mail{To: "eve"}, Key("k"), OnExisting(model.UpdateIdle))
	require.Equal(t, model.StatusExecuting, again.Status)
	require.JSONEq(t, `{"to":"bob"}`, string(codec.ValueJSON(b.get(s.ID).Args)))
	b.send(mail{To: "eve"}, Key("k"), OnExisting(model.UpdateArgs))
	require.JSONEq(t, `{"to":"eve"}`, string(codec.ValueJSON(b.get(s.ID).Args)))
}

func TestAFailedTaskRunsAgainAsANewLifeWithTheFlag(t *testing.T) {
	b := setup(t)
	s := b.send(mail{To: "ann"}, Key("k"))
	failed := b.Run(s.ID, lifecycle.Failed(failkind.Fatal, "no such user"))
	require.Equal(t, model.StatusFailure, failed.Status)

	untouched := b.send(mail{}, Key("k"), OnExisting(model.RestartSucceeded))
	require.Equal(t, model.StatusFailure, untouched.Status)

	again := b.send(mail{To: "bob"}, Key("k"), OnExisting(model.RestartFailed))
	require.True(t, again.Created)
	require.Greater(t, again.Generation, s.Generation)
	require.Equal(t, model.StatusNew, again.Status)
	doc := b.get(s.ID)
	require.Zero(t, doc.ErrorCount)
	require.Empty(t, doc.WorkerStates)
	require.JSONEq(t, `{"to":"bob"}`, string(codec.ValueJSON(doc.Args)))

	old, err := b.p.room.Life(t.Context(), s.ID, s.Generation)
	require.NoError(t, err, "the ended life is in the history")
	require.Equal(t, model.StatusFailure, old.Status)
	require.Equal(t, "no such user", old.ErrorInfo)
}

func TestASucceededTaskRunsAgainAsANewLifeWithTheFlag(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	b.Run(s.ID, lifecycle.Success(fakeworker.Value(t, receipt{Bytes: 7})))
	require.False(t, b.send(mail{}, Key("k"), OnExisting(model.RestartFailed)).Created)
	again := b.send(mail{}, Key("k"), OnExisting(model.RestartSucceeded))
	require.True(t, again.Created)
	require.Zero(t, b.get(s.ID).Result)
	old, err := b.p.room.Life(t.Context(), s.ID, s.Generation)
	require.NoError(t, err)
	require.JSONEq(t, `{"bytes":7}`, string(codec.ValueJSON(old.Result)))
}

func TestAnUpdateThatExcludesARunningWorkerTellsIt(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	b.Claim(s.ID, "w1")
	b.send(mail{}, Key("k"), Workers("w1", "w2"), OnExisting(model.UpdateArgs))
	require.Zero(t, b.Signalled(s.ID), "w1 may go on")
	for i := range 2 { // who repeats it tells it again
		b.send(mail{}, Key("k"), Workers("w2"), OnExisting(model.UpdateArgs))
		require.Equal(t, i+1, b.Signalled(s.ID))
	}
}

func TestAKeyWhoseTaskWasDeletedIsFreeAgain(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	_, err := b.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: s.ID}})
	require.NoError(t, err)
	// As a sender finds it whose insert saw the task and whose decision did not.
	o := newOutgoing(&Draft{Type: "mail", Key: "k", OnExisting: model.UpdateArgs}, nil, nil, b.Now())
	o.again = true
	b.p.sendAgain(t.Context(), o)
	require.NoError(t, o.err)
	require.True(t, o.sent.Created)
	require.Equal(t, s.ID, b.get(s.ID).ID)
}

func TestALifeThatWaitsForItsRetryIsKeptWhenANewOneBegins(t *testing.T) {
	b := setup(t)
	first := b.send(mail{To: "ann"}, Key("k"))
	require.Equal(t, model.StatusError, b.Run(first.ID, lifecycle.Failed(failkind.Error, "no route").After(time.Hour)).Status)
	over := b.awaiting(first)
	again := b.send(mail{To: "bob"}, Key("k"), OnExisting(model.RestartFailed))
	require.True(t, again.Created)
	old, err := b.p.room.Life(t.Context(), first.ID, first.Generation)
	require.NoError(t, err)
	require.Equal(t, 1, old.ErrorCount)
	require.Equal(t, "no route", old.ErrorInfo)
	lives, err := b.Store.History.AllLives(t.Context(), first.ID)
	require.NoError(t, err)
	require.Len(t, lives, 2)
	w := <-over
	require.ErrorIs(t, w.err, model.ErrNotFound, "that life never ends, so nobody waits for it")
	require.ErrorContains(t, w.err, "a new life began before that one ended")
}

func TestASendOfATaskThatCannotBeReadSaysSo(t *testing.T) {
	b := setup(t)
	s := b.send(mail{To: "ann"}, Key("k"))
	damaged := func(field string) {
		_, err := b.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: s.ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: true}}}})
		require.NoError(t, err)
	}
	refused := func(opts ...Option) {
		t.Helper()
		_, err := Send(t.Context(), b.p, mailType, mail{To: "bob"}, append(opts, Key("k"))...)
		require.ErrorAs(t, err, new(*model.UnreadableError))
		require.ErrorContains(t, err, "this release cannot read the task "+s.ID)
	}
	damaged("options")
	b.send(mail{To: "bob"}, Key("k")) // it leaves the task alone, and reads three fields
	refused(OnExisting(model.UpdateArgs))
	_, err := SendMany(t.Context(), b.p, mailType, []Item[mail]{
		{Options: []Option{Key("other")}}, {Options: []Option{Key("k"), OnExisting(model.RestartFailed)}},
	})
	require.ErrorAs(t, err, new(*model.UnreadableError))
	b.get(model.TaskID("", "mail", "other"))
	damaged("status")
	refused()
}

// What follows an end is done at once, and not by a sweep.
func TestASendThatEndsATaskHandsItsCallbackOver(t *testing.T) {
	b := setup(t)
	hook := model.Callback{Success: &model.CallbackTarget{URL: "http://127.0.0.1:1/"}}
	s := b.send(mail{}, Key("k"), ConcurrentWorkers(2), Callback(hook))
	b.Claim(s.ID, "w1")
	b.End(s.ID, "w1", lifecycle.Success(bson.RawValue{}))
	require.Equal(t, model.StatusNew, b.get(s.ID).Status, "it wants another worker")
	b.send(mail{}, Key("k"), ConcurrentWorkers(1), Callback(hook), OnExisting(model.UpdateArgs))
	task := b.get(s.ID)
	require.Equal(t, model.StatusCompleted, task.Status)
	require.Empty(t, task.Outbox)
	_, err := b.p.Get(t.Context(), lifecycle.DeliveryID(task))
	require.NoError(t, err)
}
