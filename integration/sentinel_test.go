package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/migrate"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// sentinelID is the id of the schema's own document among the tasks.
const sentinelID = "~"

// noSentinel is the condition of a query that looks at the tasks behind the product's back.
var noSentinel = bson.E{Key: "_id", Value: bson.D{{Key: "$ne", Value: sentinelID}}}

// sentinel reads the document; nil when it is not there.
func (a *arena) sentinel() bson.Raw {
	a.t.Helper()
	raw, err := a.db.Collection("tasks").FindOne(a.t.Context(), bson.D{{Key: "_id", Value: sentinelID}}).Raw()
	if err != nil {
		return nil
	}
	return raw
}

// A database that is set up and has no task contains one document all the same. Nobody may
// see it, whichever way they look, also when its times were overwritten with ones that have
// passed, as a person's update of all tasks would do.
func TestTheSentinelIsNoTask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		require.NotNil(t, a.sentinel())
		a.seesNothing()
		past := time.Now().Add(-48 * time.Hour)
		_, err := a.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: sentinelID}}, bson.D{{Key: "$set", Value: bson.D{
			{Key: "due_at", Value: past}, {Key: "lapse_at", Value: past}, {Key: "archive_at", Value: past},
			{Key: "outbox_at", Value: past}, {Key: "expire_at", Value: past}, {Key: "finished_at", Value: past},
		}}})
		require.NoError(t, err)
		before := a.sentinel()
		a.seesNothing()
		require.Equal(t, before, a.sentinel(), "nobody has written to it")

		// It is put right by the next migration.
		st, err := migrate.Status(t.Context(), migrate.Config{Database: a.db})
		require.NoError(t, err)
		require.Equal(t, []string{store.SentinelName}, st.Missing)
		st, err = migrate.Up(t.Context(), migrate.Config{Database: a.db})
		require.NoError(t, err)
		require.True(t, st.Current)
		require.NotEqual(t, before, a.sentinel())
	})
}

// seesNothing looks for tasks in every way there is.
func (a *arena) seesNothing() {
	t, ctx := a.t, a.t.Context()
	t.Helper()
	require.NoError(t, a.store.Ready(ctx))
	require.NoError(t, a.store.FreshClock(ctx))
	everywhere := []store.Where{store.InTasks, store.InBoth, store.InHistory}
	all := []store.Filter{
		{}, {Tenant: model.NoTenant}, {Tenant: "zz"}, {AfterID: "-"}, {AfterID: "z/z/z", AfterGeneration: 1},
		{Before: time.Now().Add(time.Hour)}, {Statuses: lifecycle.Statuses},
	}
	for _, where := range everywhere {
		for _, f := range all {
			page, err := a.store.History.FindLives(ctx, f, where, store.Extent{Limit: 10})
			require.NoError(t, err)
			require.Empty(t, page.Docs, "%v %+v", where, f)
			n, err := a.store.History.CountLives(ctx, f, where)
			require.NoError(t, err)
			require.Zero(t, n, "%v %+v", where, f)
			counts, err := a.store.History.StatusCounts(ctx, f, where)
			require.NoError(t, err)
			require.Empty(t, counts, "%v %+v", where, f)
		}
	}
	now := a.store.Clock.Now()
	types, err := a.store.Tasks.TypesWithTasks(ctx)
	require.NoError(t, err)
	require.Empty(t, types)
	due, err := a.store.Tasks.DueTypes(ctx, now)
	require.NoError(t, err)
	require.Empty(t, due)
	lapsed, err := a.store.Tasks.LapsedBefore(ctx, now, 10)
	require.NoError(t, err)
	require.Empty(t, lapsed)
	expired, err := a.store.Tasks.Expired(ctx, &store.ExpiredFrom{}, 10)
	require.NoError(t, err)
	require.Empty(t, expired)
	empty, err := a.store.Tasks.EmptyOutboxes(ctx, now, 10)
	require.NoError(t, err)
	require.Empty(t, empty)
	chores, err := a.store.Tasks.Chores(ctx)
	require.NoError(t, err)
	require.Zero(t, chores)
	moved, err := a.store.History.Archive(ctx, time.Time{})
	require.NoError(t, err)
	require.Zero(t, moved)

	p := a.p
	for _, f := range []admin.Filter{{}, {Past: true}, {OnlyPast: true}} {
		page, err := a.admin.Find(ctx, f, 0, "")
		require.NoError(t, err)
		require.Empty(t, page.Tasks)
		n, err := a.admin.Count(ctx, f)
		require.NoError(t, err)
		require.Zero(t, n)
		counts, err := a.admin.Counts(ctx, f)
		require.NoError(t, err)
		require.Empty(t, counts)
	}
	for name, look := range map[string]func() error{
		"get":      func() error { _, err := p.Get(ctx, sentinelID); return err },
		"document": func() error { _, err := a.admin.Document(ctx, sentinelID); return err },
		"life":     func() error { _, err := a.admin.Get(ctx, sentinelID, 1); return err },
		"newest":   func() error { _, err := a.admin.Get(ctx, sentinelID, 0); return err },
		"lives": func() error {
			lives, err := a.admin.Lives(ctx, sentinelID)
			if len(lives) == 0 && err == nil {
				err = model.ErrNotFound
			}
			return err
		},
		"cancel":    func() error { _, err := p.Cancel(ctx, sentinelID, ""); return err },
		"retry":     func() error { _, err := p.Retry(ctx, sentinelID, ""); return err },
		"release":   func() error { _, err := p.Release(ctx, sentinelID); return err },
		"redeliver": func() error { _, err := a.admin.Redeliver(ctx, sentinelID, 0); return err },
		"update":    func() error { _, err := p.Update(ctx, sentinelID, producer.Priority(1)); return err },
	} {
		err := look()
		require.True(t, errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrInvalid), "%s: %v", name, err)
	}
	got, err := a.puller.Fetch(ctx, pull.FetchRequest{WorkerID: "w", Categories: []string{"any"}})
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = a.puller.Fetch(ctx, pull.FetchRequest{WorkerID: "w", Types: []string{sentinelID}})
	require.ErrorIs(t, err, model.ErrInvalid)
	_, err = p.SendJSON(ctx, sentinelID, nil)
	require.ErrorIs(t, err, model.ErrInvalid)
	require.NoError(t, a.admin.ResumeAll(ctx)) // which wakes each type that has tasks
}

// A migration while people listen: its insert is no event, and the next task's is.
func TestTheSentinelIsNoEvent(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		p := a.p
		events, err := p.Subscribe(t.Context(), producer.EventFilter{})
		if refused := new(model.NoStreamError); errors.As(err, &refused) {
			t.Skip(refused)
		}
		require.NoError(t, err)
		defer func() { require.NoError(t, events.Close(context.WithoutCancel(t.Context()))) }()
		_, err = a.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: sentinelID}})
		require.NoError(t, err)
		st, err := migrate.Up(t.Context(), migrate.Config{Database: a.db})
		require.NoError(t, err)
		require.True(t, st.Current)
		require.NotNil(t, a.sentinel())
		sent, err := p.SendJSON(t.Context(), "told", nil)
		require.NoError(t, err)
		first, err := events.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, sent.ID, first.TaskID)
	})
}

// An index's right end is the sentinel: that is what it is for.
func TestTheSentinelLiesAtTheRightEndOfEveryIndexThatALoopSeeksIn(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		_, err := a.p.SendJSON(t.Context(), "zz", nil, producer.Priority(0), producer.ExpiresAt(time.Now().Add(time.Hour)))
		require.NoError(t, err)
		for index, backwards := range map[string]bson.D{
			store.IndexDue:     {{Key: "type", Value: -1}, {Key: "audience", Value: -1}, {Key: "priority", Value: 1}, {Key: "due_at", Value: -1}},
			store.IndexLapse:   {{Key: "type", Value: -1}, {Key: "lapse_at", Value: -1}},
			store.IndexArchive: {{Key: "archive_at", Value: -1}},
			store.IndexOutbox:  {{Key: "outbox_at", Value: -1}},
			store.IndexExpire:  {{Key: "expire_at", Value: -1}},
		} {
			require.Equal(t, sentinelID, a.lastOf(index, backwards), index)
		}
	})
}

// lastOf is the id of the last document of an index.
func (a *arena) lastOf(index string, backwards bson.D) string {
	a.t.Helper()
	field := backwards[len(backwards)-1].Key
	var last struct {
		ID string `bson:"_id"`
	}
	err := a.db.Collection("tasks").FindOne(a.t.Context(), bson.D{{Key: field, Value: bson.D{{Key: "$exists", Value: true}}}},
		options.FindOne().SetSort(backwards).SetHint(index)).Decode(&last)
	require.NoError(a.t, err)
	return last.ID
}
