package periodic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func anySpec(t *rapid.T) schedule.Spec {
	return schedule.Spec{
		Name: "n", Type: "t",
		Cron:           rapid.SampledFrom([]string{"* * * * * *", "*/10 * * * * *", "*/7 * * * * *", "0 * * * * *", "@every 3s"}).Draw(t, "cron"),
		Overlap:        rapid.SampledFrom([]schedule.OverlapPolicy{"", schedule.OverlapSkip, schedule.OverlapCancelPrev, schedule.OverlapParallel}).Draw(t, "overlap"),
		OnFailure:      rapid.SampledFrom([]schedule.FailurePolicy{"", schedule.FailureSkip, schedule.FailureRetry}).Draw(t, "failure"),
		MaxConcurrency: rapid.IntRange(0, 3).Draw(t, "max"),
		Concurrency:    rapid.SampledFrom([]schedule.ConcurrencyPolicy{"", schedule.ConcurrencySkip, schedule.ConcurrencyParallel}).Draw(t, "concurrency"),
		QueueLimit:     rapid.IntRange(0, 3).Draw(t, "queue"),
		CatchUp: schedule.CatchUp{
			Mode:   rapid.SampledFrom([]schedule.CatchUpMode{"", schedule.CatchUpCompact, schedule.CatchUpFull}).Draw(t, "catch up"),
			Window: time.Duration(rapid.IntRange(0, 100).Draw(t, "window")) * time.Second,
			Cap:    rapid.IntRange(0, 150).Draw(t, "cap"),
		},
	}
}

// history is a random life of a rule: engines that look late, die between any two steps and
// carry out again what was done; runs that end in any way, told twice; people who pause,
// change, trigger, backfill and cancel; a clock that is set back.
func history(t *rapid.T) {
	spec := anySpec(t)
	w := newWorld(t, spec)
	w.decide(tickplan.Enable(w.rule, w.cal, w.now))
	w.from = w.now
	requests, ended := 0, map[string]schedule.RunStatus{} // of tasks
	past := map[string]schedule.LastRun{}                 // the ticks' runs that have ended
	// carry may crash after any step; what was left is carried out by the next who looks.
	carry := func() {
		w.carryOut(rapid.OneOf(rapid.Just(1<<30), rapid.IntRange(0, 5)).Draw(t, "steps"))
	}
	for range rapid.IntRange(1, 60).Draw(t, "length") {
		before := w.rule
		action := rapid.SampledFrom([]string{"look", "look", "look", "begin", "end", "end", "again", "pause", "enable", "edit", "trigger", "backfill", "cancel", "back", "sweep"}).Draw(t, "action")
		switch action {
		case "look":
			w.now = w.now.Add(time.Duration(rapid.OneOf(rapid.IntRange(0, 20_000), rapid.IntRange(0, 400_000)).Draw(t, "ms")) * time.Millisecond)
			if after := tickplan.Plan(w.known(), w.cal, w.now); after != nil {
				w.requireRetries(after, past)
				w.write(after)
				carry()
			}
		case "begin":
			if running := w.running(); len(running) > 0 {
				w.begun[rapid.SampledFrom(running).Draw(t, "task").Key] = true
			}
		case "end":
			if running := w.running(); len(running) > 0 {
				task := rapid.SampledFrom(running).Draw(t, "task")
				task.FinishedAt = w.now
				ended[task.ID] = anyEnd(t)
				if tick := task.Origin.Tick; !tick.Manual {
					past[tick.Run] = schedule.LastRun{ID: tick.Run, Nominal: tick.Nominal, Attempt: tick.Attempt, Status: ended[task.ID]}
				}
				w.write(tickplan.Ended(w.known(), task, ended[task.ID], "", w.now))
				carry()
			}
		case "again":
			for _, id := range sortedKeys(w.tasks) {
				if task := w.tasks[id]; !task.FinishedAt.IsZero() {
					w.write(tickplan.Ended(w.rule, task, ended[id], "", w.now))
					carry()
					break
				}
			}
		case "pause":
			if after := tickplan.Disable(w.rule, w.cal, "", w.now); after != nil {
				w.write(after)
				carry()
			}
		case "enable":
			if after := tickplan.Enable(w.rule, w.cal, w.now); after != nil {
				w.write(after)
				carry()
			}
		case "edit":
			spec = anySpec(t)
			w.edit(spec)
		case "trigger":
			requests++
			w.write(tickplan.Trigger(w.rule, w.cal, fmt.Sprint(requests), false, w.now))
			carry()
		case "backfill":
			requests++
			w.write(tickplan.Backfill(w.rule, w.cal, fmt.Sprint(requests), []time.Time{w.now.Add(-time.Hour).Truncate(time.Second), w.now.Add(-time.Minute).Truncate(time.Second)}, w.now))
			carry()
		case "cancel":
			if n := len(w.rule.Queued); n > 0 {
				w.write(tickplan.Cancel(w.rule, w.cal, w.rule.Queued[rapid.IntRange(0, n-1).Draw(t, "which")].ID, w.now))
				carry()
			}
		case "back":
			back := w.now.Add(-time.Duration(rapid.IntRange(1, 60_000).Draw(t, "ms")) * time.Millisecond)
			if !tickplan.Ahead(w.rule, back) { // else ticks are decided again
				w.now = back
			}
		case "sweep":
			w.carryOut(1 << 30)
		}
		if action != "cancel" {
			requireQueueInOrder(t, before, w.rule)
		}
		if action != "edit" {
			requireAlone(t, before, w.rule)
		}
		// An edit lets the old rule decide first, which may have had another limit.
		if added := len(w.rule.Active) > len(before.Active); added && action != "backfill" && action != "edit" && w.rule.MaxConcurrency > 0 &&
			w.rule.Overlap != schedule.OverlapParallel && w.rule.Concurrency != schedule.ConcurrencyParallel && !forced(before) {
			require.LessOrEqual(t, len(w.rule.Active), w.rule.MaxConcurrency, "runs at once")
		}
	}
	w.carryOut(1 << 30)
	w.look()
	w.requireCovered()
	for _, a := range w.rule.Active {
		require.NotEmpty(t, w.by[a.ID], "active, and no task was sent: %s", a.ID)
	}
	// Everything ends, and nothing is left that waits for what never comes.
	w.decideIf(tickplan.Disable(w.rule, w.cal, "the end", w.now))
	for running := w.running(); len(running) > 0; running = w.running() {
		running[0].FinishedAt = w.now
		w.decide(tickplan.Ended(w.rule, running[0], schedule.RunSuccess, "", w.now))
	}
	require.Empty(t, w.rule.Active)
	require.Empty(t, w.rule.Queued)
	for id, r := range w.runs {
		require.NotContains(t, []schedule.RunStatus{schedule.RunScheduled, schedule.RunQueued}, r.Status, "the record of %s stays behind", id)
	}
}

// requireRetries demands of each run that starts now, or waits, the attempt of seed 003: one
// more than that of the newest run that a worker has begun, where that one has failed.
func (w *world) requireRetries(after *schedule.Rule, past map[string]schedule.LastRun) {
	if w.rule.OnFailure != schedule.FailureRetry {
		return
	}
	var last schedule.LastRun
	for _, r := range past {
		if r.Nominal.After(last.Nominal) {
			last = r
		}
	}
	for _, a := range w.rule.Active {
		if w.begun[a.ID] && !a.Manual && a.Nominal.After(last.Nominal) {
			last = schedule.LastRun{Nominal: a.Nominal, Attempt: a.Attempt, Status: schedule.RunRunning}
		}
	}
	want := 1
	if tickplan.Failed(last.Status) {
		want = last.Attempt + 1
	}
	for _, p := range after.Planned {
		r := p.Record
		known := slices.ContainsFunc(w.rule.Planned, func(q schedule.Planned) bool { return q.ID == p.ID })
		if r == nil || known || r.Manual || r.Status != schedule.RunScheduled && r.Status != schedule.RunQueued {
			continue
		}
		require.Equal(w.t, want, r.Attempt, "the attempt of %s", r.ID)
	}
}

func (w *world) decideIf(after *schedule.Rule) {
	if after != nil {
		w.decide(after)
	}
}

func anyEnd(t *rapid.T) schedule.RunStatus {
	return rapid.SampledFrom([]schedule.RunStatus{schedule.RunSuccess, schedule.RunFailed, schedule.RunTimeout, schedule.RunFailedTimeout, schedule.RunCanceled}).Draw(t, "end")
}

func forced(r *schedule.Rule) bool {
	return slices.ContainsFunc(r.Queued, func(q schedule.RunRef) bool { return q.Force })
}

// requireQueueInOrder demands that those which started are the first: nobody overtakes.
func requireQueueInOrder(t require.TestingT, before, after *schedule.Rule) {
	waits, runs := map[string]bool{}, map[string]bool{}
	for _, q := range after.Queued {
		waits[q.ID] = true
	}
	for _, a := range after.Active {
		runs[a.ID] = true
	}
	stayed := false
	for _, q := range before.Queued {
		require.False(t, stayed && runs[q.ID], "%s overtook another", q.ID)
		stayed = stayed || waits[q.ID]
	}
}

// requireAlone demands that by SKIP a run of a tick or a backfill starts only when all that was active has ended, and only
// one of them.
func requireAlone(t require.TestingT, before, after *schedule.Rule) {
	var stayed, starts []string
	for _, a := range after.Active {
		switch active := slices.ContainsFunc(before.Active, func(b schedule.RunRef) bool { return a.ID == b.ID }); {
		case active:
			stayed = append(stayed, a.ID)
		case !a.Manual || strings.Contains(a.ID, "@"):
			starts = append(starts, a.ID)
		}
	}
	if after.Overlap == schedule.OverlapSkip && len(starts) > 0 {
		require.Len(t, starts, 1)
		require.Empty(t, stayed, "beside %s", starts[0])
	}
}

func sortedKeys(m map[string]*model.Task) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
