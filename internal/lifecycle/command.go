package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Cancel asks for the end of a task. One that nobody runs is Cancelled at once; where
// executions are open nobody claims it any more, their handlers are told, and the
// return of the last one ends it. A parked execution has no handler and ends at once.
// A second request changes nothing and is no error.
func Cancel(t *model.Task, remark string, eff Effective, now time.Time) (*model.Task, error) {
	switch {
	case t.Status == model.StatusCancelled || !t.Status.Ended() && !t.CancelRequestedAt.IsZero():
		return t, nil
	case t.Status.Ended():
		return nil, refuse(t, "only a task that has not ended can be cancelled")
	case !Known(t.Status):
		return nil, refuse(t, "this release does not know that status")
	}
	c := next(t, now)
	requestCancel(c, remark, eff, now)
	if c.Status == model.StatusWait {
		c.Status = model.StatusNew // so that settle may end it
	}
	settle(c, eff, now)
	return c, nil
}

// Abort is [Cancel] for what has made the task, such as a flow, and does not need it any more. It also
// ends a Pending task, about which nobody need decide then.
func Abort(t *model.Task, remark string, eff Effective, now time.Time) (*model.Task, error) {
	if t.Status != model.StatusPending {
		return Cancel(t, remark, eff, now)
	}
	c := next(t, now)
	requestCancel(c, remark, eff, now)
	end(c, model.StatusCancelled, eff, now)
	return c, nil
}

// requestCancel marks the task and ends what has no handler that could end it.
func requestCancel(t *model.Task, remark string, eff Effective, now time.Time) {
	t.CancelRequestedAt = now
	t.Remark = safetext.Clip(remark, input.MaxTextBytes)
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; Open(w) && w.Parked {
			fail(t, w, Failed(failkind.Cancelled, "cancelled"), eff, now, 0)
		}
	}
}

// RetryNow makes a task run again by a person's word. One that waits for its retry, or
// was snoozed, becomes due now, in the same life; one that ended without success begins a new life
// with a fresh budget, and what its successful workers did stays done.
func RetryNow(t *model.Task, remark string, eff Effective, now time.Time) (*model.Task, error) {
	switch {
	case t.Status == model.StatusError || claimable(t.Status) && waits(t, now):
		c := next(t, now)
		c.Remark = safetext.Clip(remark, input.MaxTextBytes)
		runNow(c, now)
		settle(c, eff, now)
		return c, nil
	case t.Status == model.StatusFailure || t.Status == model.StatusPending || t.Status == model.StatusCancelled:
		c := retryLife(t, now)
		c.Remark = safetext.Clip(remark, input.MaxTextBytes)
		settle(c, eff, now)
		return c, nil
	default:
		return nil, refuse(t, "only Error, Failure, Pending, Cancelled and tasks that wait for a retry can be retried")
	}
}

// retryLife is the new life of a task that ended and that a person wants to run again.
func retryLife(t *model.Task, now time.Time) *model.Task {
	c := newLife(t, true, now)
	c.StartTime = now
	if Expired(c, now) { // this person wants it to run all the same
		c.Options.ExpiresAt = time.Time{}
	}
	return c
}

// runNow makes a task due that waits for its start or for a retry. settle must follow.
func runNow(t *model.Task, now time.Time) {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; snoozed(w) {
			w.RetryAt = w.FailTime // it stays one
		} else {
			w.RetryAt = time.Time{}
		}
	}
	if t.StartTime.After(now) {
		t.StartTime = now
	}
	t.WakeAt = now
}

// waits says whether a slot waits for its retry.
func waits(t *model.Task, now time.Time) bool {
	return slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool { return w.RetryAt.After(now) })
}

// Resolve ends a Pending task by a person's word; the remark says what was done.
func Resolve(t *model.Task, remark string, eff Effective, now time.Time) (*model.Task, error) {
	if t.Status != model.StatusPending {
		return nil, refuse(t, "only Pending can be resolved")
	}
	c := next(t, now)
	c.Remark = safetext.Clip(remark, input.MaxTextBytes)
	end(c, model.StatusManuallyProcessed, eff, now)
	return c, nil
}

// Release lets a held task run. Releasing one that is no longer held changes nothing.
func Release(t *model.Task, eff Effective, now time.Time) (*model.Task, error) {
	if t.Status != model.StatusWait {
		if t.Status.Ended() {
			return nil, refuse(t, "only Wait can be released")
		}
		return t, nil
	}
	c := next(t, now)
	c.Status = model.StatusNew
	c.WakeAt = now
	settle(c, eff, now)
	return c, nil
}

// Patch is a change of a task that has not ended. A nil field stays as it is.
type Patch struct {
	Args     *bson.RawValue
	Start    *time.Time // zero = now
	Priority *int
	Creator  *string
	Category *string
	Options  *model.Options // replaces all options
}

// Update changes a task. A running execution goes on with what it was claimed with, and its
// end is judged by that, too: changed options hold from the next claim on. Only a worker that
// the new filter excludes must stop (see [MustStop]). If its execution is parked, it is released
// at once: it has no handler that could end it. typ is what the task's type says, see
// [EffectiveOf].
//
// The limit_key stays while an execution is open: that counts for the key it was claimed by.
func Update(t *model.Task, p Patch, typ model.Options, now time.Time) (*model.Task, error) {
	if t.Status.Ended() || !Known(t.Status) {
		return nil, refuse(t, "only a task that has not ended can be changed")
	}
	if p.Options != nil && p.Options.LimitKey != t.Options.LimitKey && OpenExecutions(t) > 0 {
		return nil, refuse(t, fmt.Sprintf("its limit_key cannot change from %q to %q while an execution is open, because the execution counts for the key of its claim",
			t.Options.LimitKey, p.Options.LimitKey))
	}
	c := next(t, now)
	if p.Args != nil {
		c.Args = *p.Args
		c.UndecodableSince = time.Time{}
	}
	if p.Start != nil {
		c.StartTime = now
		if !p.Start.IsZero() {
			c.StartTime = clock.Millis(*p.Start)
		}
	}
	if p.Priority != nil {
		c.Priority = *p.Priority
	}
	if p.Creator != nil {
		c.Creator = *p.Creator
	}
	if p.Category != nil {
		c.Category = *p.Category
	}
	if p.Options != nil {
		releaseExcluded(c, p.Options, EffectiveOf(c, typ), now)
		changeOptions(c, *p.Options, typ)
		adoptResult(c)
	}
	settle(c, EffectiveOf(c, typ), now)
	c.Audience = audienceNow(c, now)
	if sooner(t, c) || readmits(c, EffectiveFor(t, nil, typ), EffectiveFor(c, nil, typ)) {
		c.WakeAt = now
	}
	return c, nil
}

// readmits says whether a worker may run the task that had reached max_errors_per_worker by the options before.
func readmits(t *model.Task, before, after Effective) bool {
	return !t.DueAt.IsZero() && slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool {
		return exhausted(t, w.WorkerID, before) && !exhausted(t, w.WorkerID, after)
	})
}

// releaseExcluded ends the parked executions of the workers that the filter excludes.
func releaseExcluded(t *model.Task, filter *model.Options, eff Effective, now time.Time) {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; Open(w) && w.Parked && excludes(filter, w.WorkerID) {
			fail(t, w, Failed(failkind.Released, Excluded), eff, now, 0)
		}
	}
}

// adoptResult takes the newest success's own result where the options now want no more
// successes than there are: that execution turns out to have completed the task.
func adoptResult(t *model.Task) {
	if Successes(t) < Wanted(t) {
		return
	}
	var newest model.WorkerState
	for _, w := range t.WorkerStates {
		if w.SuccessTime.After(newest.SuccessTime) {
			newest = w
		}
	}
	t.Result = newest.Returns
}

// sooner says whether somebody may claim c who could not, or only later, claim t.
func sooner(t, c *model.Task) bool {
	if c.DueAt.IsZero() {
		return false
	}
	return t.DueAt.IsZero() || c.DueAt.Before(t.DueAt) || !slices.Equal(t.Audience, c.Audience)
}

// newLife begins a new life of the same key: counters, times and results are gone,
// the generation rises. The rev goes on rising too, so that a guard on {_id, rev} can
// never meet another life. What ended must be copied to the history before.
func newLife(t *model.Task, keepSuccesses bool, now time.Time) *model.Task {
	c := next(t, now)
	c.Generation = laterGeneration(t, now)
	c.Status = model.StatusNew
	c.CreatedAt, c.WakeAt = now, now
	c.FinishedAt, c.ArchiveAt, c.CancelRequestedAt, c.UndecodableSince = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	c.ErrorCount, c.LapseCount, c.Attempt = 0, 0, 0
	c.ErrorInfo, c.Remark = "", ""
	c.Result, c.Checkpoint, c.Steps, c.Progress = bson.RawValue{}, bson.RawValue{}, nil, nil
	// What must still follow the end of the old life goes with it to the history.
	c.Outbox, c.OutboxAt, c.Applied = nil, time.Time{}, nil
	c.WorkerStates = slices.DeleteFunc(c.WorkerStates, func(w model.WorkerState) bool {
		return !keepSuccesses || w.SuccessTime.IsZero()
	})
	for i := range c.WorkerStates {
		w := &c.WorkerStates[i]
		w.Options, w.ErrorsBefore, w.LapsesBefore = nil, 0, 0
	}
	c.Audience = audience(c) // it may have been held back when the old life ended
	return c
}

// laterGeneration is the generation of a life that follows the task's present one.
func laterGeneration(t *model.Task, now time.Time) int64 { return max(now.UnixMilli(), t.Generation+1) }

func refuse(t *model.Task, reason string) error {
	return &model.RefusedError{ID: t.ID, Status: t.Status, Reason: reason}
}
