package stepplan

import (
	"strconv"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// EndOf is the end of a step's task.
func EndOf(t *model.Task) End {
	e := End{Step: t.Origin.Step, Try: t.Origin.Generation, Created: t.Origin.CreatedAt, Status: t.Status, ErrorInfo: t.ErrorInfo, At: t.FinishedAt}
	if began := lifecycle.ExecutedAt(t); !began.IsZero() {
		e.Late = max(began.Sub(t.StartTime), 0)
	}
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; e.Kind == "" || w.FailKind == failkind.PlanError || w.FailKind == failkind.Fatal && e.Kind != failkind.PlanError {
			e.Kind = w.FailKind
		}
	}
	if t.Status.Succeeded() || t.Status == model.StatusManuallyProcessed {
		e.Kind = "" // a person knew better
	}
	if t.Status == model.StatusCancelled && t.Remark != "" {
		e.ErrorInfo = t.Remark
	}
	return e
}

// ResultsOf are the results of the participants of the plan's step, one life of whose task has ended. They
// do not depend on what is decided, and the plan may be at a later step. The task of a step to come has
// none, nor has that of an earlier plan.
func ResultsOf(p *repeat.Plan, t *model.Task) (out []*repeat.Result) {
	if t.Origin == nil || t.Origin.ID != p.ID || t.Origin.Step > p.Step || !t.Status.Ended() || OfEarlier(p, t) {
		return nil
	}
	step, try, at := t.Origin.Step, t.Origin.Generation, p.PlanTime
	if step < p.Step {
		at = t.StartTime // of a step that was started again, the time of that
	}
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		state := stateOf(t, w)
		if lifecycle.Open(w) || state == "" {
			continue
		}
		r := resultOf(p, step, try, at, input.ShownExecID(w.ExecID))
		r.Worker, r.State, r.ErrorInfo, r.At = w.WorkerID, state, w.FailReason, clock.Later(w.SuccessTime, w.FailTime)
		if state == StateOK {
			if r.Result = w.Returns; r.Result.Type == 0 && lifecycle.Wanted(t) == 1 {
				r.Result = t.Result
			}
		}
		out = append(out, r)
	}
	if len(out) == 0 { // nobody took part: it was cancelled, or expired
		r := resultOf(p, step, try, at, "none-"+strconv.FormatInt(try, 10))
		r.State, r.ErrorInfo, r.At = StateCancelled, t.Remark, t.FinishedAt
		if t.Status != model.StatusCancelled {
			r.State, r.ErrorInfo = StateError, t.ErrorInfo
		}
		out = append(out, r)
	}
	return out
}

// stateOf is how an execution of the task ended; "" = it did nothing that counts.
func stateOf(t *model.Task, w *model.WorkerState) string {
	switch {
	case !w.SuccessTime.IsZero():
		return StateOK
	case w.FailKind == failkind.PlanError, w.FailKind == failkind.Fatal && t.Status == model.StatusFailure:
		return StatePlanError
	case w.FailKind == failkind.Cancelled:
		return StateCancelled
	case w.FailKind == failkind.Released, w.FailKind == failkind.Undecodable, w.FailKind == failkind.Cleaned, w.Unstarted:
		return ""
	default:
		return StateError
	}
}

func resultOf(p *repeat.Plan, step, try int64, at time.Time, which string) *repeat.Result {
	return &repeat.Result{
		ID:   p.ID + "/" + strconv.FormatInt(step, 10) + "/" + which,
		Plan: p.ID, PlanID: p.PlanID, Tenant: p.Tenant, RequestID: p.RequestID, Caller: p.Caller, Description: p.Description, Station: p.Station,
		Step: step, Try: try, PlanTime: at,
	}
}

// UnservedResult tells subscribers of a step that no live worker takes its task.
func UnservedResult(p *repeat.Plan, pl *repeat.Planned) *repeat.Result {
	r := resultOf(p, pl.Step, pl.Try, pl.At, "no-worker-"+strconv.FormatInt(pl.Try, 10))
	r.State, r.ErrorInfo, r.At = StateNoWorker, unserved, p.UpdatedAt
	return r
}

// Delivery is the draft of the task that delivers the callback of a plan.
func Delivery(p *repeat.Plan, pl *repeat.Planned) (d lifecycle.Draft, is bool) {
	var status repeat.Status
	switch pl.Do {
	case DoTellError:
		status = repeat.StatusError
	case DoTellFinish:
		status = repeat.StatusFinish
	default:
		return d, false
	}
	id := lifecycle.EntryID(p.ID, p.CreatedAt.UnixMilli(), model.OutboxEntry{Kind: lifecycle.OutcomePlan + "/" + pl.ID})
	return lifecycle.PlanDelivery(p.Tenant, lifecycle.PlanEvent{ID: id, Plan: p.ID, Step: pl.Step, Status: string(status), ErrorInfo: pl.Tell}), true
}
