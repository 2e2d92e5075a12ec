package stepplan

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// EngineType is the type under which engines of plans are listed among the workers.
const EngineType = "mscheduler.plan"

// The states of steps, see State of [repeat.Result].
const (
	StateOK        = "OK"
	StateError     = "ERROR"
	StateCancelled = "CANCELLED"
	StatePlanError = "PLAN_ERROR"
	StateNoWorker  = "NO_WORKER"
)

// What is to be done about a plan.
const (
	DoSend       repeat.Action = "send"        // the task of the step is sent, unless it exists
	DoAgain      repeat.Action = "again"       // the step starts again, at a time
	DoCancel     repeat.Action = "cancel"      // the task of the step is cancelled
	DoUnserved   repeat.Action = "unserved"    // a result says that nobody serves the station
	DoTellError  repeat.Action = "tell_error"  // the callback of a plan that is ERROR is sent
	DoTellFinish repeat.Action = "tell_finish" // the callback of a plan that is FINISH is sent
	DoLeave      repeat.Action = "leave"       // the plan moves to the history
)

// End is how a task of a step ended.
type End struct {
	Step, Try int64
	Created   time.Time // when its plan was created; zero = nobody knows
	Status    model.Status
	Kind      string // of an execution that failed, if any did: one after which no retry helps counts more
	ErrorInfo string
	At        time.Time
	Late      time.Duration // how much later than it was to its first execution began
	Gone      bool          // somebody deleted the task: nobody knows how it ended
}

// Begin decides the first step of a new plan.
func Begin(p *repeat.Plan, now time.Time) (*repeat.Plan, error) {
	after := *p
	after.Planned, after.Rev = nil, 1
	s := &step{Plan: &after, now: clock.Millis(now)}
	if err := s.next(s.now); err != nil {
		return nil, err
	}
	return s.finish(), nil
}

// Ended decides what follows the end of a step's task. The end of another step, of an earlier try or of
// an earlier plan with that id changes nothing: the plan is returned as it is.
func Ended(p *repeat.Plan, e End, now time.Time) *repeat.Plan {
	if e.Step != p.Step || e.Try != p.Try || isEarlier(p, e.Created) || p.Done || p.Status == repeat.StatusFinish || p.Status == repeat.StatusCancelled && !p.EndedAt.IsZero() {
		return p
	}
	s := begin(p, now)
	succeeded := e.Status.Succeeded() || e.Status == model.StatusManuallyProcessed
	if e.Status == model.StatusPending {
		e.ErrorInfo = "the task of the step is Pending: " + e.ErrorInfo
		if p.Reason == e.ErrorInfo {
			return p // that is known
		}
	}
	if !e.Gone {
		s.ExecTime = e.At
	}
	switch {
	case p.Status == repeat.StatusCancelled:
		s.lastOfCancelled(e, succeeded)
	case p.Status == repeat.StatusError && !succeeded: // a person had its task run again, in vain
		if e.Gone {
			return p
		}
	case e.Gone:
		s.again(s.now, "its task was deleted")
	case e.Kind == failkind.PlanError, e.Kind == failkind.Fatal && e.Status == model.StatusFailure:
		s.fails(e.ErrorInfo)
	case succeeded:
		s.RealRepet++
		s.goOn(s.asOf(e), StateOK, "")
	case e.Status == model.StatusCancelled:
		s.goOn(s.asOf(e), StateCancelled, e.ErrorInfo)
	case e.Status == model.StatusPending: // it ends when a person resolves it
		s.LastState, s.Reason, s.LookAt = StateError, e.ErrorInfo, time.Time{}
	default:
		s.LastState = StateError
		s.again(s.now.Add(pause(p.Try)), e.ErrorInfo)
	}
	return s.finish()
}

// Told reports whether the plan is ERROR, and knows how the task of its step and try has ended.
func Told(p *repeat.Plan, t *model.Task) bool {
	return p.Status == repeat.StatusError && t.Status.Ended() && p.ExecTime.Equal(t.FinishedAt)
}

// Over says whether a plan of that status is over.
func Over(s repeat.Status) bool { return s == repeat.StatusFinish || s == repeat.StatusCancelled }

// Reset has a plan that is ERROR go on with the step that failed. Any other plan refuses.
func Reset(p *repeat.Plan, now time.Time) (*repeat.Plan, error) {
	if p.Status != repeat.StatusError {
		return nil, &model.RefusedError{ID: p.ID, Reason: fmt.Sprintf("it is %s; only a plan that is ERROR can be reset", p.Status)}
	}
	if err := Check(p); err != nil {
		return nil, &model.RefusedError{ID: p.ID, Reason: fmt.Sprintf("its document is broken: %v", err)}
	}
	s := begin(p, now)
	s.Status, s.Reason, s.LastState = repeat.StatusRunning, "", ""
	if s.Step == 0 || s.Done {
		if err := s.next(s.now); err != nil {
			return nil, err
		}
	} else {
		s.again(clock.Later(s.now, s.PlanTime), "")
	}
	return s.finish(), nil
}

// Cancel ends a plan. open says that the task of its step waits or runs, or that its end was not told:
// it is cancelled, and the plan is over when it has ended. A plan that is over is returned as it is.
func Cancel(p *repeat.Plan, remark string, open bool, now time.Time) *repeat.Plan {
	if Over(p.Status) {
		return p
	}
	s := begin(p, now)
	s.Status, s.Reason, s.LookAt = repeat.StatusCancelled, remark, time.Time{}
	if open {
		s.plan(repeat.Planned{Do: DoCancel, Tell: remark})
	} else { // nothing of it runs
		s.leave()
	}
	return s.finish()
}

// unserved says why a step that is due waits.
const unserved = "no live worker takes the task of this step"

// Unserved notes that a step is due, and that no live worker takes its task.
func Unserved(p *repeat.Plan, now time.Time) *repeat.Plan {
	if p.Status != repeat.StatusRunning || p.LastState == StateNoWorker {
		return p
	}
	s := begin(p, now)
	s.LookAt = time.Time{}
	s.LastState, s.Reason = StateNoWorker, unserved
	s.plan(repeat.Planned{Do: DoUnserved, At: s.PlanTime})
	return s.finish()
}

// Broken notes that a plan cannot go on, and why. A person resets it.
func Broken(p *repeat.Plan, why string, now time.Time) *repeat.Plan {
	if p.Status != repeat.StatusRunning {
		return p
	}
	s := begin(p, now)
	s.fails(why)
	return s.finish()
}

// Checked notes that the document of a plan is broken, if it is.
func Checked(p *repeat.Plan, now time.Time) *repeat.Plan {
	if err := Check(p); err != nil {
		return Broken(p, "the document of the plan is broken: "+err.Error(), now)
	}
	return p
}

const (
	firstPause, lastPause = time.Second, 5 * time.Minute
	// lookAhead is how long before the next step is due engines begin to look for the end of this one.
	lookAhead = 500 * time.Millisecond
)

// pause is how long a step that has failed waits for its next try.
func pause(try int64) time.Duration {
	if try >= 9 { // 2^9 s are more than five minutes
		return lastPause
	}
	return min(firstPause<<try, lastPause)
}

// step is one decision about a plan.
type step struct {
	*repeat.Plan
	now    time.Time
	serial int
}

func begin(p *repeat.Plan, now time.Time) *step {
	after := *p
	after.Planned = append([]repeat.Planned(nil), p.Planned...)
	after.Rev++
	return &step{Plan: &after, now: clock.Millis(now)}
}

// plan has something done about the step, by one decision each thing once.
func (s *step) plan(p repeat.Planned) {
	s.serial++
	p.ID, p.Step, p.Try = strconv.FormatInt(s.Rev, 10)+"."+strconv.Itoa(s.serial), s.Step, s.Try
	if s.Planned = append(s.Planned, p); s.PlannedAt.IsZero() || s.PlannedAt.After(s.now) {
		s.PlannedAt = s.now
	}
}

func (s *step) finish() *repeat.Plan {
	s.UpdatedAt = s.now
	return s.Plan
}

// inTime is how much later than its time a step may be decided upon and still count as in time, as a tick may.
const inTime = 10 * time.Second

// asOf is when the step would have ended if it had begun in time: what passed while it waited for a worker, and its
// end for an engine, is not lost to the plan. If that is too long ago, it is now.
func (s *step) asOf(e End) time.Time {
	at := clock.Later(e.At.Add(-e.Late), s.PlanTime.Add(time.Millisecond))
	if ago := s.now.Sub(at); ago < 0 || ago > inTime {
		return s.now
	}
	return at
}

// goOn plans the next step, as of a time, after one that has ended.
func (s *step) goOn(asOf time.Time, state string, reason string) {
	s.Status, s.LastState, s.Reason, s.Done = repeat.StatusRunning, state, reason, true
	if err := Check(s.Plan); err != nil {
		s.fails("the document of the plan is broken: " + err.Error())
		return
	}
	if err := s.next(asOf); err != nil {
		s.fails(err.Error())
	}
}

// next plans the next step as of a time, or ends the plan.
func (s *step) next(asOf time.Time) error {
	n, err := NextPlanTime(s.Plan, asOf)
	if err != nil {
		return err
	}
	s.Skipped += n.Skipped
	if n.Over {
		s.Status, s.LookAt = repeat.StatusFinish, time.Time{}
		if s.Reason == "" {
			s.Reason = n.Why
		}
		s.leave()
		return nil
	}
	s.Step, s.Try, s.PlanTime, s.Done = n.Step, 0, n.At, false
	s.plan(repeat.Planned{Do: DoSend, At: n.At})
	s.look(n.At)
	return nil
}

// look sets from when on engines look for the end of the step: shortly before the next one is due. Of a
// last step nobody waits for the end.
func (s *step) look(starts time.Time) {
	s.LookAt = time.Time{}
	if n, err := NextPlanTime(s.Plan, s.PlanTime); err == nil && !n.Over {
		s.LookAt = clock.Later(n.At.Add(-lookAhead), starts)
	}
}

// again starts the step once more.
func (s *step) again(at time.Time, why string) {
	if err := Check(s.Plan); err != nil {
		s.fails("the document of the plan is broken: " + err.Error())
		return
	}
	s.Reason = why
	s.Try++
	s.plan(repeat.Planned{Do: DoAgain, At: at})
	s.look(at)
}

// fails takes the plan out of the queue, until a person resets it.
func (s *step) fails(why string) {
	s.Status, s.LastState, s.Reason, s.LookAt = repeat.StatusError, StatePlanError, why, time.Time{}
	if s.Callback != nil && s.Callback.Error != nil {
		s.plan(repeat.Planned{Do: DoTellError, Tell: why})
	}
}

// lastOfCancelled notes how the step ended during which the plan was cancelled. The plan is over then.
func (s *step) lastOfCancelled(e End, succeeded bool) {
	switch {
	case e.Gone:
	case succeeded: // it was too late to cancel it
		s.RealRepet++
		s.LastState = StateOK
	case e.Status == model.StatusCancelled:
		s.LastState = StateCancelled
	default:
		s.LastState = StateError
	}
	s.leave()
}

// leave moves a plan that is over to the history.
func (s *step) leave() {
	s.EndedAt, s.LookAt = s.now, time.Time{}
	if s.Status == repeat.StatusFinish && s.Callback != nil && s.Callback.Success != nil {
		s.plan(repeat.Planned{Do: DoTellFinish, Tell: s.Reason})
	}
	s.plan(repeat.Planned{Do: DoLeave})
}

// TaskKey is the key of the task of a step.
func TaskKey(planID string, step int64) string { return planID + "@" + strconv.FormatInt(step, 10) }

// TaskID is the id of the task of the plan's step.
func TaskID(p *repeat.Plan, step int64) string {
	return model.TaskID(p.Tenant, p.Station, TaskKey(p.PlanID, step))
}

// Draft is that of the task of the plan's step, as it is planned.
func Draft(p *repeat.Plan, pl *repeat.Planned) lifecycle.Draft {
	d := lifecycle.Draft{
		Tenant: p.Tenant, Type: p.Station, Key: TaskKey(p.PlanID, p.Step), Creator: p.Caller, Args: argsOf(p), Start: pl.At, Priority: p.Priority, Options: p.Options,
		Origin: &model.Origin{Kind: lifecycle.OutcomePlan, ID: p.ID, Step: p.Step, Generation: p.Try, CreatedAt: p.CreatedAt}, Trace: cmp.Or(pl.Trace, p.Trace),
	}
	if p.PlanExecTimeout > 0 {
		d.Options.WorkerTimeout = p.PlanExecTimeout
	}
	return d
}

// OfEarlier reports whether an earlier plan with the id of this one sent the task, which was kept for longer than that
// plan. It is no task of this one.
func OfEarlier(p *repeat.Plan, t *model.Task) bool {
	o := t.Origin
	return o != nil && o.Kind == lifecycle.OutcomePlan && o.ID == p.ID && isEarlier(p, o.CreatedAt)
}

// isEarlier reports whether it was another plan with that id that was created then.
func isEarlier(p *repeat.Plan, created time.Time) bool {
	return !created.IsZero() && !created.Equal(p.CreatedAt)
}

// Stands reports whether what is planned is about the step and the try that the plan is at. Otherwise a
// later decision, which knows how that ended, has taken its place.
func Stands(p *repeat.Plan, pl *repeat.Planned) bool {
	return pl.Step == p.Step && pl.Try == p.Try && !p.Done && p.Status != repeat.StatusError && p.EndedAt.IsZero()
}

// argsOf are the arguments of the task of the plan's step, a [repeat.Args].
func argsOf(p *repeat.Plan) bson.RawValue {
	doc := bson.D{
		{Key: "plan_id", Value: p.PlanID}, {Key: "plan_time", Value: p.PlanTime}, {Key: "step", Value: p.Step},
		{Key: "plan_type", Value: string(p.PlanType)}, {Key: "plan_value", Value: p.PlanValue}, {Key: "plan_repet", Value: p.PlanRepet}, {Key: "real_repet", Value: p.RealRepet},
	}
	for _, f := range [][2]string{{"last_state", p.LastState}, {"request_id", p.RequestID}, {"caller", p.Caller}, {"description", p.Description}} {
		if f[1] != "" {
			doc = append(doc, bson.E{Key: f[0], Value: f[1]})
		}
	}
	raw, err := bson.Marshal(append(doc, bson.E{Key: "messages", Value: p.Messages}))
	if err != nil {
		panic(err) // texts, numbers and a value that is BSON already
	}
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}
}
