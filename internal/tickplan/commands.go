package tickplan

import (
	"cmp"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// The statuses of seed 000, see Status of [schedule.Rule].
const (
	StatusNew     = "new"
	StatusOnline  = "online"
	StatusOffline = "offline"
)

// The other decisions about a rule. Each returns the rule as it shall be, or nil when
// nothing changes.

// Ended decides what follows the end of a run: its record, and the start of what waited
// for it. A run that is not among the active ones, because a person ran its task again,
// only gets its record, and so does one whose end was told before.
func Ended(r *schedule.Rule, task *model.Task, s schedule.RunStatus, info string, now time.Time) *schedule.Rule {
	d := decide(r, nil, now) // an end moves no tick
	tick := task.Origin.Tick
	ref := schedule.RunRef{ID: tick.Run, Nominal: tick.Nominal, Attempt: tick.Attempt, Manual: tick.Manual}
	active := false
	d.Active = slices.DeleteFunc(d.Active, func(a schedule.RunRef) bool {
		if a.ID != ref.ID {
			return false
		}
		ref.Started, active = a.Started, true
		return true
	})
	for i := range d.Queued {
		d.Queued[i].After = slices.DeleteFunc(slices.Clone(d.Queued[i].After), func(id string) bool { return id == ref.ID })
	}
	d.judge(ref, s, active)
	if ref.Started.IsZero() {
		ref.Started = task.CreatedAt // it was told before
	}
	run := d.run(ref)
	run.Status, run.Error, run.TaskID, run.EndedAt = s, info, task.ID, cmp.Or(task.FinishedAt, d.now)
	run.ExecutedAt, run.Call = lifecycle.ExecutedAt(task), CallOf(task)
	d.keep(run)
	d.startQueued()
	return d.Rule
}

// Trigger decides a run by a person's word: it obeys the concurrency policy, unless forced,
// and neither overlap nor failure policy. request makes it once.
func Trigger(r *schedule.Rule, cal *calendar.Schedule, request string, force bool, now time.Time) *schedule.Rule {
	d := decide(r, cal, now)
	d.manual(schedule.RunRef{ID: r.ID + "!" + request, Nominal: d.now, Attempt: 1, Manual: true, Force: force})
	return d.Rule
}

// Backfill decides runs for ticks of the past, in their order: they start as the
// concurrency limit lets them, by overlap SKIP one at a time, and wait otherwise. request makes them once.
func Backfill(r *schedule.Rule, cal *calendar.Schedule, request string, ticks []time.Time, now time.Time) *schedule.Rule {
	d := decide(r, cal, now)
	for _, at := range ticks {
		ref := schedule.RunRef{ID: TickID(r.ID, at) + "!" + request, Nominal: at, Attempt: 1, Manual: true}
		if d.mustWait(ref) || len(d.Active) >= MaxActive || d.MaxConcurrency > 0 && (len(d.Active) >= d.MaxConcurrency || len(d.Queued) > 0) {
			d.enqueue(ref)
		} else {
			d.start(ref)
		}
	}
	return d.Rule
}

// manual admits a person's run; one that is skipped has a record of its own.
func (d *decision) manual(ref schedule.RunRef) {
	span := d.Range
	d.Range = nil
	before := d.FailSkips
	d.admit(ref)
	if d.Range != nil && d.n > 0 { // it was skipped, under the id of a tick
		last := &d.Planned[len(d.Planned)-1]
		if last.Record != nil {
			last.Record.ID, last.Record.Manual = ref.ID, true
		}
	}
	d.Range, d.FailSkips = span, before
}

// Cancel decides the cancelling of one run: one that waits is cancelled at once, the
// task of one that runs is asked to end. nil when it has neither.
func Cancel(r *schedule.Rule, cal *calendar.Schedule, id string, now time.Time) *schedule.Rule {
	d := decide(r, cal, now)
	is := func(x schedule.RunRef) bool { return x.ID == id }
	if i := slices.IndexFunc(d.Queued, is); i >= 0 {
		q := d.Queued[i]
		d.Queued = slices.Delete(d.Queued, i, i+1)
		d.uncounted(q)
		d.record(q, schedule.RunCanceled, "cancelled while it waited")
		d.startQueued()
		return d.Rule
	}
	if i := slices.IndexFunc(d.Active, is); i >= 0 {
		d.plan(schedule.Planned{Cancel: []string{d.taskID(d.Active[i])}})
		return d.Rule
	}
	return nil
}

// CancelTask decides the cancelling of the task of a run that has ended, after a person retried it.
func CancelTask(r *schedule.Rule, taskID string, now time.Time) *schedule.Rule {
	d := decide(r, nil, now)
	d.plan(schedule.Planned{Cancel: []string{taskID}})
	return d.Rule
}

// aheadAfter is how far ahead of now the decided ticks of a rule may be. Engines do not agree about now to the
// millisecond.
const aheadAfter = time.Minute

// Ahead reports whether ticks are decided that are yet to come: the database's clock was ahead then, and has been set
// back.
func Ahead(r *schedule.Rule, now time.Time) bool { return r.DecidedTo.Sub(now) > aheadAfter }

// goOn has the rule go on from now. If it is ahead, it decides the ticks until then again. Those that ran do not run
// twice, because the keys of their tasks are stored for a day at least.
func (d *decision) goOn() {
	if Ahead(d.Rule, d.now) {
		d.DecidedTo, d.Range = d.now, nil
	}
	d.DecidedTo = clock.Later(d.DecidedTo, d.now)
}

// Enable lets the rule fire from now on. What came while it was offline is recorded as
// skipped (paused), in one record, and not run. An enabled rule goes on if it is [Ahead].
func Enable(r *schedule.Rule, cal *calendar.Schedule, now time.Time) *schedule.Rule {
	if r.Status == StatusOnline && !Ahead(r, now) {
		return nil
	}
	d := decide(r, cal, now)
	if r.Status == StatusOffline && !Rests(r) {
		d.cover(SkipPaused)
	}
	d.goOn()
	d.Status, d.PauseNote, d.PausedAt, d.UpdatedAt = StatusOnline, "", time.Time{}, d.now
	d.schedule()
	return d.Rule
}

// Disable stops the rule at once. What runs or waits goes on; what is due and not decided
// counts as paused.
func Disable(r *schedule.Rule, cal *calendar.Schedule, note string, now time.Time) *schedule.Rule {
	if r.Status == StatusOffline && r.PauseNote == note {
		return nil
	}
	d := decide(r, cal, now)
	if r.Status == StatusNew || Rests(r) {
		d.DecidedTo = clock.Later(d.DecidedTo, d.now) // it has missed nothing
	}
	d.Status, d.PauseNote, d.PausedAt, d.UpdatedAt = StatusOffline, note, d.now, d.now
	d.schedule()
	return d.Rule
}

// Edit replaces what a person may change. No tick before the edit is decided by the new
// rule. Those that are still in time are decided by the rule as it was; older ones, which
// nobody decided, are skipped (edited) in one record, whatever it catches up: somebody who
// mends a rule after an outage wants no runs of what was wrong with it. A rule that was over, by its end or max_runs, goes on if the edit gives it
// more ticks.
func Edit(r *schedule.Rule, old, cal *calendar.Schedule, edited *schedule.Rule, now time.Time) *schedule.Rule {
	d := decide(r, old, now)
	switch d.Status {
	case StatusOnline:
		d.coverTo(d.now.Add(-MissedAfter-1), SkipEdited)
		d.ticks()
		if !d.finished() {
			d.cover(SkipEdited) // more than one decision holds
		}
	case StatusOffline:
		if Rests(r) {
			d.Status, d.PauseNote = StatusOnline, "" // unless it has no ticks by the new times either
		} else {
			d.cover(SkipPaused) // its paused time goes on, by the new times
		}
	}
	d.goOn()
	e := *edited
	e.ID, e.CreatedAt, e.Status, e.PauseNote, e.PausedAt, e.DeletedAt = r.ID, r.CreatedAt, d.Status, d.PauseNote, d.PausedAt, r.DeletedAt
	e.Rev, e.Decision, e.UpdatedAt, e.DecidedTo, e.Runs = d.Rev, d.Decision, d.now, d.DecidedTo, d.Runs
	e.Last, e.LastEffective, e.FailSkips = d.Last, d.LastEffective, d.FailSkips
	e.Active, e.Queued, e.Planned, e.PlannedAt = d.Active, d.Queued, d.Planned, d.PlannedAt
	e.Version, e.PastTypes = r.Version+1, pastTypes(r, edited.Task.Type)
	d.Rule, d.cal = &e, cal
	d.startQueued() // the limit may have been raised
	d.schedule()
	return d.Rule
}

// EditTurned is [Edit] of a rule that is to be enabled, or not, from then on: one decision. What
// stops the rule comes first, what starts it last. A rule that is disabled already keeps its note when it is not
// to be enabled.
func EditTurned(r *schedule.Rule, old, cal *calendar.Schedule, edited *schedule.Rule, enabled bool, now time.Time) *schedule.Rule {
	if enabled {
		after := Edit(r, old, cal, edited, now)
		return cmp.Or(Enable(after, cal, now), after)
	}
	if Enabled(r) {
		r = cmp.Or(Disable(r, old, "", now), r)
	}
	return Edit(r, old, cal, edited, now)
}

// maxPastTypes is how many types a rule remembers that it had.
const maxPastTypes = 20

// pastTypes are the types that the rule has had when it gets another one.
func pastTypes(r *schedule.Rule, next string) []string {
	if r.Task.Type == next {
		return r.PastTypes
	}
	past := slices.DeleteFunc(slices.Clone(r.PastTypes), func(typ string) bool { return typ == r.Task.Type })
	past = append(past, r.Task.Type)
	return past[max(len(past)-maxPastTypes, 0):]
}

// Delete ends the rule logically: it never fires again, what waits is cancelled, its runs
// stay. What is due and not decided does not run.
func Delete(r *schedule.Rule, cal *calendar.Schedule, now time.Time) *schedule.Rule {
	if !r.DeletedAt.IsZero() {
		return nil
	}
	d := decide(r, cal, now)
	switch r.Status {
	case StatusOnline:
		d.cover(SkipMissed)
	case StatusOffline:
		if !Rests(r) {
			d.cover(SkipPaused)
		}
	}
	for _, q := range d.Queued {
		d.record(q, schedule.RunCanceled, "the rule was deleted")
	}
	d.Queued = nil
	d.Status, d.PauseNote, d.PausedAt = StatusOffline, "deleted", d.now
	d.DeletedAt, d.UpdatedAt, d.Living = d.now, d.now, ""
	d.Version++
	d.schedule()
	return d.Rule
}
