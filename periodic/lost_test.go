package periodic

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// lostWorld is a rule with one run that is under way, and one that waits for its end.
func lostWorld(t *testing.T) (w *world, id string) {
	w = newWorld(t, schedule.Spec{Name: "n", Type: "t", Cron: "0 * * * * *", MaxConcurrency: 1})
	w.decide(tickplan.Trigger(w.rule, w.cal, "first", false, w.now))
	w.decide(tickplan.Trigger(w.rule, w.cal, "second", false, w.now))
	require.Len(t, w.rule.Active, 1)
	require.Len(t, w.rule.Queued, 1)
	return w, "-/t/r!first"
}

func TestARunWhoseEndNobodyTellsIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration
		change func(lives map[string]*model.Task, id string)
		want   schedule.RunStatus // SCHEDULED = it goes on
		info   string
	}{
		"its task is gone":             {lostAfter, func(l map[string]*model.Task, id string) { delete(l, id) }, schedule.RunCanceled, "its task is gone"},
		"not yet":                      {lostAfter - 1, func(l map[string]*model.Task, id string) { delete(l, id) }, schedule.RunScheduled, ""},
		"it takes its time":            {24 * time.Hour, func(map[string]*model.Task, string) {}, schedule.RunScheduled, ""},
		"its end was told, and undone": {lostAfter, func(l map[string]*model.Task, id string) { l[id].Status = model.StatusSuccess }, schedule.RunSuccess, ""},
		"it failed": {lostAfter, func(l map[string]*model.Task, id string) {
			l[id].Status, l[id].ErrorInfo = model.StatusFailure, "so it is"
		}, schedule.RunFailed, "so it is"},
		"its end will be told": {lostAfter, func(l map[string]*model.Task, id string) {
			l[id].Status, l[id].Outbox = model.StatusSuccess, []model.OutboxEntry{{Kind: lifecycle.OutcomePeriodic}}
		}, schedule.RunScheduled, ""},
		"only its callback is left": {lostAfter, func(l map[string]*model.Task, id string) {
			l[id].Status, l[id].Outbox = model.StatusCompleted, []model.OutboxEntry{{Kind: lifecycle.OutcomeCallback}}
		}, schedule.RunSuccess, ""},
		"it cannot be read":        {lostAfter, func(l map[string]*model.Task, id string) { l[id] = nil }, schedule.RunScheduled, ""},
		"a later release's status": {lostAfter, func(l map[string]*model.Task, id string) { l[id].Status = "Frozen" }, schedule.RunScheduled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, id := lostWorld(t)
			w.now = w.now.Add(c.after)
			lives := map[string]*model.Task{id: new(*w.tasks[id])}
			c.change(lives, id)
			after := runsLost(w.rule, lives, w.now)
			if c.want == schedule.RunScheduled {
				require.Nil(t, after)
				return
			}
			w.decide(after)
			require.Equal(t, c.want, w.runs["r!first"].Status)
			require.Equal(t, c.info, w.runs["r!first"].Error)
			require.Len(t, w.rule.Active, 1, "what waited starts")
			require.Equal(t, "r!second", w.rule.Active[0].ID)
			require.Empty(t, w.rule.Queued)
		})
	}
}

func TestARunWhoseTaskWasNotSentYetIsNotLost(t *testing.T) {
	w := newWorld(t, schedule.Spec{Name: "n", Type: "t", Cron: "0 * * * * *"})
	w.write(tickplan.Trigger(w.rule, w.cal, "first", false, w.now)) // and nobody carries it out
	require.Nil(t, runsLost(w.rule, nil, w.now.Add(time.Hour)))
}

// While the database's clock is ahead, engines decide ticks that are yet to come. When it is right again, a person has
// the rule go on before that time. The key of each tick that ran is stored for a day at least: none runs twice.
func TestARuleGoesOnWhenTheDatabasesClockHasBeenSetBack(t *testing.T) {
	spec := schedule.Spec{Name: "a", Cron: "0 * * * * *", Type: "tick", Enabled: new(true), CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull}}
	for what, revive := range map[string]func(ctx context.Context, p *Periodic, r *schedule.Rule) (*schedule.Rule, error){
		"enabled though it is": func(ctx context.Context, p *Periodic, r *schedule.Rule) (*schedule.Rule, error) {
			return p.Enable(ctx, r.ID, 0)
		},
		"disabled and enabled": func(ctx context.Context, p *Periodic, r *schedule.Rule) (*schedule.Rule, error) {
			r, err := p.Disable(ctx, r.ID, 0, "")
			require.NoError(t, err)
			return p.Enable(ctx, r.ID, r.Version)
		},
		"edited": func(ctx context.Context, p *Periodic, r *schedule.Rule) (*schedule.Rule, error) {
			edit := spec
			edit.Description, edit.Enabled = "another", nil
			return p.Update(ctx, r.ID, r.Version, edit)
		},
		"applied as it is": func(ctx context.Context, p *Periodic, _ *schedule.Rule) (*schedule.Rule, error) {
			return p.Apply(ctx, spec)
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCounted(t)
			r, err := c.p.Apply(t.Context(), spec)
			require.NoError(t, err)
			const ahead = 10 * time.Minute
			c.p.store.Clock.Skip(ahead)
			c.round(0)
			r, err = c.p.Get(t.Context(), r.ID)
			require.NoError(t, err)
			ran := len(r.Active)
			require.GreaterOrEqual(t, ran, int(ahead/time.Minute))
			for _, a := range r.Active {
				_, err = c.prod.Cancel(t.Context(), model.TaskID("", "tick", a.ID), "over")
				require.NoError(t, err)
			}
			c.p.store.Clock.Skip(-ahead)
			for rounds := 0; len(r.Active) > 0; rounds++ {
				require.Less(t, rounds, 12, "the ends of its runs are told")
				c.round(5 * time.Second)
				r, err = c.p.Get(t.Context(), r.ID)
				require.NoError(t, err)
			}
			require.Greater(t, r.NextFireAt.Sub(c.p.store.Clock.Now()), ahead-2*time.Minute, "it is silent until then")

			r, err = revive(t.Context(), c.p, r)
			require.NoError(t, err)
			next := r.NextFireAt.Sub(c.p.store.Clock.Now())
			require.LessOrEqual(t, next, time.Minute)
			c.round(next + time.Millisecond)
			c.e.Flush(t.Context())
			r, err = c.p.Get(t.Context(), r.ID)
			require.NoError(t, err)
			require.Len(t, r.Active, 1, "its tick is decided again")
			n, err := c.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "type", Value: "tick"}})
			require.NoError(t, err)
			require.EqualValues(t, ran, n)
			run := r.Active[0].ID
			c.p.store.Clock.Skip(2 * lostAfter) // the heartbeat has read the time again
			require.NoError(t, planner{c.p}.Sweep(t.Context()))
			r, err = c.p.Get(t.Context(), r.ID)
			require.NoError(t, err)
			require.Empty(t, r.Active, "its task ended when the clock was ahead")
			ended, err := c.p.GetRun(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, schedule.RunCanceled, ended.Status)
		})
	}
}

// The runs of a deleted rule are found under its id, for as long as there are records of them.
func TestADeletedRuleLeavesTheDatabaseWhenItsRecordsHave(t *testing.T) {
	c := newCounted(t)
	ids := map[string]string{}
	const day = 24 * time.Hour
	for name, kept := range map[string]time.Duration{"records": 0, "records for longer": 100 * day, "it runs": 0, "it lives": 0, "a run ended late": 0} {
		r, err := c.p.Create(t.Context(), schedule.Spec{Name: name, Cron: "@yearly", Type: "tick", RunRetention: kept})
		require.NoError(t, err)
		if ids[name] = r.ID; name == "it runs" {
			_, err = c.p.Trigger(t.Context(), r.ID, TriggerOptions{})
			require.NoError(t, err)
		}
		if name == "a run ended late" {
			_, err = c.p.store.Runs.Put(t.Context(), []*schedule.Run{{ID: r.ID + "-late", RuleID: r.ID, Status: schedule.RunFailed}})
			require.NoError(t, err)
		}
		if name != "it lives" {
			require.NoError(t, c.p.Delete(t.Context(), r.ID, 0))
		}
	}
	c.e.Flush(t.Context())
	for _, step := range []struct {
		later time.Duration
		left  []string
	}{
		{89 * day, []string{"records", "records for longer", "it runs", "it lives", "a run ended late"}},
		{2 * day, []string{"records for longer", "it runs", "it lives", "a run ended late"}},
		{10 * day, []string{"it runs", "it lives", "a run ended late"}},
	} {
		c.p.store.Clock.Skip(step.later)
		require.NoError(t, planner{c.p}.Sweep(t.Context()))
		var left []string
		for name, id := range ids {
			if _, err := c.p.store.Rules.Get(t.Context(), id); err == nil {
				left = append(left, name)
			}
		}
		require.ElementsMatch(t, step.left, left)
	}
}
