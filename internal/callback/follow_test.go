package callback

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func entries(tasks ...*model.Task) (out []outcome.Entry) {
	for _, t := range tasks {
		for _, e := range t.Outbox {
			out = append(out, outcome.Entry{ID: model.EntryID(t.ID, t.Generation, e), Life: store.OutboxLife{Task: t}, Entry: e})
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
func (b *bench) end(d *model.Task, out model.Outcome) *model.Task {
	b.t.Helper()
	_, after, err := b.store.Change(b.t.Context(), d.ID, func(t *model.Task) (*model.Task, error) {
		now, eff := b.store.Clock.Now(), model.ResolveOptions(t.Options)
		claimed, no := model.Claim(t, model.Claimant{WorkerID: "w", ExecID: "y"}, eff, now)
		require.Empty(b.t, no)
		return model.Finish(claimed, "y", out, eff, now, 0)
	})
	require.NoError(b.t, err)
	return after
}

func (b *bench) get(id string) *model.Task {
	b.t.Helper()
	t, err := b.store.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return t
}

func TestHandingOverTwiceMakesOneDelivery(t *testing.T) {
	b := newBench(t)
	one, two := b.ended("one", hook("http://x/"), model.Outcome{}), b.ended("two", hook("http://x/"), model.Failed(model.FailFatal, "no"))
	made := 0
	h := Handover{Store: b.store, Made: func() { made++ }}
	noErrors(t, h.Carry(t.Context(), entries(one)))
	first := b.get(model.DeliveryID(one))
	noErrors(t, h.Carry(t.Context(), entries(one, two)))
	require.Equal(t, first, b.get(model.DeliveryID(one)), "it is left as it is")
	require.Equal(t, 2, made)
	d := b.get(model.DeliveryID(two))
	require.Equal(t, model.CallbackType, d.Type)
	require.Equal(t, model.DefaultPriority, d.Priority)
	require.Equal(t, &model.Origin{Kind: model.OutcomeDelivery, ID: two.ID, Generation: two.Generation}, d.Origin)
	var args model.DeliveryArgs
	require.NoError(t, model.DecodeValue(d.Args, &args))
	require.Equal(t, model.DeliveryArgs{TaskID: two.ID, Generation: two.Generation}, args)
}

func TestTheEndOfADeliveryIsToldToItsLife(t *testing.T) {
	for name, c := range map[string]struct {
		task, out model.Outcome
		want      model.Status
	}{
		"delivered":              {model.Outcome{}, model.Outcome{}, model.StatusSuccess},
		"failed":                 {model.Outcome{}, model.Failed(model.FailFatal, "410"), model.StatusCompleted},
		"cancelled":              {model.Outcome{}, model.Outcome{Kind: model.FailCancelled, CancelTask: true}, model.StatusCompleted},
		"delivered of a failure": {model.Failed(model.FailFatal, "no"), model.Outcome{}, model.StatusFailure},
		"failed of a failure":    {model.Failed(model.FailFatal, "no"), model.Failed(model.FailFatal, "410"), model.StatusFailure},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			task := b.ended("k", hook("http://x/"), c.task)
			require.True(t, task.ArchiveAt.IsZero(), "it waits for its delivery")
			noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
			d := b.end(b.get(model.DeliveryID(task)), c.out)
			s := Settlement{Store: b.store, Types: b.types}
			noErrors(t, s.Carry(t.Context(), entries(d)))
			got := b.get(task.ID)
			require.Equal(t, c.want, got.Status)
			require.Equal(t, got.FinishedAt.Add(model.DefaultRetention), got.ArchiveAt)
			noErrors(t, s.Carry(t.Context(), entries(d)))
			require.Equal(t, got, b.get(task.ID), "the second time changes nothing")
		})
	}
}

func TestTwoEndsOfADeliveryInOneBatchAreBothTold(t *testing.T) {
	b := newBench(t)
	task := b.ended("k", hook("http://x/"), model.Outcome{})
	noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
	failed := b.end(b.get(model.DeliveryID(task)), model.Failed(model.FailFatal, "410"))
	_, again, err := b.store.Change(t.Context(), failed.ID, func(d *model.Task) (*model.Task, error) {
		return model.RetryNow(d, "", model.ResolveOptions(d.Options), b.store.Clock.Now())
	})
	require.NoError(t, err)
	delivered := b.end(again, model.Outcome{})
	noErrors(t, Settlement{Store: b.store, Types: b.types}.Carry(t.Context(), entries(failed, delivered)))
	require.Equal(t, model.StatusSuccess, b.get(task.ID).Status)
}

func TestALifeThatIsHistoryIsToldAndADeliveryByHandTellsNobody(t *testing.T) {
	b := newBench(t)
	task := b.ended("k", hook("http://x/"), model.Outcome{})
	noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
	d := b.end(b.get(model.DeliveryID(task)), model.Outcome{})
	_, newLife, err := b.store.Change(t.Context(), task.ID, func(t *model.Task) (*model.Task, error) {
		return model.SendAgain(t, model.Draft{Type: t.Type, Key: t.Key}, model.RestartSucceeded, b.store.Clock.Now())
	})
	require.NoError(t, err)
	byHand := *d
	byHand.Origin = nil
	noErrors(t, Settlement{Store: b.store, Types: b.types}.Carry(t.Context(), append(entries(d), entries(&byHand)...)))
	require.Equal(t, newLife.Rev, b.get(task.ID).Rev, "the new life is none of its business")
	old, err := b.store.Life(t.Context(), task.ID, task.Generation)
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, old.Status)
}
