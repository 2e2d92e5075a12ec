package callback

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func entries(tasks ...*model.Task) (out []outcome.Entry) {
	for _, t := range tasks {
		for _, e := range t.Outbox {
			out = append(out, outcome.Entry{ID: lifecycle.EntryID(t.ID, t.Generation, e), Life: store.OutboxLife{Task: t}, Entry: e})
		}
	}
	return out
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// end ends a delivery that was handed over.
func (b *bench) end(d *model.Task, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	_, after, err := b.store.Tasks.Change(b.t.Context(), d.ID, func(t *model.Task) (*model.Task, error) {
		now, eff := b.store.Clock.Now(), lifecycle.ResolveOptions(t.Options)
		claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "w", ExecID: "y"}, eff, now)
		require.Empty(b.t, no)
		return lifecycle.Finish(claimed, "y", out, eff, now, 0)
	})
	require.NoError(b.t, err)
	return after
}

func (b *bench) get(id string) *model.Task {
	b.t.Helper()
	t, err := b.store.Tasks.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return t
}

func TestHandingOverTwiceMakesOneDelivery(t *testing.T) {
	b := newBench(t)
	one, two := b.ended("one", hook("http://x/"), lifecycle.Outcome{}), b.ended("two", hook("http://x/"), lifecycle.Failed(failkind.Fatal, "no"))
	made := 0
	h := Handover{Store: b.store, Made: func() { made++ }}
	noErrors(t, h.Carry(t.Context(), entries(one)))
	first := b.get(lifecycle.DeliveryID(one))
	noErrors(t, h.Carry(t.Context(), entries(one, two)))
	require.Equal(t, first, b.get(lifecycle.DeliveryID(one)), "it is left as it is")
	require.Equal(t, 2, made)
	d := b.get(lifecycle.DeliveryID(two))
	require.Equal(t, input.CallbackType, d.Type)
	require.Equal(t, lifecycle.DefaultPriority, d.Priority)
	require.Equal(t, &model.Origin{Kind: lifecycle.OutcomeDelivery, ID: two.ID, Generation: two.Generation}, d.Origin)
	var args lifecycle.DeliveryArgs
	require.NoError(t, codec.DecodeValue(d.Args, &args))
	require.Equal(t, lifecycle.DeliveryArgs{TaskID: two.ID, Generation: two.Generation}, args)
}

func TestTheEndOfADeliveryIsToldToItsLife(t *testing.T) {
	for name, c := range map[string]struct {
		task, out lifecycle.Outcome
		want      model.Status
	}{
		"delivered":              {lifecycle.Outcome{}, lifecycle.Outcome{}, model.StatusSuccess},
		"failed":                 {lifecycle.Outcome{}, lifecycle.Failed(failkind.Fatal, "410"), model.StatusCompleted},
		"cancelled":              {lifecycle.Outcome{}, lifecycle.Outcome{Kind: failkind.Cancelled, CancelTask: true}, model.StatusCompleted},
		"delivered of a failure": {lifecycle.Failed(failkind.Fatal, "no"), lifecycle.Outcome{}, model.StatusFailure},
		"failed of a failure":    {lifecycle.Failed(failkind.Fatal, "no"), lifecycle.Failed(failkind.Fatal, "410"), model.StatusFailure},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			task := b.ended("k", hook("http://x/"), c.task)
			require.True(t, task.ArchiveAt.IsZero(), "it waits for its delivery")
			noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
			d := b.end(b.get(lifecycle.DeliveryID(task)), c.out)
			s := Settlement{Store: b.store, Types: b.types}
			noErrors(t, s.Carry(t.Context(), entries(d)))
			got := b.get(task.ID)
			require.Equal(t, c.want, got.Status)
			require.Equal(t, got.FinishedAt.Add(lifecycle.DefaultRetention), got.ArchiveAt)
			noErrors(t, s.Carry(t.Context(), entries(d)))
			require.Equal(t, got, b.get(task.ID), "the second time changes nothing")
		})
	}
}

// Up to a thousand ends are recorded at a time, and each of the tasks may have megabytes.
func TestToRecordADeliveryNothingLargeOfItsTaskIsReadOrChanged(t *testing.T) {
	p := testdb.BehindPatient(t)
	db := testdb.Through(t, p)
	b := benchOf(t, store.Config{Database: db})
	task := b.ended("k", hook("http://x/"), lifecycle.Outcome{})
	noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
	d := b.end(b.get(lifecycle.DeliveryID(task)), lifecycle.Outcome{})
	const large = "what is large"
	_, err := db.Collection("tasks").UpdateByID(t.Context(), task.ID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "args", Value: large}, {Key: "result", Value: large}, {Key: "checkpoint", Value: large},
		{Key: "steps", Value: bson.A{bson.D{{Key: "name", Value: "s"}, {Key: "value", Value: large}}}},
		{Key: "worker_states.0.checkpoint", Value: large}, {Key: "worker_states.0.returns", Value: large},
	}}})
	require.NoError(t, err)
	before := b.get(task.ID)
	var read atomic.Bool
	p.Rewrite(func(_ string, answer bson.Raw) bson.Raw {
		if bytes.Contains(answer, []byte(large)) {
			read.Store(true)
		}
		return answer
	})
	noErrors(t, Settlement{Store: b.store, Types: b.types}.Carry(t.Context(), entries(d)))
	require.False(t, read.Load())
	after := b.get(task.ID)
	require.Equal(t, model.StatusSuccess, after.Status)
	require.True(t, read.Load(), "it is still there")
	before.Status, before.ArchiveAt, before.Rev, before.UpdatedAt = after.Status, after.ArchiveAt, after.Rev, after.UpdatedAt
	require.Equal(t, before, after)
}

func TestTwoEndsOfADeliveryInOneBatchAreBothTold(t *testing.T) {
	b := newBench(t)
	task := b.ended("k", hook("http://x/"), lifecycle.Outcome{})
	noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
	failed := b.end(b.get(lifecycle.DeliveryID(task)), lifecycle.Failed(failkind.Fatal, "410"))
	_, again, err := b.store.Tasks.Change(t.Context(), failed.ID, func(d *model.Task) (*model.Task, error) {
		return lifecycle.RetryNow(d, "", lifecycle.ResolveOptions(d.Options), b.store.Clock.Now())
	})
	require.NoError(t, err)
	delivered := b.end(again, lifecycle.Outcome{})
	noErrors(t, Settlement{Store: b.store, Types: b.types}.Carry(t.Context(), entries(failed, delivered)))
	require.Equal(t, model.StatusSuccess, b.get(task.ID).Status)
}

func TestALifeThatIsHistoryIsToldAndADeliveryByHandTellsNobody(t *testing.T) {
	b := newBench(t)
	task := b.ended("k", hook("http://x/"), lifecycle.Outcome{})
	noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
	d := b.end(b.get(lifecycle.DeliveryID(task)), lifecycle.Outcome{})
	_, newLife, err := b.store.Tasks.Change(t.Context(), task.ID, func(t *model.Task) (*model.Task, error) {
		return lifecycle.SendAgain(t, lifecycle.Draft{Type: t.Type, Key: t.Key}, model.RestartSucceeded, b.store.Clock.Now())
	})
	require.NoError(t, err)
	byHand := *d
	byHand.Origin = nil
	noErrors(t, Settlement{Store: b.store, Types: b.types}.Carry(t.Context(), append(entries(d), entries(&byHand)...)))
	require.Equal(t, newLife.Rev, b.get(task.ID).Rev, "the new life is none of its business")
	old, err := b.store.History.Life(t.Context(), task.ID, task.Generation)
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, old.Status)
}
