package tickplan

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Bounds of one decision and of what a rule remembers.
const (
	maxStarts = 100     // runs that one decision starts or queues; the next decides the rest
	maxDue    = 100_000 // ticks that one decision looks at

	// MaxActive is how many runs of a rule are active at once, whatever its policies and
	// people say: they lie in one document. What comes beyond it is skipped (capacity) or,
	// where it is a backfill's, waits.
	MaxActive = 1000
	MaxCap    = 10_000 // of a rule's catch-up

	// MaxBackfill is how many ticks one backfill may run.
	MaxBackfill = 1000
	// DefaultRunRetention is how long records are kept, and a rule at least after it was deleted.
	DefaultRunRetention = 90 * 24 * time.Hour
	// EngineType is what engines call themselves among the workers.
	EngineType = "mscheduler.periodic"

	defaultQueueLimit = 100
	defaultCap        = 100
	defaultWindow     = 24 * time.Hour

	// MissedAfter is how late a tick may be decided and still count as in time. An engine that
	// stalls, or whose successor must first notice that it is gone, has missed nothing. Seed 003
	// counts a tick as lost that no poll of a second sees.
	MissedAfter = 10 * time.Second
)

// decision is one decision about a rule in the making: a copy of the rule, changed step by
// step, that becomes one guarded write.
type decision struct {
	*schedule.Rule
	cal  *calendar.Schedule
	now  time.Time
	n    int // planned so far
	runs int // started or queued so far
}

func decide(r *schedule.Rule, cal *calendar.Schedule, now time.Time) *decision {
	c := *r
	c.Active, c.Queued, c.Planned = slices.Clone(r.Active), slices.Clone(r.Queued), slices.Clone(r.Planned)
	if r.Last != nil {
		c.Last = new(*r.Last)
	}
	if r.LastEffective != nil {
		c.LastEffective = new(*r.LastEffective)
	}
	if r.Range != nil {
		c.Range = new(*r.Range)
	}
	c.Rev++
	return &decision{Rule: &c, cal: cal, now: clock.Millis(now)}
}

// Plan decides the ticks of an online rule that are due. It returns the rule as it shall
// be, with what is to be done in Planned; nil when nothing is due. It decides at most
// a hundred runs: while NextFireAt is not after now there is more. What is planned already
// may be so much that it must be carried out first: then it returns nil, too.
func Plan(r *schedule.Rule, cal *calendar.Schedule, now time.Time) *schedule.Rule {
	if r.Status != StatusOnline || r.NextFireAt.IsZero() || r.NextFireAt.After(now) || Heavy(r) {
		return nil
	}
	d := decide(r, cal, now)
	d.ticks()
	d.schedule()
	return d.Rule
}

// ticks decides what is due, in order.
func (d *decision) ticks() {
	due := d.due()
	runs := d.caughtUp(due)
	if len(due) >= maxDue {
		// There are more. So many of the last as any cap allows are left to the next decision,
		// which sees them with all that are newer; the others are too old to be caught up.
		due, runs = due[:maxDue-MaxCap], make([]bool, maxDue-MaxCap)
	}
	for i, at := range due {
		if d.runs >= maxStarts || d.finished() || d.heavy() {
			return
		}
		if runs[i] {
			d.tick(at)
		} else {
			d.skip(at, SkipMissed, 0)
		}
		d.DecidedTo = at
	}
}

// cover records ticks up to now that nobody will decide any more as skipped, in one
// record: none is left out.
func (d *decision) cover(why string) { d.coverTo(d.now, why) }

// coverTo is [decision.cover] of the ticks up to another time.
func (d *decision) coverTo(to time.Time, why string) {
	decided := to
	if end := d.EndAt.Add(-1); !d.EndAt.IsZero() && end.Before(to) {
		to = end
	}
	if s := d.cal.Tally(d.after(), to); s.Count > 0 {
		d.skipSpan(s.First, s.Last, s.Count, why, 0)
	}
	d.DecidedTo = clock.Later(d.DecidedTo, decided)
}

// heavy says whether as much is planned as one document should carry. It is carried out
// and removed before more is decided.
func (d *decision) heavy() bool { return Heavy(d.Rule) }

// Heavy reports whether the rule has planned as much as fits its document.
func Heavy(r *schedule.Rule) bool { return PlannedBytes(r) > 2<<20 }

// PlannedBytes is about how many bytes it plans.
func PlannedBytes(r *schedule.Rule) (n int) {
	for i := range r.Planned {
		n += 1 << 10
		for _, id := range r.Planned[i].Cancel {
			n += len(id) + 16
		}
		if p := r.Planned[i].Record; p != nil && p.Call != nil {
			n += callSize(p.Call)
		}
		if t := r.Planned[i].Task; t != nil {
			n += len(t.Args.Value) + 3*len(t.ID)
			if t.Origin != nil && t.Origin.Tick != nil {
				n += len(t.Origin.Tick.Ext.Value)
			}
			for _, id := range t.Options.SpecificWorkerIDs {
				n += 2 * len(id)
			}
		}
	}
	return n
}

// due are the ticks after the last decided one, up to now.
func (d *decision) due() (out []time.Time) {
	for t := range d.cal.Ticks(d.after()) {
		if t.At.After(d.now) || len(out) >= maxDue || !d.EndAt.IsZero() && !t.At.Before(d.EndAt) {
			break
		}
		if t.Fires {
			out = append(out, t.At)
		}
	}
	return out
}

// after is the time after which the next tick lies.
func (d *decision) after() time.Time {
	return clock.Later(d.DecidedTo, BeforeStart(d.StartAt))
}

// BeforeStart is a time after which the first tick is not before the given start; ticks
// come in whole seconds, and one at the very start counts.
func BeforeStart(start time.Time) time.Time { return start.Add(-1) }

// caughtUp says for each due tick whether it is to run: those in time, and of those that
// were missed as many as the rule catches up. After an outage, NONE and COMPACT run the newest
// of those in time alone: nobody wants the last ten seconds of it at once.
func (d *decision) caughtUp(due []time.Time) []bool {
	runs := make([]bool, len(due))
	missed := 0
	for i, at := range due {
		// With new zone data a tick may lie before the time at which engines look. Until then it was due for none.
		if runs[i] = d.now.Sub(clock.Later(at, d.NextFireAt)) <= MissedAfter; !runs[i] {
			missed = i + 1
		}
	}
	allowed := 0
	switch mode, last := d.CatchUp.Mode, len(due)-1; {
	case mode == schedule.CatchUpFull:
		allowed = cmp.Or(d.CatchUp.Cap, defaultCap)
	case missed > 0 && missed <= last: // the newest stands for all
		clear(runs[:last])
	case mode == schedule.CatchUpCompact:
		allowed = 1
	}
	oldest := d.now.Add(-cmp.Or(d.CatchUp.Window, defaultWindow))
	for i := missed - 1; i >= 0 && allowed > 0 && !due[i].Before(oldest); i-- {
		runs[i] = true
		allowed--
	}
	return runs
}

// tick decides one tick by the policies, in the order of seed 003: overlap, failure,
// concurrency. But a tick that is skipped itself cancels nothing.
func (d *decision) tick(at time.Time) {
	overlaps := d.overlaps()
	if overlaps && d.Overlap == schedule.OverlapSkip && (d.waiting() > 0 || !allBackfills(d.Active)) {
		d.skip(at, SkipOverlap, d.nextAttempt())
		return
	}
	attempt, ok := d.afterFailure()
	if !ok {
		d.skip(at, SkipFailure, attempt)
		return
	}
	ref := schedule.RunRef{ID: TickID(d.ID, at), Nominal: at, Attempt: attempt, Force: overlaps && d.Overlap == schedule.OverlapParallel}
	if overlaps && d.Overlap == schedule.OverlapCancelPrev {
		ref.After = d.cancelPrevious()
	}
	d.admit(ref)
}

// overlaps says whether an earlier run is in a tick's way: one that runs, or waits. A
// backfill's is not while it waits. By SKIP the tick waits for one that runs, see mustWait.
func (d *decision) overlaps() bool { return len(d.Active)+d.waiting() > 0 }

// nextAttempt is the number of a run that follows the last one, whatever the policy.
func (d *decision) nextAttempt() int {
	if last := effective(d.Rule); last != nil && Failed(last.Status) {
		return last.Attempt + 1
	}
	return 1
}

// afterFailure is the number of a run that starts now, by what the policy says of the last
// one; not ok: it is skipped.
func (d *decision) afterFailure() (attempt int, ok bool) {
	last := effective(d.Rule)
	if last == nil || !Failed(last.Status) {
		return 1, true
	}
	switch d.OnFailure {
	case schedule.FailureSkip:
		return last.Attempt + map[bool]int{false: 1, true: 2}[d.FailSkips], d.FailSkips
	case schedule.FailureRetry:
		return last.Attempt + 1, true
	default:
		return 1, true
	}
}

// skip records that a tick does not run.
func (d *decision) skip(at time.Time, why string, attempt int) {
	d.skipSpan(at, at, 1, why, attempt)
}

// skipSpan records that so many ticks do not run. Consecutive skips of one reason share a
// record.
func (d *decision) skipSpan(first, last time.Time, n int64, why string, attempt int) {
	if last := effective(d.Rule); last != nil && Failed(last.Status) && why != SkipMissed && why != SkipPaused && why != SkipEdited {
		d.FailSkips = true // any skip after a failure is the one that the failure costs
	}
	if d.Range == nil || d.Range.Reason != why {
		d.Range = &schedule.SkipSpan{ID: TickID(d.ID, first), Reason: why, First: first}
	}
	d.Range.Last = last
	d.Range.Count += n
	run := d.run(schedule.RunRef{ID: d.Range.ID, Nominal: d.Range.First, Attempt: attempt})
	run.Status, run.Reason, run.Count, run.EndedAt = schedule.RunSkipped, why, d.Range.Count, d.now
	if d.Range.Count > 1 {
		run.Last = d.Range.Last
	}
	d.keep(run)
}

// start sends the task of a run that did not wait.
func (d *decision) start(ref schedule.RunRef) {
	d.counted(ref)
	d.send(ref)
}

// send sends the run's task. A tick's run is the last one from now on. Until a worker has
// begun it, the run before it goes on being judged.
func (d *decision) send(ref schedule.RunRef) {
	if !ref.Manual {
		d.supersede()
		d.Last = &schedule.LastRun{ID: ref.ID, Nominal: ref.Nominal, Attempt: ref.Attempt, Status: schedule.RunRunning}
	}
	ref.After, ref.Force = nil, false
	task := d.task(ref)
	ref.TaskType, ref.Started = task.Type, d.now
	d.Active = append(d.Active, ref)
	run := d.run(ref)
	run.Status, run.TaskID = schedule.RunScheduled, task.ID
	d.keepWith(run, task)
}

// schedule sets when the rule is looked at next.
func (d *decision) schedule() {
	d.NextFireAt = time.Time{}
	if d.Status != StatusOnline {
		return
	}
	next := d.cal.Next(d.after())
	switch {
	case d.finished():
		d.rest(restsForRuns)
	case next.IsZero() || !d.EndAt.IsZero() && !next.Before(d.EndAt):
		d.rest("end_at is reached")
	default:
		d.NextFireAt = next
	}
}

// restsForRuns is the note of a rule that rests because of its max_runs.
const restsForRuns = "max_runs is reached"

func (d *decision) rest(note string) {
	d.Status, d.PauseNote, d.PausedAt = StatusOffline, note, time.Time{}
}

// Enabled says whether a person wants the rule to fire: it does, or rests because its end is
// reached.
func Enabled(r *schedule.Rule) bool { return r.Status == StatusOnline || Rests(r) }

// Rests says whether the rule is offline by itself, because it has no ticks left: nobody
// paused it.
func Rests(r *schedule.Rule) bool {
	return r.Status == StatusOffline && r.PausedAt.IsZero()
}

func (d *decision) finished() bool { return d.MaxRuns > 0 && d.Runs >= d.MaxRuns }

// task is the task of a run, but for what it leaves to its type, see [periodic.complete].
func (d *decision) task(ref schedule.RunRef) *model.Task {
	t := d.Task
	draft := lifecycle.Draft{
		Tenant: d.Tenant, Type: t.Type, Key: ref.ID, Category: d.Category, Creator: d.Creator,
		Args: t.Args, Priority: t.Priority, Options: t.Options,
		Origin: &model.Origin{Kind: lifecycle.OutcomePeriodic, ID: d.ID, Tick: &model.Tick{
			Run: ref.ID, Rule: d.Name, Nominal: ref.Nominal, Attempt: ref.Attempt, Manual: ref.Manual, Ext: d.Ext,
		}},
	}
	if d.Jitter > 0 && !ref.Manual {
		draft.Start = d.now.Add(jitter(ref.ID, d.Jitter))
	}
	return lifecycle.NewTask(draft, d.now)
}

func (d *decision) taskID(ref schedule.RunRef) string {
	return model.TaskID(d.Tenant, ref.TaskType, ref.ID)
}

// jitter is a delay that is always the same for a run.
func jitter(id string, most time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return time.Duration(float64(most) * (float64(h.Sum64()>>11) / (1 << 53)))
}

// TickID names the run of a tick: what is decided twice is the same run. It is made of the
// rule's id, never of its name.
func TickID(ruleID string, at time.Time) string {
	return ruleID + "@" + at.UTC().Format("2006-01-02T15:04:05Z")
}

// RuleOf returns the id of the rule of a run, which begins the run's id: rule@time, or rule!request. "" = it is no
// id of a run.
func RuleOf(run string) string {
	i := strings.IndexAny(run, "@!")
	return run[:max(i, 0)]
}
