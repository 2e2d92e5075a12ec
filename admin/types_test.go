package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func (b *bundle) put(t model.TaskType) *model.TaskType {
	b.t.Helper()
	stored, err := b.a.PutType(b.t.Context(), t)
	require.NoError(b.t, err)
	return stored
}

func TestATypeIsStoredChangedAndDeletedByItsVersion(t *testing.T) {
	b := setup(t)
	ctx := t.Context()
	_, err := b.a.Type(ctx, "mail")
	require.ErrorIs(t, err, model.ErrNotFound)

	first := b.put(model.TaskType{
		Code: "mail", Name: "Mails", Category: "post", ClaimBy: model.ClaimByTenant, MaxRunning: 5,
		RateLimit: &model.RateLimit{Count: 100, Per: time.Second}, KeyLimit: &model.KeyLimit{MaxRunning: 2},
		Options: model.Options{
			Retry: &model.Retry{Strategy: model.RetrySequence, Sequence: []time.Duration{time.Second, time.Minute}, MaxErrors: new(3)}, ExecutionTimeout: 5 * time.Minute,
			NeedManual: new(true), Callback: &model.Callback{Success: &model.CallbackTarget{URL: "http://example.org"}},
		},
	})
	require.EqualValues(t, 1, first.Version)
	require.NotZero(t, first.CreatedAt)
	read, err := b.a.Type(ctx, "mail")
	require.NoError(t, err)
	require.Equal(t, first, read)

	_, err = b.a.PutType(ctx, model.TaskType{Code: "mail"})
	require.ErrorIs(t, err, model.ErrChanged, "it exists")

	_, err = b.db.Collection("task_types").UpdateByID(ctx, "mail", bson.D{{Key: "$set", Value: bson.D{{Key: "novelty", Value: 1}}}})
	require.NoError(t, err)
	changed := *read
	changed.Name, changed.Options.NeedManual, changed.RateLimit = "", nil, nil
	second := b.put(changed)
	require.EqualValues(t, 2, second.Version)
	require.Equal(t, first.CreatedAt, second.CreatedAt)
	read, err = b.a.Type(ctx, "mail")
	require.NoError(t, err)
	require.Equal(t, second, read)
	raw, err := b.db.Collection("task_types").FindOne(ctx, bson.D{{Key: "_id", Value: "mail"}}).Raw()
	require.NoError(t, err)
	require.EqualValues(t, 1, raw.Lookup("novelty").AsInt64(), "what a later release keeps there stays")
	require.Zero(t, raw.Lookup("name"), "what is not said is not there")

	other := *first
	other.Name = "of somebody who read it before"
	_, err = b.a.PutType(ctx, other)
	require.ErrorIs(t, err, model.ErrChanged)
	again := changed
	require.Equal(t, second, b.put(again), "a repetition of a change whose answer was lost is no error")

	require.ErrorIs(t, b.a.DeleteType(ctx, "mail", 1), model.ErrChanged)
	require.NoError(t, b.a.DeleteType(ctx, "mail", 2))
	require.ErrorIs(t, b.a.DeleteType(ctx, "mail", 0), model.ErrNotFound)
	_, err = b.a.PutType(ctx, changed)
	require.ErrorIs(t, err, model.ErrChanged, "it is gone")
	anew := b.put(model.TaskType{Code: "mail"})
	require.EqualValues(t, 3, anew.Version, "versions go on rising over a deletion")
	_, err = b.a.PutType(ctx, *first)
	require.ErrorIs(t, err, model.ErrChanged, "an edit of the type that was deleted")
	require.Equal(t, anew, b.put(model.TaskType{Code: "mail"}), "a repetition whose answer was lost is no error")
	require.NoError(t, b.a.DeleteType(ctx, "mail", 0))
	b.put(model.TaskType{Code: "a"})
	b.put(model.TaskType{Code: "b"})
	all, err := b.a.Types(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "a", all[0].Code)
}

func TestABadTypeIsRefusedWithAllItsFieldsNamed(t *testing.T) {
	b := setup(t)
	_, err := b.a.PutType(t.Context(), model.TaskType{
		Code: "a/b", ClaimBy: "colour", MaxRunning: -1, RateLimit: &model.RateLimit{},
		Options: model.Options{LimitKey: "k"},
	})
	require.ErrorIs(t, err, model.ErrInvalid)
	for _, field := range []string{"type", "claim_by", "max_running", "rate_limit.count", "rate_limit.per", "options"} {
		require.Contains(t, err.Error(), field)
	}
	secret := model.TaskType{Code: "t", Options: model.Options{Callback: &model.Callback{
		Success: &model.CallbackTarget{URL: "http://x"}, Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "a", Secret: "s"}}},
	}}}
	_, err = b.a.PutType(t.Context(), secret)
	require.ErrorIs(t, err, model.ErrInvalid, "there is no place for secrets")
	_, err = b.a.PutType(t.Context(), model.TaskType{Code: "t", Version: -1})
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorIs(t, b.a.DeleteType(t.Context(), "t", -1), model.ErrInvalid)
	all, err := b.a.Types(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestASendTakesFromItsTypeWhatItDoesNotSay(t *testing.T) {
	b := setup(t)
	b.put(model.TaskType{Code: "mail", Category: "post", ClaimBy: model.ClaimByTenant})
	task := b.get(b.send(mail{}, producer.Tenant("acme")).ID)
	require.Equal(t, "post", task.Category)
	require.Equal(t, []string{lifecycle.AudienceAll, "t:acme"}, task.Audience)
	task = b.get(b.send(mail{}, producer.Category("own")).ID)
	require.Equal(t, "own", task.Category)

	// producer.Sent again with arguments alone: what the sender set before stays.
	b.send(mail{}, producer.Key("k"), producer.MaxLapses(7))
	b.send(mail{To: "x"}, producer.Key("k"), producer.OnExisting(model.UpdateArgs))
	task = b.get("-/mail/k")
	require.Equal(t, 7, *task.Options.MaxLapses)
	require.Equal(t, model.ClaimByTenant, task.Options.ClaimBy)
}

func TestCommandsJudgeByWhatTheTypeSays(t *testing.T) {
	b := setup(t)
	b.put(model.TaskType{Code: "mail", Options: model.Options{
		Retention: time.Hour,
		Callback:  &model.Callback{Success: &model.CallbackTarget{URL: "http://example.org"}},
	}})
	s := b.send(mail{})
	ended, err := b.p.Cancel(t.Context(), s.ID, "")
	require.NoError(t, err)
	require.Equal(t, ended.FinishedAt.Add(time.Hour), ended.ArchiveAt)

	s = b.send(mail{})
	handle := b.Claim(s.ID, "w") // by a worker that knows no type
	task, err := b.p.Complete(t.Context(), handle, receipt{})
	require.NoError(t, err)
	require.Equal(t, model.StatusCompleted, task.Status, "the callback is still to be delivered")
	require.Len(t, task.Outbox, 1)
}

// A process that only sends learns of a change of a type that another one made.
func TestAProducerNoticesAChangeOfATypeBySomebodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Empty(t, b.get(b.send(mail{}).ID).Category)
	typ := &model.TaskType{Code: "mail", Category: "post"}
	b.Now()
	require.NoError(t, b.Store.Types.Put(t.Context(), typ))
	require.Eventually(t, func() bool { return b.get(b.send(mail{}).ID).Category == "post" }, testdb.Patience, 50*time.Millisecond)
}

func TestATaskMayExpire(t *testing.T) {
	b := setup(t)
	before := b.Now()
	task := b.get(b.send(mail{}, producer.ExpiresIn(time.Hour)).ID)
	require.WithinDuration(t, before.Add(time.Hour), task.ExpireAt, time.Minute)
	at := before.Add(2 * time.Hour)
	task, err := b.p.Update(t.Context(), task.ID, producer.ExpiresAt(at))
	require.NoError(t, err)
	require.Equal(t, at, task.ExpireAt)
	task, err = b.p.Update(t.Context(), task.ID, producer.ExpiresIn(3*time.Hour))
	require.NoError(t, err)
	require.Equal(t, task.ExpireAt, b.get(task.ID).ExpireAt)
	require.WithinDuration(t, before.Add(3*time.Hour), task.ExpireAt, time.Minute)
	task, err = b.p.Update(t.Context(), task.ID, producer.ExpiresAt(time.Time{}))
	require.NoError(t, err)
	require.Zero(t, task.ExpireAt, "never, after all")

	task = b.get(b.send(mail{}, producer.ExpiresAt(before.Add(-time.Second))).ID)
	require.Equal(t, model.StatusCancelled, task.Status)
	require.Contains(t, task.Remark, "expired")
	for _, bad := range []producer.Option{producer.ExpiresIn(0), producer.ExpiresIn(-1), producer.ExpiresIn(input.MaxDuration + 1), producer.ExpiresAt(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))} {
		_, err := producer.Send(t.Context(), b.p, mailType, mail{}, bad)
		require.ErrorIs(t, err, model.ErrInvalid, bad)
	}
}
