package periodic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// worked is a Periodic whose engine runs, and a worker that ends its tasks as end says.
func worked(t *testing.T, end func() error) (*mongo.Database, *periodic.Periodic) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, tickType, func(context.Context, *consumer.Task[map[string]any]) (model.None, error) {
		return model.None{}, end()
	}))
	engine(t, c.Run)
	engine(t, p.Run)
	return db, p
}

func idle(t *testing.T, p *periodic.Periodic, id string) {
	require.Eventually(t, func() bool {
		r, err := p.Get(t.Context(), id)
		return err == nil && len(r.Active)+len(r.Queued)+len(r.Planned) == 0
	}, testdb.Patience, 50*time.Millisecond, "a run goes on for ever")
}

func TestABackfillRepeatedWithOtherTimesRunsOnlyWhatIsNew(t *testing.T) {
	t.Parallel() // it mostly waits
	db, p := worked(t, func() error { return nil })
	r, err := p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "0 * * * * *", Type: "tick", MaxConcurrency: 1, Overlap: schedule.OverlapSkip})
	require.NoError(t, err)
	to := time.Now().Truncate(time.Minute)
	for _, c := range []struct {
		from time.Duration
		want int
	}{{3 * time.Minute, 3}, {3 * time.Minute, 0}, {5 * time.Minute, 2}, {2 * time.Minute, 0}} {
		n, err := p.Backfill(t.Context(), r.ID, to.Add(-c.from), to, "may")
		require.NoError(t, err)
		require.Equal(t, c.want, n)
		idle(t, p, r.ID)
	}
	n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "status", Value: model.StatusSuccess}})
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, runs, 5)
	for _, run := range runs {
		require.Equal(t, schedule.RunSuccess, run.Status)
	}
}

func TestABackfillKeepsToTheRulesStartAndEnd(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	day := time.Now().UTC().Truncate(24 * time.Hour)
	ago := func(days int) time.Time { return day.AddDate(0, 0, -days) }
	for name, c := range map[string]struct {
		start, end time.Time
		want       int
	}{
		"neither":  {want: 10},
		"a start":  {start: ago(4), want: 4},
		"an end":   {end: ago(4), want: 6},
		"both":     {start: ago(7), end: ago(4), want: 3},
		"a future": {start: ago(-1)},
	} {
		r, err := p.Create(t.Context(), schedule.Spec{Name: name, Cron: "@daily", Type: "tick", StartAt: c.start})
		require.NoError(t, err)
		if !c.end.IsZero() { // it has come since the rule was made
			_, err := db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "end_at", Value: c.end}}}})
			require.NoError(t, err)
		}
		n, err := p.Backfill(t.Context(), r.ID, ago(10), ago(0), "")
		require.NoError(t, err, name)
		require.Equal(t, c.want, n, name)
	}
}

func TestABackfillMayEndAtTheCallersPresentAndNotInTheFuture(t *testing.T) {
	p, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "* * * * * *", Type: "tick"})
	require.NoError(t, err)
	now := time.Now()
	n, err := p.Backfill(t.Context(), r.ID, now.Add(-time.Minute), now.Add(900*time.Millisecond), "now")
	require.NoError(t, err)
	require.Positive(t, n)
	runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{From: time.Now()}, nil, 10)
	require.NoError(t, err)
	require.Empty(t, runs, "a tick of the future ran")
	_, err = p.Backfill(t.Context(), r.ID, now, now.Add(time.Hour), "")
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "to is")
	require.ErrorContains(t, err, "in the future")
}

// runAgain is a rule with a run whose task ended and was made to run again, before any engine
// could hear of its end.
func runAgain(t *testing.T) (db *mongo.Database, p *periodic.Periodic, prod *producer.Producer, r *schedule.Rule, taskID string) {
	t.Helper()
	db = testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	prod, err = producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	r, err = p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "@yearly", Type: "tick"})
	require.NoError(t, err)
	run, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
	require.NoError(t, err)
	taskID = model.TaskID("", "tick", run)
	_, err = prod.Cancel(t.Context(), taskID, "not yet")
	require.NoError(t, err)
	_, err = prod.Retry(t.Context(), taskID, "now")
	require.NoError(t, err)
	return db, p, prod, r, taskID
}

// The engine learns of an end by the task's outbox, sometimes late: by then a person may
// have had the task run again.
func TestARunWhoseTaskRunsAgainGoesOnUntilItEndsOnceMore(t *testing.T) {
	t.Parallel() // it mostly waits
	db, p, prod, r, id := runAgain(t)
	engine(t, p.Run)
	require.Eventually(t, func() bool {
		n, err := db.Collection("task_history").CountDocuments(t.Context(), bson.D{{Key: "outbox_at", Value: bson.D{{Key: "$exists", Value: true}}}})
		return err == nil && n == 0
	}, testdb.Patience, 20*time.Millisecond, "the first end is told")
	r, err := p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Len(t, r.Active, 1, "its task waits to run again")

	_, err = prod.Cancel(t.Context(), id, "never")
	require.NoError(t, err)
	idle(t, p, r.ID)
	runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, schedule.RunCanceled, runs[0].Status)
}

// Both ends are found at once, the later one first: it lies among the tasks.
func TestARunHasEndedAsTheNewestLifeOfItsTaskDid(t *testing.T) {
	t.Parallel()
	db, p, _, r, _ := runAgain(t)
	prod, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	puller := pull.New(prod)
	got, err := puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"tick"}, Max: 1})
	require.NoError(t, err)
	require.Len(t, got, 1)
	_, err = puller.Complete(t.Context(), got[0].Handle, nil)
	require.NoError(t, err)
	engine(t, p.Run)
	require.Eventually(t, func() bool {
		for _, coll := range []string{"tasks", "task_history"} {
			n, err := db.Collection(coll).CountDocuments(t.Context(), bson.D{{Key: "outbox_at", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: "type", Value: bson.D{{Key: "$ne", Value: "~"}}}})
			if err != nil || n > 0 {
				return false
			}
		}
		return true
	}, testdb.Patience, 20*time.Millisecond, "both ends are told")
	idle(t, p, r.ID)
	runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, schedule.RunSuccess, runs[0].Status)
}

// To its rule a run has ended when an engine has told its end. A person may retry its task all the same.
func TestARunThatAPersonRetriedIsShownAsItsTaskIsAndCanBeCancelled(t *testing.T) {
	t.Parallel() // it mostly waits
	_, p, prod, r, id := runAgain(t)
	engine(t, p.Run)
	_, err := prod.Cancel(t.Context(), id, "for now")
	require.NoError(t, err)
	idle(t, p, r.ID)
	runs := func(statuses ...schedule.RunStatus) []*schedule.Run {
		t.Helper()
		runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{Statuses: statuses}, nil, 10)
		require.NoError(t, err)
		return runs
	}
	canceled := func() *schedule.Run {
		var run *schedule.Run
		require.Eventually(t, func() bool {
			if all := runs(); len(all) == 1 {
				run = all[0]
			}
			return run != nil && run.Status == schedule.RunCanceled
		}, testdb.Patience, 20*time.Millisecond)
		return run
	}
	run := canceled()
	require.False(t, run.EndedAt.IsZero())
	require.Equal(t, "for now", run.Error)
	var refused *model.RefusedError
	require.ErrorAs(t, p.Cancel(t.Context(), run.ID), &refused)

	_, err = prod.Retry(t.Context(), id, "once more")
	require.NoError(t, err)
	one, err := p.GetRun(t.Context(), run.ID)
	require.NoError(t, err)
	for _, again := range append(runs(), append(runs(schedule.RunCanceled), one)...) {
		require.Equal(t, schedule.RunScheduled, again.Status)
		require.Zero(t, again.EndedAt)
		require.Empty(t, again.Error)
	}
	require.Len(t, runs(schedule.RunCanceled), 1, "its recorded end finds it")
	require.Empty(t, runs(schedule.RunFailed, schedule.RunRunning))

	require.NoError(t, p.Cancel(t.Context(), run.ID))
	require.Equal(t, run.ID, canceled().ID)
	task, err := prod.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, model.StatusCancelled, task.Status)
}

func TestARuleThatIsOverCanBeEdited(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	spec := schedule.Spec{Name: "a", Cron: "* * * * * *", Type: "tick", EndAt: time.Now().Add(time.Hour)}
	r, err := p.Create(t.Context(), spec)
	require.NoError(t, err)
	// An hour later.
	past := clock.Millis(time.Now().Add(-time.Hour))
	_, err = db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "end_at", Value: past}, {Key: "created_at", Value: past.Add(-time.Hour)},
	}}})
	require.NoError(t, err)
	spec.EndAt, spec.Description = past, "its end stays"
	r, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err)
	require.Equal(t, spec.Description, r.Description)
	spec.EndAt = past.Add(time.Minute)
	_, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.ErrorContains(t, err, "cron never fires before end_at")
}

func TestARuleWhoseTimesCannotBeReadCanBeMendedAndEnded(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	spec := schedule.Spec{Name: "a", Cron: "* * * * * *", Type: "tick"}
	r, err := p.Create(t.Context(), spec)
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	set(t, db, r.ID, bson.D{{Key: "cron", Value: "*/90 * * * * *"}}) // an earlier release took it
	r, err = p.Disable(t.Context(), r.ID, 0, "not any more")
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.ErrorContains(t, err, "cron")
	r, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err)
	r, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	require.False(t, r.NextFireAt.IsZero())
	set(t, db, r.ID, bson.D{{Key: "cron", Value: "*/90 * * * * *"}})
	require.NoError(t, p.Delete(t.Context(), r.ID, 0))
}

// Who compared a rule and then switches it means the rule that was compared.
func TestARuleIsSwitchedInTheVersionThatWasSeen(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	spec := schedule.Spec{Name: "a", Cron: "* * * * * *", Type: "tick"}
	seen, err := p.Create(t.Context(), spec)
	require.NoError(t, err)
	spec.Type = "tock"
	edited, err := p.Update(t.Context(), seen.ID, seen.Version, spec)
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), seen.ID, seen.Version)
	require.ErrorIs(t, err, model.ErrChanged)
	r, err := p.Enable(t.Context(), seen.ID, edited.Version)
	require.NoError(t, err)
	require.Equal(t, tickplan.StatusOnline, r.Status)
	_, err = p.Disable(t.Context(), seen.ID, seen.Version, "")
	require.ErrorIs(t, err, model.ErrChanged)
	r, err = p.Disable(t.Context(), seen.ID, edited.Version, "")
	require.NoError(t, err)
	require.Equal(t, tickplan.StatusOffline, r.Status)
}

// Without records a run is known by its task, whose type may have been another then.
func TestARequestRunsOnceAlthoughTheTypeWasEditedInBetween(t *testing.T) {
	t.Parallel()
	db, p := worked(t, func() error { return nil })
	s := schedule.Spec{Name: "n", Cron: "@yearly", Type: "tick", Log: schedule.LogNone}
	r, err := p.Create(t.Context(), s)
	require.NoError(t, err)
	first, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{Request: "a"})
	require.NoError(t, err)
	idle(t, p, r.ID)
	for _, typ := range []string{"tock", "tack", "tick", "tock"} {
		s.Type = typ
		r, err = p.Update(t.Context(), r.ID, r.Version, s)
		require.NoError(t, err)
		again, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{Request: "a"})
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	require.Equal(t, []string{"tock", "tack", "tick"}, r.PastTypes)
	n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "~"}}}}) // without the sentinel
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// Without records what is left of a run may be a life in the history alone.
func TestARequestIsKnownByTheHistoryOfItsTask(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	s := schedule.Spec{Name: "n", Cron: "0 * * * * *", Type: "tick", Log: schedule.LogNone}
	r, err := p.Create(t.Context(), s)
	require.NoError(t, err)
	_, err = p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{Request: "a"})
	require.NoError(t, err)
	to := time.Now()
	n, err := p.Backfill(t.Context(), r.ID, to.Add(-3*time.Minute), to, "a")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	var tasks []bson.M
	cur, err := db.Collection("tasks").Find(t.Context(), bson.D{{Key: "type", Value: "tick"}})
	require.NoError(t, err)
	require.NoError(t, cur.All(t.Context(), &tasks))
	require.Len(t, tasks, 4)
	for _, task := range tasks { // they ended long ago, and so the rule knows nothing of them
		_, err = db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: task["_id"]}})
		require.NoError(t, err)
		task["task_id"], task["_id"], task["status"] = task["_id"], fmt.Sprint("life of ", task["_id"]), model.StatusSuccess
		_, err = db.Collection("task_history").InsertOne(t.Context(), task)
		require.NoError(t, err)
	}
	set(t, db, r.ID, bson.D{{Key: "active", Value: bson.A{}}, {Key: "planned", Value: bson.A{}}})
	_, err = p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{Request: "a"})
	require.NoError(t, err)
	n, err = p.Backfill(t.Context(), r.ID, to.Add(-5*time.Minute), to, "a")
	require.NoError(t, err)
	require.Equal(t, 2, n, "ticks that are new")
	left, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "type", Value: "tick"}})
	require.NoError(t, err)
	require.EqualValues(t, 2, left)
}

// The write that stores a rule says whether it fires, too.
func TestARuleIsStoredAndSwitchedInOneWrite(t *testing.T) {
	p, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	spec := schedule.Spec{Name: "a", Cron: "0 0 * * * *", Type: "tick", Enabled: new(false)}
	r, err := p.Create(t.Context(), spec)
	require.NoError(t, err)
	update := func(enabled bool) {
		t.Helper()
		spec.Description, spec.Enabled = spec.Description+"+", &enabled
		version := r.Version
		r, err = p.Update(t.Context(), r.ID, version, spec)
		require.NoError(t, err)
		require.Equal(t, version+1, r.Version)
		require.Equal(t, enabled, r.Status == tickplan.StatusOnline)
		require.Equal(t, enabled, !r.NextFireAt.IsZero())
		stored, err := p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		require.Equal(t, r.NextFireAt.UTC(), stored.NextFireAt.UTC())
		require.Equal(t, r.Status, stored.Status)
	}
	update(false)
	require.Equal(t, tickplan.StatusNew, r.Status, "it was never enabled")
	update(true)
	update(true)
	update(false)
	require.False(t, r.PausedAt.IsZero())
	update(true)
	r, err = p.Disable(t.Context(), r.ID, r.Version, "for the audit")
	require.NoError(t, err)
	update(false)
	require.Equal(t, "for the audit", r.PauseNote, "it was disabled before")
	spec.MaxRuns = 1
	update(true)
	require.Empty(t, r.PauseNote)

	spec.Name, spec.Enabled = "b", new(true)
	fires, err := p.Create(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, tickplan.StatusOnline, fires.Status)
	require.False(t, fires.NextFireAt.IsZero())
}

// A rule without a tenant may be written with the tenant that stands for none, and only with that.
func TestTheTenantThatStandsForNoneIsNoChange(t *testing.T) {
	p, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	spec := schedule.Spec{Name: "a", Tenant: model.NoTenant, Cron: "@yearly", Type: "tick"}
	r, err := p.Create(t.Context(), spec)
	require.NoError(t, err)
	require.Empty(t, r.Tenant)
	r, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.NoError(t, err)
	spec.Tenant = "acme"
	_, err = p.Update(t.Context(), r.ID, r.Version, spec)
	require.ErrorContains(t, err, `tenant is "acme"; want ""`)
}

func TestAChangeOfARuleIsNoPartOfATransaction(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	rule := schedule.Spec{Name: "a", Cron: "@daily", Type: "tick"}
	run := ""
	testdb.RolledBack(t, db, func(ctx context.Context) {
		r, err := p.Apply(ctx, rule)
		require.NoError(t, err)
		run, err = p.Trigger(ctx, r.ID, periodic.TriggerOptions{})
		require.NoError(t, err)
		rule.MaxRuns = 7
		_, err = p.Apply(ctx, rule)
		require.NoError(t, err)
	})
	r, err := p.Named(t.Context(), "", "a")
	require.NoError(t, err)
	require.EqualValues(t, 7, r.MaxRuns)
	_, err = p.GetRun(t.Context(), run)
	require.NoError(t, err)
}
