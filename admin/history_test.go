package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// old makes ended tasks old enough to move to the history.
func (b *bundle) old(ids ...string) {
	b.t.Helper()
	long := b.Now().Add(-30 * 24 * time.Hour)
	_, err := b.db.Collection("tasks").UpdateMany(b.t.Context(), bson.M{"_id": bson.M{"$in": ids}, "archive_at": bson.M{"$exists": true}},
		bson.M{"$set": bson.M{"archive_at": long, "finished_at": long}})
	require.NoError(b.t, err)
}

// archived runs a task to success and moves it to the history. Between a life's beginning and
// its move lies model.MinRetention at least; here it is what tells two lives apart, a
// millisecond of the producer's clock, which numbers them.
func (b *bundle) archived(s producer.Sent) {
	b.t.Helper()
	b.Run(s.ID, lifecycle.Success(fakeworker.Value(b.t, receipt{Bytes: 7})))
	b.old(s.ID)
	b.archive(1)
	for b.a.room.Store.Clock.Now().UnixMilli() <= s.Generation {
		time.Sleep(time.Millisecond)
	}
}

func (b *bundle) archive(moved int) {
	b.t.Helper()
	a, err := b.Store.History.Archive(b.t.Context(), time.Time{})
	require.NoError(b.t, err)
	require.Equal(b.t, moved, a.Moved)
}

// lives of a page as key/generation, in its order.
func lives(page Page) (out []string) {
	for i, task := range page.Tasks {
		at := "task"
		if !task.ArchivedAt.IsZero() {
			at = "past"
		}
		if id := page.Documents[i].Lookup("_id").StringValue(); id != task.ID {
			at = "the document says " + id
		}
		out = append(out, fmt.Sprint(task.Key, "@", task.Generation, " ", at))
	}
	return out
}

func TestFindSelectsPastLivesToo(t *testing.T) {
	b := setup(t)
	a1 := b.send(mail{}, producer.Key("a"))
	b.archived(a1)
	b1 := b.send(mail{}, producer.Key("b"), producer.Creator("web"))
	b.Run(b1.ID, lifecycle.Success(bson.RawValue{}))
	b2 := b.send(mail{}, producer.Key("b"), producer.OnExisting(model.RestartSucceeded)) // keeps b1
	c1 := b.send(mail{}, producer.Key("c"), producer.Tenant("acme"))
	_, err := b.p.Cancel(t.Context(), c1.ID, "")
	require.NoError(t, err)
	b.old(c1.ID)
	b.archive(1)
	at := func(s producer.Sent, key, where string) string { return fmt.Sprint(key, "@", s.Generation, " ", where) }
	pa, pb, tb, pc := at(a1, "a", "past"), at(b1, "b", "past"), at(b2, "b", "task"), at(c1, "c", "past")

	for name, c := range map[string]struct {
		filter Filter
		want   []string
	}{
		"present only":     {Filter{}, []string{tb}},
		"both":             {Filter{Past: true}, []string{pa, pb, tb, pc}},
		"past only":        {Filter{OnlyPast: true}, []string{pa, pb, pc}},
		"type and tenant":  {Filter{Past: true, Type: "mail", Tenant: model.NoTenant}, []string{pa, pb, tb}},
		"tenant":           {Filter{Past: true, Tenant: "acme"}, []string{pc}},
		"status":           {Filter{Past: true, Statuses: []model.Status{model.StatusCancelled, model.StatusNew}}, []string{tb, pc}},
		"creator":          {Filter{Past: true, Creator: "web"}, []string{pb}},
		"worker":           {Filter{Past: true, WorkerID: "w"}, []string{pa, pb}},
		"created long ago": {Filter{Past: true, Before: b.Now().Add(-time.Hour)}, nil},
	} {
		page, err := b.a.Find(t.Context(), c.filter, 0, "")
		require.NoError(t, err, name)
		require.Equal(t, c.want, lives(page), name)
		require.Empty(t, page.Next, name)
		n, err := b.a.Count(t.Context(), c.filter)
		require.NoError(t, err)
		require.EqualValues(t, len(c.want), n, name)
	}
	counts, err := b.a.Counts(t.Context(), Filter{Past: true})
	require.NoError(t, err)
	require.Equal(t, map[model.Status]int64{model.StatusSuccess: 2, model.StatusNew: 1, model.StatusCancelled: 1}, counts["mail"])
	counts, err = b.a.Counts(t.Context(), Filter{OnlyPast: true})
	require.NoError(t, err)
	require.Equal(t, map[model.Status]int64{model.StatusSuccess: 2, model.StatusCancelled: 1}, counts["mail"])
	counts, err = b.a.Counts(t.Context(), Filter{Past: true, Type: "mail", Tenant: model.NoTenant})
	require.NoError(t, err)
	require.Equal(t, map[string]map[model.Status]int64{"mail": {model.StatusSuccess: 2, model.StatusNew: 1}}, counts)
	_, err = b.a.Counts(t.Context(), Filter{Type: "a/b"})
	require.ErrorIs(t, err, model.ErrInvalid)
}

// Lives move to the history, new ones begin and new tasks come while somebody pages.
func TestPagingOverTasksAndHistoryShowsEachLifeOnceWhileTheyMove(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 5; size += 2 {
		b := setup(t)
		const n = 24
		sent, err := producer.SendMany(t.Context(), b.p, mailType, items(n))
		require.NoError(t, err)
		var ids []string
		for i, s := range sent {
			b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
			ids = append(ids, s.ID)
			if i%3 == 0 { // lives that are past from the beginning
				b.send(mail{}, producer.Key(fmt.Sprint(i)), producer.OnExisting(model.RestartSucceeded))
				b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
			}
		}
		there, err := b.a.Find(t.Context(), Filter{Past: true}, 100, "")
		require.NoError(t, err)
		require.Len(t, there.Tasks, n+n/3)

		seen := map[string]int{}
		token := ""
		for pages := 0; ; pages++ {
			page, err := b.a.Find(t.Context(), Filter{Past: true}, size, token)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Tasks), size)
			for _, task := range page.Tasks {
				seen[input.ExecutionID(task, "")]++
			}
			if token = page.Next; token == "" {
				break
			}
			i := pages * 7 % n // anywhere, before the page and behind it
			b.old(ids[i])
			_, err = b.Store.History.Archive(t.Context(), time.Time{})
			require.NoError(t, err)
			b.send(mail{}, producer.Key(fmt.Sprint((i+n/2)%n)), producer.OnExisting(model.RestartSucceeded))
		}
		for _, task := range there.Tasks {
			require.Equal(t, 1, seen[input.ExecutionID(task, "")], "size %d: %s", size, task.Key)
		}
	}
}

func TestATaskThatMovedIsStillReadAndAwaited(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, producer.Key("k"))
	b.archived(s)
	task := b.get(s.ID)
	require.Equal(t, model.StatusSuccess, task.Status)
	require.False(t, task.ArchivedAt.IsZero())
	require.Equal(t, s.ID, task.ID)
	doc, err := b.a.Document(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, s.ID, doc.Lookup("_id").StringValue())
	b.requireResult(receipt{Bytes: 7}, s)
	b.requireResult(receipt{Bytes: 7}, producer.Sent{ID: s.ID})

	_, err = b.p.Retry(t.Context(), s.ID, "")
	require.ErrorIs(t, err, model.ErrNotFound, "no command changes what is over")
	require.ErrorContains(t, err, "it ended as Success and moved to the history at ")
	fresh := b.send(mail{}, producer.Key("k"))
	require.True(t, fresh.Created, "its key is free")
	require.Greater(t, fresh.Generation, s.Generation)
	require.Equal(t, model.StatusNew, b.get(s.ID).Status)
}

func TestTheLivesOfATaskComeNewestFirst(t *testing.T) {
	b := setup(t)
	first := b.send(mail{}, producer.Key("k"))
	b.archived(first)
	second := b.send(mail{}, producer.Key("k"))
	b.Run(second.ID, lifecycle.Failed(failkind.Fatal, "no"))
	third, err := b.p.Retry(t.Context(), second.ID, "")
	require.NoError(t, err)
	b.send(mail{}, producer.Key("k2"))

	got, err := b.a.Lives(t.Context(), first.ID)
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, want := range []struct {
		generation int64
		status     model.Status
		past       bool
	}{{third.Generation, model.StatusNew, false}, {second.Generation, model.StatusFailure, true}, {first.Generation, model.StatusSuccess, true}} {
		require.Equal(t, first.ID, got[i].ID)
		require.Equal(t, want.generation, got[i].Generation)
		require.Equal(t, want.status, got[i].Status)
		require.Equal(t, want.past, !got[i].ArchivedAt.IsZero())
	}
	_, err = b.a.Lives(t.Context(), "-/mail/none")
	require.ErrorIs(t, err, model.ErrNotFound)
	_, err = b.a.Lives(t.Context(), "mail")
	require.ErrorIs(t, err, model.ErrInvalid)
}

func TestHowLongTheHistoryIsKeptIsChecked(t *testing.T) {
	b := setup(t)
	for _, bad := range []time.Duration{-1, time.Second, maxHistory + 1} {
		var invalid *model.InvalidError
		require.ErrorAs(t, b.a.SetHistoryRetention(t.Context(), bad), &invalid)
		require.Equal(t, "retention", invalid.Field)
	}
	keep, err := b.a.HistoryRetention(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.DefaultHistory, keep)
	for _, good := range []time.Duration{0, minHistory, maxHistory} {
		require.NoError(t, b.a.SetHistoryRetention(t.Context(), good))
		keep, err := b.a.HistoryRetention(t.Context())
		require.NoError(t, err)
		require.Equal(t, good, keep)
	}
}
