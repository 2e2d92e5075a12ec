package lifecycle

import (
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Claimant is the worker that wants a task, and the id its new executions get.
type Claimant struct {
	WorkerID string
	ExecID   string
	// Applied is what the type and the handler say to their tasks, below the task's own
	// options; nil = nothing. It is kept in the task, so that whoever ends the execution
	// from outside judges by the same options, and people see what applied.
	Applied *model.Options
	// Only are the tasks that the worker takes; nil = all.
	Only *Conditions
	// From is when the execution is to begin, where that is later than the claim: its type
	// has a rate. It is the claimed_at.
	From time.Time
	// Pulled is set for a worker that no process of ours stands for: package pull fetches for it.
	Pulled bool
}

// Refusal is the reason why a worker may not claim a task now; "" means that it may.
type Refusal string

// The refusals, from the ones that concern the task to those that concern the worker.
const (
	RefusedStatus    Refusal = "its status does not allow it"
	RefusedCancelled Refusal = "it is being cancelled"
	RefusedExpired   Refusal = "it expired before a worker started it"
	RefusedSpent     Refusal = "its error or lapse budget is exhausted"
	RefusedNotDue    Refusal = "it is not due yet"
	RefusedFull      Refusal = "the required number of workers hold it or have succeeded"
	RefusedFilter    Refusal = "only other workers may run it"
	RefusedTwice     Refusal = "this worker holds it or has succeeded"
	RefusedErrors    Refusal = "this worker has reached max_errors_per_worker"
	RefusedOwnRetry  Refusal = "this worker's retry is not due yet"
	RefusedOthers    Refusal = "this worker takes only tasks of other tenants, categories or creators"
)

// Stale says whether a worker that found the task by its derived fields and was
// refused has found a document to repair: the fields promise what no worker gets.
func (r Refusal) Stale() bool {
	switch r {
	case RefusedStatus, RefusedCancelled, RefusedExpired, RefusedSpent, RefusedFull, RefusedFilter:
		return true
	default:
		return false
	}
}

// Claimable decides whether the worker may become an execution of the task now.
// Lapsed executions must have been ended before (see [Expire]): they still count.
func Claimable(t *model.Task, workerID string, eff Effective, now time.Time) Refusal {
	switch {
	case !claimable(t.Status):
		return RefusedStatus
	case !t.CancelRequestedAt.IsZero():
		return RefusedCancelled
	case Expired(t, now):
		return RefusedExpired
	case spent(t, judged(t, eff)):
		return RefusedSpent
	case OpenExecutions(t)+Successes(t) >= Wanted(t):
		return RefusedFull
	case MustStop(t, workerID):
		return RefusedFilter
	case holdsOrDone(t, workerID):
		return RefusedTwice
	case dueAt(t).After(now):
		return RefusedNotDue
	case leavesIt(t, workerID, eff):
		return RefusedErrors
	case RetryOf(t, workerID).After(now):
		return RefusedOwnRetry
	default:
		return ""
	}
}

// MustStop says whether the worker filter excludes the worker: it may not claim the
// task, and must end an execution it has.
func MustStop(t *model.Task, workerID string) bool { return excludes(&t.Options, workerID) }

func excludes(o *model.Options, workerID string) bool {
	return len(o.SpecificWorkerIDs) > 0 && !slices.Contains(o.SpecificWorkerIDs, workerID)
}

// Excluded is the reason of an execution that is released because of [MustStop].
const Excluded = "the worker filter no longer names this worker"

func errorsOf(t *model.Task, workerID string) int {
	n := 0
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; w.WorkerID == workerID {
			n += errorsIn(w)
		}
	}
	return n
}

// leavesIt says whether the worker leaves the task to others. By a changed limit it does so only if it has also
// reached the limit that judges the task until the next claim: else the task waits for a retry of that worker.
func leavesIt(t *model.Task, workerID string, eff Effective) bool {
	return exhausted(t, workerID, eff) && exhausted(t, workerID, judged(t, eff))
}

// exhausted says whether the worker has had as many errors of the task as the options allow it.
func exhausted(t *model.Task, workerID string, eff Effective) bool {
	return eff.MaxErrorsPerWorker > 0 && errorsOf(t, workerID) >= eff.MaxErrorsPerWorker
}

// errorsIn is how many errors of its worker the entry stands for.
func errorsIn(w *model.WorkerState) int {
	if Costs(w.FailKind) {
		return w.ErrorsBefore + 1
	}
	return w.ErrorsBefore
}

// lapsesIn is how many lapses of its worker the entry stands for.
func lapsesIn(w *model.WorkerState) int {
	if w.FailKind == failkind.Lapsed {
		return w.LapsesBefore + 1
	}
	return w.LapsesBefore
}

// RetryOf is when the worker's own last retry is due; zero when it has none. One that
// did not understand the arguments stays away for twice as long as the others, so that
// one that does comes first.
func RetryOf(t *model.Task, workerID string) (last time.Time) {
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if w.WorkerID != workerID {
			continue
		}
		at := w.RetryAt
		if w.FailKind == failkind.Undecodable && !at.IsZero() {
			at = at.Add(at.Sub(w.FailTime))
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// Claim makes the claimant an execution of the task. Everything it sets is the same
// for all fresh tasks with equal options, so that a batch is one update.
func Claim(t *model.Task, by Claimant, eff Effective, now time.Time) (*model.Task, Refusal) {
	if no := Claimable(t, by.WorkerID, eff, now); no != "" {
		return nil, no
	}
	if !ConditionsMet(by.Only, t) {
		return nil, RefusedOthers
	}
	c, begins := next(t, now), clock.Millis(clock.Later(now, by.From))
	c.Attempt = t.ErrorCount + t.LapseCount + 1
	c.Applied = by.Applied
	for i := range c.WorkerStates {
		if w := &c.WorkerStates[i]; !Open(w) {
			w.Options = nil // from now on the task's own hold
		}
	}
	w := model.WorkerState{
		ExecID: by.ExecID, WorkerID: by.WorkerID,
		ClaimedAt: begins, Attempt: c.Attempt, Pulled: by.Pulled,
	}
	if eff.ExecutionTimeout > 0 {
		w.Deadline = clock.Millis(begins.Add(eff.ExecutionTimeout))
	}
	w.PingExpireTime = Lease(&w, eff.Lease, begins)
	w.LocalRetries = takeLocalRetries(c, by.WorkerID)
	if i := evictable(c, by.WorkerID, now); i >= 0 {
		gone := c.WorkerStates[i]
		c.WorkerStates[i] = w
		keepOf(c, &gone)
	} else {
		c.WorkerStates = append(c.WorkerStates, w)
	}
	settle(c, eff, now)
	return c, ""
}

// takeLocalRetries are the local retries of an execution that stopped before its attempt was
// spent: by a lapse, or given back. Its successor goes on counting from there, so that a crash
// does not renew them. They move, so that of several workers one takes them: the worker's own
// first, else the newest.
func takeLocalRetries(t *model.Task, workerID string) int {
	var from *model.WorkerState
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if w.LocalRetries == 0 || !passesOn(w) {
			continue
		}
		own := w.WorkerID == workerID
		if from == nil || own && from.WorkerID != workerID || own == (from.WorkerID == workerID) && !w.FailTime.Before(from.FailTime) {
			from = w
		}
	}
	if from == nil {
		return 0
	}
	n := from.LocalRetries
	from.LocalRetries = 0
	return n
}

// passesOn reports whether the next execution goes on with the attempt of this one.
func passesOn(w *model.WorkerState) bool {
	switch w.FailKind {
	case failkind.Lapsed, failkind.Undecodable:
		return true
	case failkind.Released:
		return !snoozed(w)
	default:
		return false
	}
}

// snoozed reports whether the handler itself ended the execution and said when the task is due again. Each snooze
// has a retry_at, and only handlers that were called snooze.
func snoozed(w *model.WorkerState) bool {
	return w.FailKind == failkind.Released && !w.RetryAt.IsZero() && !w.Unstarted
}

// Lease is the ping_expire_time that a ping sent at now earns: never past the
// deadline, so that one field says when an execution is void.
func Lease(w *model.WorkerState, lease time.Duration, now time.Time) time.Time {
	until := clock.Millis(now.Add(lease))
	if !w.Deadline.IsZero() && until.After(w.Deadline) {
		return w.Deadline
	}
	return until
}

// keepOf keeps in the newest other execution of its worker what an execution that is no longer listed leaves: its errors
// and lapses, which count for max_errors_per_worker and which a send of [model.RestartFailed] resets, and the worker's
// checkpoint.
func keepOf(t *model.Task, gone *model.WorkerState) {
	var heir *model.WorkerState
	newer := false // a checkpoint
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if w.WorkerID != gone.WorkerID {
			continue
		}
		newer = newer || w.Checkpoint.Type != 0 && w.ClaimedAt.After(gone.ClaimedAt)
		if heir == nil || w.ClaimedAt.After(heir.ClaimedAt) {
			heir = w
		}
	}
	if heir == nil {
		return
	}
	heir.ErrorsBefore += errorsIn(gone)
	heir.LapsesBefore += lapsesIn(gone)
	if gone.Checkpoint.Type != 0 && !newer {
		heir.Checkpoint = gone.Checkpoint
	}
}

// lessTelling says which of two bad executions people miss less: one that was given back,
// first of all before it did anything, else the older. So it stays known, too, that somebody
// has begun the task. last are missed most.
func lessTelling(w, than *model.WorkerState, last func(*model.WorkerState) bool) bool {
	rank := func(w *model.WorkerState) int {
		switch {
		case last(w):
			return 3
		case w.Unstarted:
			return 0
		case w.FailKind == failkind.Released:
			return 1
		default:
			return 2
		}
	}
	if a, b := rank(w), rank(than); a != b {
		return a < b
	}
	return w.FailTime.Before(than.FailTime)
}

// evictable is the index of the oldest bad execution once they reach their cap; -1
// before that. One that was given back goes before any that says what went wrong: a task
// that is put off again and again would show nothing else. One that waits for its retry
// stays: it keeps its slot taken and its worker away. With a free slot there are fewer of
// those than wanted workers. One without which errors or lapses of its worker would be
// forgotten goes last; an execution of the claimant is about to be listed.
func evictable(t *model.Task, claimant string, now time.Time) int {
	alone := func(w *model.WorkerState) bool {
		return errorsIn(w)+lapsesIn(w) > 0 && w.WorkerID != claimant &&
			!slices.ContainsFunc(t.WorkerStates, func(o model.WorkerState) bool { return o.WorkerID == w.WorkerID && o.ExecID != w.ExecID })
	}
	bad, oldest := 0, -1
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if w.FailTime.IsZero() {
			continue
		}
		bad++
		if w.RetryAt.After(now) {
			continue
		}
		if oldest < 0 || lessTelling(w, &t.WorkerStates[oldest], alone) {
			oldest = i
		}
	}
	if bad < input.MaxBadStates {
		return -1
	}
	return oldest
}
