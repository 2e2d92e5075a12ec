package periodic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
