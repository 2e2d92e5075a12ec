package lifecycle

import (
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// Audiences that are not a worker's id.
const (
	AudienceAll  = "*"  // anybody may claim
	AudienceMany = "*n" // anybody who neither holds it nor has done it; n > 1
)

// settle makes the status and the derived fields say what the executions, the
// counters and the cancel request mean. Every rule that changes one of those ends
// here, so that there is one place where a task's state is decided.
//
// eff are the options that apply to the task as the caller knows it. Where they changed
// since the newest claim, it is judged by those of that claim.
func settle(t *model.Task, eff Effective, now time.Time) { settleBy(t, judged(t, eff), now) }

// settleBy is settle by exactly those options.
func settleBy(t *model.Task, eff Effective, now time.Time) {
	t.LapseAt, t.ExpireAt = lapseAt(t), time.Time{}
	if !Known(t.Status) {
		return // of a later release, which knows what it means
	}
	open, done := OpenExecutions(t), Successes(t)
	switch {
	case Expired(t, now):
		t.Remark = "expired at " + t.Options.ExpiresAt.UTC().Format(clock.Format) + ": no worker had started it"
		end(t, model.StatusCancelled, eff, now)
	case t.Status == model.StatusWait && open == 0:
		// Held until somebody releases it.
	case open > 0:
		// Also where enough have succeeded already, because fewer are wanted now: an
		// ended task is one that nobody runs.
		t.Status = model.StatusExecuting
	case done >= Wanted(t):
		end(t, model.StatusSuccess, eff, now)
	case !t.CancelRequestedAt.IsZero():
		end(t, model.StatusCancelled, eff, now)
	case spent(t, eff) && eff.NeedManual:
		end(t, model.StatusPending, eff, now)
	case spent(t, eff):
		end(t, model.StatusFailure, eff, now)
	case t.ErrorCount+t.LapseCount > 0:
		t.Status = model.StatusError
	default:
		t.Status = model.StatusNew
	}
	if !t.Status.Ended() && t.Attempt == 0 {
		t.ExpireAt = t.Options.ExpiresAt
	}
	t.DueAt = time.Time{}
	if claimable(t.Status) && t.CancelRequestedAt.IsZero() && !spent(t, eff) {
		t.DueAt = dueAt(t)
	}
	if Wanted(t) > 1 {
		// With one wanted worker nobody's claim changes who may claim next, and the
		// hot path leaves the field alone.
		t.Audience = audienceNow(t, now)
	}
}

// end ends the task: its last status, when it moves to the history, and what follows.
func end(t *model.Task, s model.Status, eff Effective, now time.Time) {
	if s == model.StatusSuccess && eff.callbackFor(t.Type, s) != nil {
		s = model.StatusCompleted // until the callback is delivered
	}
	t.Status = s
	t.FinishedAt = now
	t.ArchiveAt = time.Time{}
	told := eff.callbackFor(t.Type, s) != nil // it waits for the delivery, which reads it
	if Archivable(s) && !told {
		t.ArchiveAt = archiveAt(t, now, eff)
	}
	follow(t, eff, now)
}

// Expired says whether the time by which somebody had to start the task has passed, and nobody holds it.
func Expired(t *model.Task, now time.Time) bool {
	return OpenExecutions(t) == 0 && t.Attempt == 0 && !t.Options.ExpiresAt.IsZero() && !t.Options.ExpiresAt.After(now)
}

// archiveAt is when a task that ended at the time moves to the history.
func archiveAt(t *model.Task, ended time.Time, eff Effective) time.Time {
	least := MinRetention
	if t.Origin != nil && (t.Origin.Tick != nil || t.Origin.Kind == OutcomeFlow || t.Origin.Kind == OutcomePlan) {
		least = MinTickRetention
	}
	return clock.Millis(ended.Add(max(eff.Retention, least)))
}

// The least time that an ended task stays among the tasks, whatever its own retention, its
// type's and its handler's say.
const (
	// MinRetention is long enough for everybody who still has to read its end.
	MinRetention = time.Minute
	// MinTickRetention holds for the tasks of periodic rules, flows and plans: the key of one is what
	// keeps its tick, node or step from being sent twice.
	MinTickRetention = 24 * time.Hour
)

func claimable(s model.Status) bool {
	return s == model.StatusNew || s == model.StatusError || s == model.StatusExecuting
}

// spent says whether no further execution may begin: too many errors or lapses, a
// handler that said a retry is useless, or too few of the named workers that may still run it.
func spent(t *model.Task, eff Effective) bool {
	if t.ErrorCount > *eff.Retry.MaxErrors || t.LapseCount > eff.MaxLapses || tooFewLeft(t, eff) {
		return true
	}
	return slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool { return failkind.Final(w.FailKind) })
}

// tooFewLeft says whether named workers have reached max_errors_per_worker, so that the others are
// fewer than the task still wants. Without names another worker may always come.
func tooFewLeft(t *model.Task, eff Effective) bool {
	left, some := 0, false
	for i, id := range t.Options.SpecificWorkerIDs {
		switch {
		case slices.Contains(t.Options.SpecificWorkerIDs[:i], id): // earlier releases allowed repeats
		case holdsOrDone(t, id):
		case exhausted(t, id, eff):
			some = true
		default:
			left++
		}
	}
	return some && left < Wanted(t)-Successes(t)-OpenExecutions(t)
}

// lapseAt is the earliest lease among the open executions.
func lapseAt(t *model.Task) time.Time {
	var earliest time.Time
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if Open(w) && (earliest.IsZero() || w.PingExpireTime.Before(earliest)) {
			earliest = w.PingExpireTime
		}
	}
	return earliest
}

// dueAt is when a slot is free: the start time, or, where every free slot waits for a
// retry, the first of those. Zero while no slot is free. Retries that were due long
// ago count too, so that the answer does not depend on when it is asked.
func dueAt(t *model.Task) time.Time {
	free := Wanted(t) - OpenExecutions(t) - Successes(t)
	if free <= 0 {
		return time.Time{}
	}
	var waiting []time.Time
	for i := range t.WorkerStates {
		if r := t.WorkerStates[i].RetryAt; !r.IsZero() {
			waiting = append(waiting, r)
		}
	}
	if free > len(waiting) {
		return t.StartTime
	}
	slices.SortFunc(waiting, time.Time.Compare)
	return clock.Later(t.StartTime, waiting[len(waiting)-free])
}

// audience says who may claim. A worker that is named and holds the task, or has done
// it, is not in it. Where the type is claimed by a label, workers restricted to that label
// find the task by it.
func audience(t *model.Task) []string {
	ids := t.Options.SpecificWorkerIDs
	var everybody []string
	switch {
	case len(ids) == 0 && Wanted(t) == 1:
		everybody = []string{AudienceAll}
	case len(ids) == 0:
		everybody = []string{AudienceMany}
	case Wanted(t) == 1:
		return slices.Clone(ids)
	default:
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return holdsOrDone(t, id) })
	}
	if t.Options.ClaimBy != "" && Wanted(t) == 1 {
		return append(everybody, LabelAudience(t.Options.ClaimBy, labelOf(t, t.Options.ClaimBy)))
	}
	return everybody
}

// holdsOrDone says whether the worker has an open or a successful execution.
func holdsOrDone(t *model.Task, workerID string) bool {
	return slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool {
		return w.WorkerID == workerID && w.FailTime.IsZero()
	})
}

// Repair derives status and fields again, for a document whose derived fields do not
// say what its executions do: written by hand, by a tool, by a bug. nil when nothing
// is wrong, and for a status of a later release, which alone knows what is right.
func Repair(t *model.Task, eff Effective, now time.Time) *model.Task {
	if !Known(t.Status) {
		return nil
	}
	c := next(t, now)
	if t.Status.Ended() {
		c.DueAt, c.LapseAt, c.ExpireAt = time.Time{}, time.Time{}, time.Time{}
	} else {
		settle(c, eff, now)
		c.Audience = audienceNow(c, now)
	}
	same := c.Status == t.Status && c.DueAt.Equal(t.DueAt) && c.ExpireAt.Equal(t.ExpireAt) && c.LapseAt.Equal(t.LapseAt) && slices.Equal(c.Audience, t.Audience)
	if same {
		return nil
	}
	return c
}
