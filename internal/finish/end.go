package finish

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Execution is the hold that an [End] is of: what is asked of it when the end is written, and
// who hears what became of the end. Of Ended, Parked, Fenced and Left one is called, once.
type Execution interface {
	// TraceID is the trace of the execution; "" = none.
	TraceID() string
	// Interval is how often the execution is pinged.
	Interval() time.Duration
	// Completing reports whether a transaction of the handler's may have ended the execution.
	Completing() bool
	// Leaving reports whether the worker looks for nothing more, so that others must hear when the task is due.
	Leaving() bool
	// Ended says that the end is stored, and what the task is now.
	Ended(after *model.Task)
	// Parked says that the execution stays open for a completion from outside.
	Parked()
	// Fenced says that the execution had lost its task: the outcome is never applied.
	Fenced(out lifecycle.Outcome, why string)
	// Left says that nothing was written and nothing will be: the lease may lapse.
	Left()
	// Delayed says that the end waits for another try. It may be called often.
	Delayed()
}

// End is how one execution ended, or that it wants to be parked.
type End struct {
	Of        Execution
	Claimed   *model.Task // as it was after the claim
	ExecID    string
	Options   *lifecycle.Effective // as they were at the claim
	Out       lifecycle.Outcome
	ParkUntil time.Time // not zero: park instead of ending
	// Urgent: other work waits for the end, for its permits or, in a task of several workers, for
	// their own parts.
	Urgent bool

	task    *model.Task   // as it was read since the claim, to decide on; nil = it was not
	decided store.Write   // the last decision, see Decide
	written *model.Task   // as a try that failed for others of its batch has written it; nil = none has
	late    int           // tries after the first
	looked  bool          // whether a transaction has ended it, see settleCompleted
	refused int           // how often the server refused just this end, see shorten
	doubted time.Duration // monotonic: since when it refuses just this end for a reason unknown here; 0 = it does not
	denied  time.Duration // monotonic: since when the server refuses it whatever it says; 0 = it does not
}

// About says in a log line which execution it is about. traceID is "" without a trace.
func About(l *zerolog.Event, taskID, execID, traceID string) *zerolog.Event {
	l = l.Str("task_id", taskID).Str("exec_id", input.ShownExecID(execID))
	if traceID != "" {
		l = l.Str("trace_id", traceID)
	}
	return l
}

func (e *End) about(l *zerolog.Event) *zerolog.Event {
	return About(l, e.Claimed.ID, e.ExecID, e.Of.TraceID())
}

// newest is the task as it is known.
func (e *End) newest() *model.Task {
	if e.task != nil {
		return e.task
	}
	return e.Claimed
}

// Decide returns the write that ends or parks the execution. Of the same task it is always the
// same: if the answer to it is lost, only its own time and kind show that it was carried out.
func (e *End) Decide(now time.Time) (w store.Write, err error) {
	if w.Before = e.newest(); e.decided.Before == w.Before {
		return e.decided, nil
	}
	if w.After, err = e.decide(w.Before, now); err == nil {
		e.decided = w
	}
	return w, err
}

func (e *End) decide(t *model.Task, now time.Time) (*model.Task, error) {
	opts := e.Options
	if e.task != nil { // of several workers the newest claim counts for the task
		opts = new(lifecycle.EffectiveOf(e.task, model.Options{}))
	}
	if !e.ParkUntil.IsZero() {
		return lifecycle.Park(t, e.ExecID, e.ParkUntil, e.Out, *opts, now)
	}
	after, err := lifecycle.Finish(t, e.ExecID, e.Out, *opts, now, rand.Float64())
	if err == nil && !after.DueAt.IsZero() && e.Of.Leaving() {
		after.WakeAt = now
	}
	return after, err
}

// applied tells the execution that its end is stored. One that wanted to be parked has ended if it met a
// request to cancel the task.
func (e *End) applied(after *model.Task) {
	if _, w := lifecycle.ExecutionOf(after, e.ExecID); !e.ParkUntil.IsZero() && w != nil && lifecycle.Open(w) {
		e.Of.Parked()
	} else {
		e.Of.Ended(after)
	}
}

// Refuse tells the execution that its end could not be decided.
func (w *Ends) Refuse(e *End, err error) {
	switch {
	case !e.ParkUntil.IsZero():
		e.Of.Left() // completed from outside before it could be parked
	case errors.Is(err, model.ErrFenced):
		e.Of.Fenced(e.Out, "another worker took the task over, or it was ended")
	default:
		e.about(w.Log.Error().Err(err)).Msg("could not decide the end of an execution")
		e.Of.Left()
	}
}
