package periodic

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Where the database refuses what is decided about a rule, there is nothing to go on with at
// once, however many ticks wait.
func TestARefusedDecisionIsNotTriedAgainBeforeTheNextLook(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var log strings.Builder
	p, err := New(Config{Database: db, Logger: zerolog.New(&log)})
	require.NoError(t, err)
	r, err := p.Create(t.Context(), schedule.Spec{
		Name: "bad", Cron: "* * * * * *", Type: "tick", Args: strings.Repeat("a", 2000), CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull, Cap: 1000},
	})
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	at := time.Now().Add(-10 * time.Minute).Truncate(time.Second)
	_, err = db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "spoiled", Value: strings.Repeat("x", 16<<20-2500)}, {Key: "decided_to", Value: at}, {Key: "next_fire_at", Value: at.Add(time.Second)},
	}}})
	require.NoError(t, err)
	e := p.engine()
	require.NoError(t, e.Start(t.Context()))
	pause := e.Round(t.Context())
	require.Contains(t, log.String(), r.ID, "it was refused")
	require.NotContains(t, log.String(), "could not decide what is due")
	require.Positive(t, pause)
}

// The task of an earlier run cannot be cancelled while somebody's open transaction holds it.
// The plans of the other rules are carried out meanwhile.
func TestATaskThatIsHeldKeepsBackOnlyItsOwnRule(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, p.engine().Start(t.Context()))
	now := p.store.Clock.Now()
	var tasks []*model.Task
	ids := map[string]string{} // by rule
	for _, name := range []string{"held", "free"} {
		r, err := p.Create(t.Context(), schedule.Spec{Name: name, Cron: "0 0 1 1 *", Type: "tick"})
		require.NoError(t, err)
		task := lifecycle.NewTask(lifecycle.Draft{Type: "tick", Key: name}, now)
		tasks, ids[r.ID] = append(tasks, task), task.ID
		_, err = db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$set", Value: bson.D{
			{Key: "planned_at", Value: now}, {Key: "planned", Value: []schedule.Planned{{ID: "d", Cancel: []string{task.ID}}}},
		}}})
		require.NoError(t, err)
	}
	_, err = p.store.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = db.Collection("tasks").UpdateByID(mongo.NewSessionContext(t.Context(), session), tasks[0].ID,
		bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)

	planned := func() []*schedule.Rule {
		rules, _, err := p.store.Rules.Planned(t.Context(), now.Add(time.Hour), 0, 10)
		require.NoError(t, err)
		return rules
	}
	stuck, err := p.decider.CarryOut(t.Context(), planned())
	require.ErrorIs(t, err, store.ErrHeld)
	require.Equal(t, 1, stuck)
	left := planned()
	require.Len(t, left, 1)
	require.Equal(t, tasks[0].ID, ids[left[0].ID])
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.Eventually(t, func() bool {
		_, err := p.decider.CarryOut(t.Context(), planned())
		return err == nil && len(planned()) == 0
	}, testdb.Patience, 100*time.Millisecond)
	for _, task := range tasks {
		now, err := p.store.Tasks.Get(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, model.StatusCancelled, now.Status)
	}
}

// More lives of one instant than a sweep reads at a time, none of which can be read: there is
// no way past them, and no use in looking at them for ever.
func TestASweepOfEndsThatCannotBeReadComesToAnEnd(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	var log strings.Builder
	p, err := New(Config{Database: db, Logger: zerolog.New(&log)})
	require.NoError(t, err)
	e := p.engine()
	require.NoError(t, e.Start(t.Context()))
	at := time.Now().Add(-time.Minute)
	var docs []any
	for i := range 600 {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprint(i)}, {Key: "outbox_at", Value: at}, {Key: "finished_at", Value: "three"},
			{Key: "outbox", Value: bson.A{bson.D{{Key: "kind", Value: lifecycle.OutcomePeriodic}, {Key: "rev", Value: 1}}}},
		})
	}
	_, err = db.Collection("tasks").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	require.Positive(t, e.Round(t.Context()))
	require.Contains(t, log.String(), "cannot be read")
	require.NotContains(t, log.String(), "could not decide what is due")
}

func TestATimeOrADurationThatCannotBeStoredIsRefusedByItsName(t *testing.T) {
	at := func(year int) time.Time { return time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC) }
	for text, s := range map[string]schedule.Spec{
		"start_at is 12000-12-30 00:00:00 +0000 UTC; want a time between 1970 and 9999": {StartAt: at(12000)},
		"end_at is 12000-12-30 00:00:00 +0000 UTC; want a time between 1970 and 9999":   {EndAt: at(12000)},
		"run_retention is 1µs; the unit of the database is a millisecond":               {RunRetention: time.Microsecond},
		"jitter is 1ns; the unit of the database is a millisecond":                      {Jitter: 1},
		"catch_up.window is 999µs; the unit of the database is a millisecond":           {CatchUp: schedule.CatchUp{Window: 999 * time.Microsecond}},
		"cron never fires before the year 10000":                                        {StartAt: at(9999)},
		"cron never fires before end_at":                                                {StartAt: at(2025), EndAt: at(2025).Add(time.Hour)},
	} {
		s.Name, s.Cron, s.Type = "n", "0 0 1 1 *", "t"
		_, _, err := rulespec.Build(&s, at(2024))
		require.ErrorIs(t, err, model.ErrInvalid)
		require.EqualError(t, err, text, "all of it, and nothing else")
	}
}

func TestTheEndsOfADueRuleAreToldAlthoughItsTimesCannotBeRead(t *testing.T) {
	db := testdb.New(t)
	var log strings.Builder
	p, err := New(Config{Database: db, Logger: zerolog.New(&log)})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, model.NewType[any, model.None]("tick"), func(context.Context, *consumer.Task[any]) (model.None, error) {
		return model.None{}, nil
	}))
	r, err := p.Create(t.Context(), schedule.Spec{Name: "r", Cron: "* * * * * *", Type: "tick", MaxConcurrency: 1, Concurrency: schedule.ConcurrencyQueue})
	require.NoError(t, err)
	for range 2 {
		_, err = p.Trigger(t.Context(), r.ID, TriggerOptions{})
		require.NoError(t, err)
	}
	r, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	require.Len(t, r.Queued, 1)
	_, err = db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "timezone", Value: "Mars/New"}, {Key: "next_fire_at", Value: time.Now().Add(-time.Minute)},
	}}})
	require.NoError(t, err)
	e := p.engine()
	require.NoError(t, e.Start(t.Context()))
	for range 2 { // the one that runs, and the one that waits for it
		mstest.Drain(t, c)
		e.Round(t.Context())
	}
	e.Flush(t.Context())
	r, err = p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Empty(t, r.Queued)
	require.Empty(t, r.Active)
	n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "outbox.0", Value: bson.D{{Key: "$exists", Value: true}}}})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Positive(t, e.Round(t.Context()), "it waits for the next look")
	require.Contains(t, log.String(), "Mars/New")
	require.NotContains(t, log.String(), "could not decide what is due")
}

// heldOnce reports that the first decision is held although it is written.
type heldOnce struct {
	decision.Documents[*schedule.Rule]
	said bool
}

func (h *heldOnce) Write(ctx context.Context, writes []store.RuleWrite) (applied []bool, refused map[int]error, err error) {
	applied, refused, err = h.Documents.Write(ctx, writes)
	if !h.said && err == nil {
		h.said, applied, refused = true, make([]bool, len(writes)), map[int]error{0: store.ErrHeld}
	}
	return applied, refused, err
}

func TestATriggerThatWasWrittenAlthoughItsRuleSeemedHeldRunsOnce(t *testing.T) {
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "r", Cron: "0 0 1 1 *", Type: "tick"})
	require.NoError(t, err)
	held := &heldOnce{Documents: p.decider.Documents}
	p.decider.Documents = held
	_, err = p.Trigger(t.Context(), r.ID, TriggerOptions{Force: true})
	require.NoError(t, err)
	require.True(t, held.said)
	n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "type", Value: "tick"}})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
