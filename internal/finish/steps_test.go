package finish

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// stepping is an execution whose handler saves steps.
type stepping struct{ id, execID string }

func (s stepping) Interval() time.Duration { return time.Minute }
func (s stepping) StepWrite(step model.Step) store.StepWrite {
	return store.StepWrite{ID: s.id, ExecID: s.execID, Step: step}
}

func TestAStepIsSavedOnceAndOnlyByWhoHoldsTheTask(t *testing.T) {
	ends, w := room(t)
	e, _ := ends.claimed(t, "a")
	first := model.Step{Name: "s", WorkerID: "w", Attempt: 1}
	got, err := w.Save(t.Context(), stepping{e.Claimed.ID, "e"}, first)
	require.NoError(t, err)
	require.Equal(t, 1, got.Attempt)
	got, err = w.Save(t.Context(), stepping{e.Claimed.ID, "e"}, model.Step{Name: "s", WorkerID: "w", Attempt: 2})
	require.NoError(t, err)
	require.Equal(t, 1, got.Attempt, "what the task has counts")
	_, err = w.Save(t.Context(), stepping{e.Claimed.ID, "another"}, model.Step{Name: "s2", WorkerID: "w"})
	require.ErrorIs(t, err, model.ErrFenced)
}

func TestAStepOfATaskThatATransactionHoldsDelaysNoOther(t *testing.T) {
	db := testdb.New(t)
	ends, w := roomOn(t, db)
	blocked, _ := ends.claimed(t, "held")
	free, _ := ends.claimed(t, "free")
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = db.Collection("tasks").UpdateByID(mongo.NewSessionContext(t.Context(), session), blocked.Claimed.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	saved := make(chan error, 1)
	go func() {
		_, err := w.Save(t.Context(), stepping{blocked.Claimed.ID, "e"}, model.Step{Name: "s", WorkerID: "w"})
		saved <- err
	}()
	require.Eventually(t, func() bool { return w.Store.Suspected(blocked.Claimed.ID) }, testdb.Patience, time.Millisecond)
	for _, name := range []string{"one", "two", "three"} {
		_, err = w.Save(t.Context(), stepping{free.Claimed.ID, "e"}, model.Step{Name: name, WorkerID: "w"})
		require.NoError(t, err)
	}
	require.Empty(t, saved, "it waits for the end of the transaction")
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.NoError(t, <-saved)
}

func TestSavingGoesOnForAMomentWhenTheHandlerMustStop(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	waiting, end := lingering(ctx, time.Hour)
	defer end()
	stop(model.ErrFenced)
	require.NoError(t, waiting.Err())
	at, ended := lingering(ctx, 0)
	defer ended()
	<-at.Done()
	require.ErrorIs(t, context.Cause(at), model.ErrFenced)
}

func TestABookHasEachNameOnce(t *testing.T) {
	var b Book
	read := 0
	saved := func() []model.Step { read++; return []model.Step{{Name: "old", Attempt: 7}} }
	old, err := b.Take("old", saved)
	require.NoError(t, err)
	require.Equal(t, 7, old.Attempt)
	none, err := b.Take("new", saved)
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = b.Take("new", saved)
	require.ErrorContains(t, err, "occurs twice")
	require.Equal(t, 1, read)

	require.NoError(t, b.Enter(model.Step{Name: "new"}, 1))
	b.Drop("new")
	none, err = b.Take("new", saved)
	require.NoError(t, err)
	require.Nil(t, none, "it was not saved")
	require.NoError(t, b.Enter(model.Step{Name: "new", Attempt: 8}, 1))
	b.Forget()
	again, err := b.Take("new", saved)
	require.NoError(t, err)
	require.Equal(t, 8, again.Attempt, "another call of the handler")
}

func TestABookThatIsFullRefusesBeforeTheStepRuns(t *testing.T) {
	b := Book{done: make([]model.Step, input.MaxSteps-1)}
	require.NoError(t, b.Room("s"))
	b.done = append(b.done, model.Step{})
	require.Error(t, b.Room("s"))
	require.Error(t, b.Enter(model.Step{Name: "s"}, 1))
}
