package tickplan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Which runs start now, which wait, and which give way: the concurrency policy, the queue,
// and what CANCEL_PREV cancels.

// admit starts a run, or lets it wait, or skips it, by the concurrency policy.
func (d *decision) admit(ref schedule.RunRef) {
	switch {
	case len(ref.After) > 0, d.mustWait(ref):
		d.enqueue(ref)
	case len(d.Active) >= MaxActive:
		d.skip(ref.Nominal, SkipCapacity, ref.Attempt)
	case ref.Force || d.MaxConcurrency == 0 || len(d.Active) < d.MaxConcurrency && d.waiting() == 0:
		d.start(ref)
	case d.Concurrency == schedule.ConcurrencyParallel:
		d.start(ref)
	case d.Concurrency == schedule.ConcurrencySkip, d.waiting() >= cmp.Or(d.QueueLimit, defaultQueueLimit):
		d.skip(ref.Nominal, SkipConcurrency, ref.Attempt)
	default:
		d.enqueue(ref)
	}
}

// waiting is how many runs wait that the queue's limit counts: a backfill's do not, so that
// it takes no tick's place.
func (d *decision) waiting() (n int) {
	for i := range d.Queued {
		if !isBackfill(d.Queued[i]) {
			n++
		}
	}
	return n
}

// cancelPrevious asks for the end of every run that has not ended and returns those that
// must be seen to end. One that only waited is cancelled at once. The runs of a backfill
// stay: they are for other times, and no later tick takes their place.
func (d *decision) cancelPrevious() (running []string) {
	d.Queued = slices.DeleteFunc(d.Queued, func(q schedule.RunRef) bool {
		if isBackfill(q) {
			return false
		}
		d.uncounted(q)
		d.record(q, schedule.RunCanceled, "a later tick took its place")
		running = append(running, q.After...)
		return true
	})
	var tasks []string
	for i := range d.Active {
		a := &d.Active[i]
		if isBackfill(*a) {
			continue
		}
		running = append(running, a.ID)
		if !a.Cancelled { // it need not be asked by each of many ticks
			a.Cancelled = true
			tasks = append(tasks, d.taskID(*a))
		}
	}
	if len(tasks) > 0 {
		d.plan(schedule.Planned{Cancel: tasks})
	}
	slices.Sort(running)
	return slices.Compact(running)
}

// enqueue lets the run wait for its turn: in order, but for those of a backfill, which let
// what comes now go first.
func (d *decision) enqueue(ref schedule.RunRef) {
	d.counted(ref)
	at := len(d.Queued)
	if i := slices.IndexFunc(d.Queued, isBackfill); i >= 0 && !isBackfill(ref) {
		at = i
	}
	d.Queued = slices.Insert(d.Queued, at, ref)
	run := d.run(ref)
	run.Status = schedule.RunQueued
	d.keep(run)
}

// counted counts a run when it is first started or queued. A person's run is no tick: it
// neither breaks a span of skips nor counts.
func (d *decision) counted(ref schedule.RunRef) {
	if !ref.Manual {
		d.Runs++
		d.runs++
		d.Range = nil
	}
}

// uncounted takes the count of a tick back whose run waited and never started. If the rule rested because of the
// count, it goes on from now: what lay between was nobody's tick.
func (d *decision) uncounted(ref schedule.RunRef) {
	if ref.Manual {
		return
	}
	d.Runs = max(d.Runs-1, 0)
	if Rests(d.Rule) && d.PauseNote == restsForRuns && !d.finished() {
		d.goOn()
		d.Status, d.PauseNote, d.NextFireAt = StatusOnline, "", d.now // the next decision knows the times
	}
}

// startQueued starts what waits and may start now, in order. It leaves the rest to the end
// of what it started when that is as much as one document should carry. It starts at least one run. A skipped
// run does not count: it has no end that would start the next one.
func (d *decision) startQueued() {
	for active := len(d.Active); len(d.Queued) > 0 && (len(d.Active) == active || !d.heavy()); {
		head := d.Queued[0]
		if len(head.After) > 0 || d.mustWait(head) || len(d.Active) >= MaxActive || !head.Force && d.MaxConcurrency > 0 && len(d.Active) >= d.MaxConcurrency {
			return
		}
		d.Queued = d.Queued[1:]
		d.startWaiting(head)
	}
}

// startWaiting starts a run that waited, or skips it: only now is it known how the run
// before it ended. One that waited for runs to be cancelled on its behalf was judged before.
func (d *decision) startWaiting(ref schedule.RunRef) {
	if !ref.Manual && d.Overlap != schedule.OverlapCancelPrev {
		attempt, ok := d.afterFailure()
		if ref.Attempt = attempt; !ok {
			d.FailSkips = true
			d.uncounted(ref)
			run := d.run(ref)
			run.Status, run.Reason, run.EndedAt = schedule.RunSkipped, SkipFailure, d.now
			d.keep(run)
			return
		}
	}
	d.send(ref)
}

// mustWait reports whether a run of a tick or of a backfill waits for the end of what is active: by overlap SKIP no two of
// them run at once. A tick waits for a backfill's run; for others it is skipped.
func (d *decision) mustWait(ref schedule.RunRef) bool {
	return d.Overlap == schedule.OverlapSkip && len(d.Active) > 0 && (!ref.Manual || isBackfill(ref))
}

func allBackfills(runs []schedule.RunRef) bool {
	return !slices.ContainsFunc(runs, func(r schedule.RunRef) bool { return !isBackfill(r) })
}

// isBackfill says whether a run is one of a backfill, rule@nominal!request.
func isBackfill(ref schedule.RunRef) bool {
	return ref.Manual && strings.Contains(ref.ID, "@")
}
