package producer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestUpdateChangesWhatItNamesAndNothingElse(t *testing.T) {
	b := setup(t)
	s := b.send(mail{To: "ann"}, Key("k"), Priority(3), Creator("web"), MaxLapses(7), Timeout(time.Minute))
	before := b.get(s.ID)
	at := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := b.p.Update(t.Context(), s.ID, Args(mail{To: "bob"}), At(at), Category("bulk"), Timeout(0))
	require.NoError(t, err)
	want := *before
	want.Args = fakeworker.Value(t, mail{To: "bob"})
	want.StartTime, want.DueAt, want.Category, want.Options.ExecutionTimeout = at, at, "bulk", 0
	after := b.get(s.ID)
	want.Rev, want.UpdatedAt, want.WakeAt = before.Rev+1, after.UpdatedAt, after.WakeAt
	require.Equal(t, want, *after)

	_, err = b.p.Update(t.Context(), s.ID, In(time.Hour), Priority(0), Creator(""))
	require.NoError(t, err)
	after = b.get(s.ID)
	require.WithinDuration(t, b.Now().Add(time.Hour), after.StartTime, 10*time.Second)
	require.Zero(t, after.Priority)
	require.Empty(t, after.Creator)

	_, err = b.p.Update(t.Context(), s.ID, At(time.Time{}))
	require.NoError(t, err)
	require.WithinDuration(t, b.Now(), b.get(s.ID).StartTime, 10*time.Second, "the zero time means now")
}

func TestANewFilterEndsTheExecutionsItExcludes(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Claim(s.ID, "w1")
	_, err := b.p.Update(t.Context(), s.ID, Priority(9))
	require.NoError(t, err)
	_, err = b.p.Update(t.Context(), s.ID, Workers("w1"))
	require.NoError(t, err)
	require.Zero(t, b.Signalled(s.ID), "w1 may go on")
	for i := range 2 {
		_, err = b.p.Update(t.Context(), s.ID, Workers("w2"))
		require.NoError(t, err)
		require.Equal(t, i+1, b.Signalled(s.ID), "who repeats an update repeats its signal")
	}
	require.Equal(t, []string{"w2"}, b.get(s.ID).Audience)
	_, err = b.p.Update(t.Context(), s.ID, AnyWorker())
	require.NoError(t, err)
	require.Equal(t, []string{lifecycle.AudienceAll}, b.get(s.ID).Audience)
}

func TestANewPingIntervalIsToldToWhoPings(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Claim(s.ID, "w")
	_, err := b.p.Update(t.Context(), s.ID, Lease(time.Second, 5*time.Second))
	require.NoError(t, err)
	require.Equal(t, 1, b.Signalled(s.ID))
}

func TestABadUpdateIsRefusedByField(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Workers("w1", "w2"))
	before := b.get(s.ID)
	for field, opt := range map[string]Option{
		"key":                     Key("other"),
		"tenant":                  Tenant("other"),
		"held":                    Held(),
		"on_existing":             OnExisting(model.UpdateArgs),
		"outside_transaction":     OutsideTransaction(),
		"priority":                Priority(10),
		"in":                      In(-1),
		"specific_worker_ids":     Workers(),
		"args":                    Args(strings.Repeat("x", input.MaxArgsBytes)),
		"concurrent_worker_count": ConcurrentWorkers(3), // more than the two that may
		"max_errors_per_worker":   MaxErrorsPerWorker(-1),
		"options[0]":              nil,
	} {
		_, err := b.p.Update(t.Context(), s.ID, opt)
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	_, err := b.p.Update(t.Context(), s.ID)
	require.ErrorIs(t, err, model.ErrInvalid, "nothing to change")
	require.Equal(t, before, b.get(s.ID))
}

// Who runs it has a permit of the old key and none of the new one: two of that would run.
func TestTheLimitKeyOfARunningTaskIsNotChanged(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"), LimitKey("ann"))
	_, err := b.p.Update(t.Context(), s.ID, LimitKey("bob"))
	require.NoError(t, err)
	b.Claim(s.ID, "w")
	before := b.get(s.ID)
	var refused *model.RefusedError
	_, err = b.p.Update(t.Context(), s.ID, LimitKey("cid"), Priority(9))
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "limit_key")
	_, err = Send(t.Context(), b.p, mailType, mail{To: "cid"}, Key("k"), LimitKey("cid"), OnExisting(model.UpdateArgs))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, before, b.get(s.ID), "nothing was written")

	_, err = b.p.Update(t.Context(), s.ID, LimitKey("bob"), Priority(9))
	require.NoError(t, err, "the same key is no change")
	b.End(s.ID, "w", lifecycle.NotStarted("stopping"))
	_, err = b.p.Update(t.Context(), s.ID, LimitKey("cid"))
	require.NoError(t, err)
	require.Equal(t, "cid", b.get(s.ID).Options.LimitKey)
}

func TestARefusedSendDoesNotEndTheTransactionOfTheOthers(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"), LimitKey("ann"))
	b.Claim(s.ID, "w")
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		_, err := SendMany(ctx, b.p, mailType, []Item[mail]{
			{Options: []Option{Key("before")}},
			{Options: []Option{Key("k"), LimitKey("bob"), OnExisting(model.UpdateArgs)}},
			{Options: []Option{Key("after")}},
		})
		var many *ManyError
		require.ErrorAs(t, err, &many)
		require.Len(t, many.Failed, 1)
		return nil, nil
	})
	require.NoError(t, err)
	for _, key := range []string{"before", "after"} {
		require.Equal(t, model.StatusNew, b.get(model.TaskID("", "mail", key)).Status)
	}
}

func TestAnUpdateOfATaskThatHasChangedSinceItWasReadIsRefused(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, In(time.Hour))
	read := b.get(s.ID)
	after, err := b.p.Update(t.Context(), s.ID, Priority(7), IfRev(read.Rev))
	require.NoError(t, err)
	require.Equal(t, 7, after.Priority)
	_, err = b.p.Update(t.Context(), s.ID, Priority(8), IfRev(read.Rev))
	require.ErrorIs(t, err, model.ErrChanged)
	require.Equal(t, 7, b.get(s.ID).Priority)
	for _, opts := range [][]Option{{IfRev(after.Rev)}, {Priority(1), IfRev(0)}} {
		_, err = b.p.Update(t.Context(), s.ID, opts...)
		require.ErrorIs(t, err, model.ErrInvalid)
	}
	_, err = Send(t.Context(), b.p, mailType, mail{}, IfRev(1))
	require.ErrorIs(t, err, model.ErrInvalid)
}
