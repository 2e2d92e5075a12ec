package lifecycle

import (
	"bytes"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Outcome is how an execution ended, as its worker or an outside completion says.
type Outcome struct {
	Kind   string        // "" = success
	Result bson.RawValue // of a success; the zero value is none
	Reason string        // of a bad end
	// Delay before the next try. nil: for an error the retry strategy's, else none.
	Delay *time.Duration
	// AtLeast is the shortest delay after an error: it applies if the retry strategy's is shorter.
	AtLeast time.Duration
	// CancelTask is set when the handler asks for the task to be cancelled.
	CancelTask bool
	// NoCallback is set by a success that wants nobody told, whatever is configured: the
	// task is Success at once.
	NoCallback bool
	// Unstarted is set by who gives an execution back that did nothing yet: whether the
	// task expires is decided as if it had never been claimed.
	Unstarted bool
}

// Success is the outcome of a handler that returned a result and no error.
func Success(result bson.RawValue) Outcome { return Outcome{Result: result} }

// Failed is a bad end of the given kind.
func Failed(kind string, reason string) Outcome { return Outcome{Kind: kind, Reason: reason} }

// NotStarted is the outcome of an execution that is given back before it did anything.
func NotStarted(reason string) Outcome {
	return Outcome{Kind: failkind.Released, Reason: reason, Unstarted: true}
}

// The delays before the next claim of a task whose claim came too late, see [TooLate].
const (
	firstRest   = time.Second
	longestRest = time.Minute
)

// TooLate is the outcome of an execution whose lease was over before its claim was answered. It costs
// nothing, as [NotStarted]. But the next claim may take as long, so each such end in a row
// doubles the delay before it.
func TooLate(t *model.Task, reason string) Outcome {
	var last *model.WorkerState
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; !Open(w) && (last == nil || !w.FailTime.Before(last.FailTime)) {
			last = w
		}
	}
	rest := firstRest
	if last != nil && last.FailReason == reason && !last.RetryAt.IsZero() {
		rest = min(max(rest, 2*last.RetryAt.Sub(last.FailTime)), longestRest)
	}
	return NotStarted(reason).After(rest)
}

// After sets the delay before the next try.
func (o Outcome) After(d time.Duration) Outcome {
	o.Delay = &d
	return o
}

const (
	// DecodeGrace is the default of how long a task that workers cannot decode waits for another one.
	DecodeGrace = time.Hour
	// DecodeGraceOfSecrets is how long a delivery waits for a worker with the key to its secret.
	DecodeGraceOfSecrets = 3 * 24 * time.Hour
)

// Undecodable is the outcome for a worker that cannot decode the arguments: not the
// task's fault while a rolling deploy may be under way, so it costs nothing and backs
// off; final once it has lasted for the grace.
func Undecodable(t *model.Task, reason string, grace time.Duration, now time.Time) Outcome {
	if !t.UndecodableSince.IsZero() && now.Sub(t.UndecodableSince) >= grace {
		return Failed(failkind.Fatal, "no worker could decode its arguments for "+grace.String()+": "+reason)
	}
	backOff := time.Second
	if !t.UndecodableSince.IsZero() {
		backOff = max(backOff, min(now.Sub(t.UndecodableSince), time.Minute))
	}
	return Failed(failkind.Undecodable, reason).After(backOff)
}

// Finish ends an open execution. It returns [model.ErrFenced] when the execution no longer
// holds the task. A lease that passed without a takeover is no obstacle: the work was
// done and nobody else began it. But a parked execution was promised until a fixed time: what
// comes later is refused by a [*LateError], whether or not somebody has seen yet that the time
// is over. random in [0,1) is for the retry's jitter.
func Finish(t *model.Task, execID string, out Outcome, eff Effective, now time.Time, random float64) (*model.Task, error) {
	i, w := ExecutionOf(t, execID)
	if w == nil || !Open(w) || t.Status.Ended() {
		return nil, model.ErrFenced
	}
	if w.Parked && Lapsed(w, now) {
		return nil, &LateError{Until: w.PingExpireTime}
	}
	if !out.Unstarted {
		now = clock.Later(now, w.ClaimedAt) // the estimate of who claimed it may have lagged less
	}
	out = ofExcluded(t, w, out)
	c := next(t, now)
	w = &c.WorkerStates[i]
	verdict := judged(c, eff)
	if out.Kind == "" && !out.CancelTask {
		succeed(c, w, out, now)
		if w.NoCallback {
			verdict.Callback = nil
		}
	} else {
		fail(c, w, out, judgedBy(c, w, eff), now, random)
	}
	settleBy(c, verdict, now)
	switch {
	case out.Kind == failkind.Released:
		wake(c, now)
	case !c.DueAt.IsZero() && (out.Kind == failkind.Undecodable || leavesIt(c, w.WorkerID, eff)):
		c.WakeAt = now // for another worker, which does understand or may try: it hears when to come
	}
	return c, nil
}

// ofExcluded is how the execution of a worker that pulls ends badly after the filter has excluded
// that worker: a ping has told it to stop. A consumer knows itself why its handler stopped.
func ofExcluded(t *model.Task, w *model.WorkerState, out Outcome) Outcome {
	stopped := w.Pulled && MustStop(t, w.WorkerID) && t.CancelRequestedAt.IsZero()
	if !stopped || out.Kind == "" || out.CancelTask || out.Unstarted {
		return out
	}
	return Failed(failkind.Released, excludedReason(out))
}

func excludedReason(out Outcome) string {
	if out.Reason == "" {
		return Excluded
	}
	return Excluded + ": " + out.Reason
}

func succeed(t *model.Task, w *model.WorkerState, out Outcome, now time.Time) {
	w.SuccessTime = now
	w.Parked = false
	w.NoCallback = w.NoCallback || out.NoCallback
	t.UndecodableSince = time.Time{}
	if Wanted(t) > 1 {
		w.Returns = out.Result
	}
	if Successes(t) >= Wanted(t) {
		t.Result = out.Result
	}
}

func fail(t *model.Task, w *model.WorkerState, out Outcome, eff Effective, now time.Time, random float64) {
	if out.CancelTask && t.CancelRequestedAt.IsZero() {
		w.FailTime = now // so that it is not among those that the request ends
		requestCancel(t, out.Reason, eff, now)
	}
	if !t.CancelRequestedAt.IsZero() {
		out.Kind, out.Delay = failkind.Cancelled, nil
	}
	w.FailTime = now
	w.FailKind = out.Kind
	w.FailReason = safetext.Clip(out.Reason, maxReasonBytes)
	if out.Unstarted && out.Kind == failkind.Released && !w.Parked {
		unstart(t, w)
	}
	w.Parked = w.Parked && out.Kind == failkind.Timeout // a completion that did not come in time
	var delay time.Duration
	switch {
	case out.Kind == failkind.Lapsed:
		t.LapseCount++
		t.ErrorInfo = w.FailReason
	case Costs(out.Kind):
		t.ErrorCount++
		t.ErrorInfo = w.FailReason
		delay = max(RetryDelay(eff.Retry, t.ErrorCount, random), out.AtLeast)
		if out.Kind == failkind.Error || out.Kind == failkind.Panic {
			t.UndecodableSince = time.Time{} // a handler ran, so a worker did decode them
		}
	case out.Kind == failkind.Undecodable && t.UndecodableSince.IsZero():
		t.UndecodableSince = now
		t.ErrorInfo = w.FailReason
	}
	if out.Delay != nil {
		delay = *out.Delay
	}
	snoozes := out.Kind == failkind.Released && out.Delay != nil && !out.Unstarted // see snoozed
	if (delay > 0 || snoozes) && !spent(t, eff) {
		w.RetryAt = clock.Millis(now.Add(delay))
	}
}

// Repeats says whether the execution has ended just as the outcome says: who reports it
// repeats what was reported before.
func Repeats(t *model.Task, w *model.WorkerState, out Outcome) bool {
	switch {
	case Open(w):
		return false
	case out.Kind == "" && !w.SuccessTime.IsZero():
		stored := w.Returns
		if Wanted(t) == 1 {
			stored = t.Result
		}
		return stored.Type == out.Result.Type && bytes.Equal(stored.Value, out.Result.Value)
	case out.Kind != "" && w.Pulled && w.FailKind == failkind.Released && w.FailReason == safetext.Clip(excludedReason(out), maxReasonBytes):
		return true
	case out.Kind == "" || w.FailReason != safetext.Clip(out.Reason, maxReasonBytes):
		return false
	default:
		// Whatever ends badly while the task is being cancelled is cancelled.
		return w.FailKind == out.Kind || w.FailKind == failkind.Cancelled && !t.CancelRequestedAt.IsZero()
	}
}

// unstart marks the execution as one that did nothing. If nobody else began the task, it
// has not been started. What was saved tells of a beginning, whatever its worker says.
func unstart(t *model.Task, w *model.WorkerState) {
	if t.Progress != nil || len(t.Steps) > 0 || t.Checkpoint.Type != 0 || w.Checkpoint.Type != 0 {
		return
	}
	w.Unstarted = true
	if !begunBeside(t, w.ExecID) {
		t.Attempt = 0
	}
}

// ExecutedAt returns when the first known execution of this life of the task began; zero for none.
func ExecutedAt(t *model.Task) (at time.Time) {
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if !w.Unstarted && !w.ClaimedAt.Before(t.CreatedAt) && (at.IsZero() || w.ClaimedAt.Before(at)) {
			at = w.ClaimedAt
		}
	}
	return at
}

// begunBeside says whether the task has been started in this life by another execution than
// that one; one that is open counts, since nobody but its worker knows.
func begunBeside(t *model.Task, execID string) bool {
	return t.ErrorCount+t.LapseCount > 0 || slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool {
		return w.ExecID != execID && !w.Unstarted && !w.ClaimedAt.Before(t.CreatedAt)
	})
}

// ExpiredFor says whether the execution, which has not begun, must not begin any more: the
// time by which somebody had to start the task has passed, and nobody else has.
func ExpiredFor(t *model.Task, execID string, now time.Time) bool {
	at := t.Options.ExpiresAt
	return !at.IsZero() && !at.After(now) && !begunBeside(t, execID)
}

// wake marks a task that is due now, and that nobody is about to claim, for the streams.
func wake(t *model.Task, now time.Time) {
	if !t.DueAt.IsZero() && !t.DueAt.After(now) {
		t.WakeAt = now
	}
}

// Leave is what the finder of a lapsed task writes when it does not take the task
// itself: the result of [Expire], marked so that others hear when it is due. The finder may not be
// one that may run it, and the worker whose execution ended may be gone.
func Leave(expired *model.Task, now time.Time) *model.Task {
	c := *expired
	if !c.DueAt.IsZero() {
		c.WakeAt = now
	}
	return &c
}

// Expire ends every execution whose lease has passed. It returns nil when there is
// none and the derived lapse_at is right, so that a caller has nothing to write, and
// for a status of a later release. An
// execution that ran to its deadline, or waited parked to its end, timed out and
// counts as an error; any other lapsed, which has a budget of its own.
func Expire(t *model.Task, eff Effective, now time.Time, random float64) *model.Task {
	if t.Status.Ended() || !Known(t.Status) {
		return nil
	}
	c := next(t, now)
	ended := 0
	for i := range c.WorkerStates {
		w := &c.WorkerStates[i]
		if !Lapsed(w, now) {
			continue
		}
		ended++
		fail(c, w, lapseOutcome(w), judgedBy(c, w, eff), now, random)
	}
	if ended == 0 && lapseAt(t).Equal(t.LapseAt) {
		return nil
	}
	settle(c, eff, now)
	return c
}

func lapseOutcome(w *model.WorkerState) Outcome {
	at := w.PingExpireTime.UTC().Format(clock.Format)
	switch {
	case w.Parked:
		return Failed(failkind.Timeout, noCompletion(w.PingExpireTime))
	case !w.Deadline.IsZero() && !w.PingExpireTime.Before(w.Deadline):
		return Failed(failkind.Timeout, "worker "+w.WorkerID+" exceeded the deadline "+at)
	default:
		return Failed(failkind.Lapsed, "worker "+w.WorkerID+" sent no ping before "+at)
	}
}

func noCompletion(until time.Time) string {
	return "no completion arrived before " + until.UTC().Format(clock.Format)
}

// Park keeps the execution open for a completion from outside, until the given time.
// ErrFenced when the execution has ended meanwhile: a completion that came first wins. out
// says what the handler wants of a later success, see [Outcome.NoCallback]. Where the task is
// being cancelled, or the filter excludes the worker, the execution ends instead.
func Park(t *model.Task, execID string, until time.Time, out Outcome, eff Effective, now time.Time) (*model.Task, error) {
	i, w := ExecutionOf(t, execID)
	if w == nil || !Open(w) || t.Status.Ended() {
		return nil, model.ErrFenced
	}
	c := next(t, now)
	w = &c.WorkerStates[i]
	switch {
	case !t.CancelRequestedAt.IsZero():
		fail(c, w, Failed(failkind.Cancelled, "cancelled"), eff, now, 0)
	case MustStop(t, w.WorkerID):
		fail(c, w, Failed(failkind.Released, Excluded), eff, now, 0)
	default:
		w.Parked, w.NoCallback = true, out.NoCallback
		w.PingExpireTime = clock.Millis(until)
	}
	settle(c, eff, now)
	if w.FailKind == failkind.Released {
		wake(c, now)
	}
	return c, nil
}
