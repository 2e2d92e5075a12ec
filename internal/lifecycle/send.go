package lifecycle

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Draft is what a sender hands over: a task that has not been stored yet.
type Draft struct {
	Tenant   string // "" = none
	Type     string
	Key      string
	Category string
	Creator  string
	Args     bson.RawValue // zero = none
	Start    time.Time     // zero = now
	Priority *int          // nil = 5
	Held     bool          // Wait until it is released
	Origin   *model.Origin // what made it and learns of its end; nil = nobody
	Trace    *model.Trace  // the span that made it; nil = none
	Options  model.Options
	// TypeOptions is what the task's type says to its tasks, as far as the sender knows. It
	// is not stored: workers know it better.
	TypeOptions model.Options
}

// Typed fills in what the draft leaves to its type; nil = nothing is stored of that.
func (d *Draft) Typed(typ *model.TaskType) {
	d.Options.ClaimBy, d.TypeOptions = "", model.Options{}
	if typ == nil {
		return
	}
	if d.Category == "" {
		d.Category = typ.Category
	}
	d.Options.ClaimBy, d.TypeOptions = typ.ClaimBy, typ.Options
}

// TypeTask is [Draft.Typed] for the task that [NewTask] has made of the draft: it becomes what
// it had been, if the type had been known.
func TypeTask(t *model.Task, typ *model.TaskType, now time.Time) {
	d := Draft{Category: t.Category, Options: t.Options}
	d.Typed(typ)
	t.Category, t.Options = d.Category, d.Options
	settle(t, EffectiveOf(t, d.TypeOptions), now)
	t.Audience = audience(t)
}

// Validate finds everything that is wrong with the draft; nothing may be written
// before it returned nil.
func (d *Draft) Validate() error {
	errs := []error{input.Name("type", d.Type), input.Key(d.Key), input.InAddress("type", d.Type), input.InAddress("key", d.Key)}
	if d.Tenant != "" {
		errs = append(errs, input.Name("tenant", d.Tenant), input.InAddress("tenant", d.Tenant))
	}
	errs = append(errs, input.Label("creator", d.Creator), input.Label("category", d.Category), input.Options(&d.Options), input.OptionsFor(&d.Options, d.Type))
	errs = append(errs, input.Priority(d.Priority), input.Start(d.Start), input.Args(d.Args))
	return errors.Join(errs...)
}

// NewTask makes the document of a valid draft, in its first life.
func NewTask(d Draft, now time.Time) *model.Task {
	if d.Tenant == model.NoTenant {
		d.Tenant = "" // the same id, so the same task
	}
	t := &model.Task{
		ID: model.TaskID(d.Tenant, d.Type, d.Key), Type: d.Type, Key: d.Key, Tenant: d.Tenant,
		Rev: 1, Generation: now.UnixMilli(), CreatedAt: now, UpdatedAt: now,
	}
	d.fill(t, now)
	return t
}

// fill sets what a draft says, on a task without executions or with successful ones.
func (d *Draft) fill(t *model.Task, now time.Time) {
	t.Category, t.Creator, t.Args, t.Options, t.Origin, t.Trace = d.Category, d.Creator, d.Args, d.Options, d.Origin, d.Trace
	t.Options.ExpiresAt = clock.Millis(t.Options.ExpiresAt)
	t.Priority = DefaultPriority
	if d.Priority != nil {
		t.Priority = *d.Priority
	}
	t.StartTime = now
	if !d.Start.IsZero() {
		t.StartTime = clock.Millis(d.Start)
	}
	t.Status = model.StatusNew
	if d.Held {
		t.Status = model.StatusWait
	}
	adoptResult(t)
	settle(t, EffectiveOf(t, d.TypeOptions), now)
	t.Audience = audience(t)
}

// SendAgain decides what a draft makes of the task that has its key. It returns t
// itself when nothing changes, and an error, a *[model.RefusedError], only where [Update] does.
func SendAgain(t *model.Task, d Draft, policy model.Existing, now time.Time) (*model.Task, error) {
	has := func(f model.Existing) bool { return policy&f != 0 }
	switch t.Status {
	case model.StatusFailure, model.StatusPending, model.StatusCancelled, model.StatusError:
		if has(model.RestartFailed) {
			return restart(t, d, policy, now), nil
		}
	case model.StatusSuccess, model.StatusCompleted, model.StatusManuallyProcessed:
		if has(model.RestartSucceeded) {
			return restart(t, d, policy, now), nil
		}
	}
	if t.Status.Ended() || !Known(t.Status) {
		return t, nil
	}
	cleaned := t
	if has(model.RestartFailed | model.RestartSucceeded) {
		cleaned = clean(t, policy, EffectiveOf(t, d.TypeOptions), now)
	}
	if !has(model.UpdateArgs) && (!has(model.UpdateIdle) || OpenExecutions(t) > 0) {
		return cleaned, nil
	}
	patch := Patch{Args: &d.Args, Priority: d.Priority}
	if saidBySender(d.Options) {
		patch.Options = &d.Options
	}
	if !d.Start.IsZero() {
		patch.Start = &d.Start
	}
	updated, err := Update(cleaned, patch, d.TypeOptions, now)
	if err != nil {
		return nil, err
	}
	updated.Rev = t.Rev + 1 // one write, one rev
	return updated, nil
}

// saidBySender says whether the sender set anything: ClaimBy is filled in from the type.
func saidBySender(o model.Options) bool {
	o.ClaimBy = ""
	return !o.IsZero()
}

// restart begins a new life with the values of the draft or, with [model.KeepArgs], with those of
// the task.
func restart(t *model.Task, d Draft, policy model.Existing, now time.Time) *model.Task {
	c := newLife(t, policy&model.RestartSucceeded == 0, now)
	if policy&model.KeepArgs != 0 {
		d = draftAgain(t, d)
		if at := d.Options.ExpiresAt; !at.IsZero() && !at.After(now) { // the sender still wants it to run
			d.Options.ExpiresAt = time.Time{}
		}
	}
	d.fill(c, now)
	return c
}

// draftAgain returns the draft that sends the task once more with its stored values. The start time
// and the current values of its type are those of d.
func draftAgain(t *model.Task, d Draft) Draft {
	o := t.Options
	o.ClaimBy = d.Options.ClaimBy // the type's, see [Draft.Typed]
	return Draft{
		Tenant: t.Tenant, Type: t.Type, Key: t.Key, Category: t.Category, Creator: t.Creator, Origin: t.Origin, Trace: cmp.Or(d.Trace, t.Trace),
		Args: t.Args, Priority: new(t.Priority), Options: o,
		Start: d.Start, Held: d.Held, TypeOptions: d.TypeOptions,
	}
}

// clean resets, by the policy, the successes of single workers or the failures of those that do not run the task now, in
// a task that has not ended. These workers begin anew, without their checkpoints and steps. The entries keep their
// places, because these address open executions. clean returns t itself if there is nothing to reset.
func clean(t *model.Task, policy model.Existing, eff Effective, now time.Time) *model.Task {
	c := next(t, now)
	cleaned := map[string]bool{}
	if policy&model.RestartSucceeded != 0 {
		cleanSuccesses(c, cleaned)
	}
	if policy&model.RestartFailed != 0 {
		cleanFailures(c, cleaned)
	}
	if len(cleaned) == 0 {
		return t
	}
	for i := range c.WorkerStates {
		if w := &c.WorkerStates[i]; cleaned[w.WorkerID] { // also one that was no failure, such as a snooze
			w.RetryAt, w.Checkpoint, w.LocalRetries = time.Time{}, bson.RawValue{}, 0
		}
	}
	if Wanted(t) > 1 { // else the steps belong to all workers, including the running one
		c.Steps = slices.DeleteFunc(slices.Clone(c.Steps), func(s model.Step) bool { return cleaned[s.WorkerID] })
	}
	settle(c, eff, now)
	c.Audience = audienceNow(c, now)
	if !c.DueAt.IsZero() { // perhaps as due as before, but now also for the workers that begin anew
		c.WakeAt = now
	}
	return c
}

// cleanSuccesses resets all successes, and adds their workers to cleaned.
func cleanSuccesses(t *model.Task, cleaned map[string]bool) {
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if w.SuccessTime.IsZero() {
			continue
		}
		cleaned[w.WorkerID] = true
		w.FailTime, w.SuccessTime = w.SuccessTime, time.Time{}
		w.NoCallback, w.Returns = false, bson.RawValue{}
		cleanState(w, "success", t.UpdatedAt)
	}
	t.Result = bson.RawValue{}
}

// cleanFailures resets the errors and lapses of workers that neither hold the task nor have done it, and adds these to
// cleaned. Errors and lapses of the others go on counting.
func cleanFailures(t *model.Task, cleaned map[string]bool) {
	some := false
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if errorsIn(w)+lapsesIn(w) == 0 || holdsOrDone(t, w.WorkerID) {
			continue
		}
		some, cleaned[w.WorkerID] = true, true
		w.ErrorsBefore, w.LapsesBefore = 0, 0
		if counts(w) {
			cleanState(w, "failure", t.UpdatedAt)
		}
	}
	if some {
		recount(t)
	}
}

// recount makes the counters and the last error those of the executions that count. The text of the first worker that
// could not decode the arguments stays as long as undecodable_since does.
func recount(t *model.Task) {
	t.ErrorCount, t.LapseCount = 0, 0
	var last time.Time
	info := ""
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		t.ErrorCount += errorsIn(w)
		t.LapseCount += lapsesIn(w)
		told := counts(w) || w.FailKind == failkind.Undecodable && w.FailTime.Equal(t.UndecodableSince)
		if told && !w.FailTime.Before(last) {
			info, last = w.FailReason, w.FailTime
		}
	}
	if info != "" || t.ErrorCount+t.LapseCount == 0 { // else none that counts is listed any more
		t.ErrorInfo = info
	}
}

// counts says whether the execution is an error or a lapse.
func counts(w *model.WorkerState) bool { return Costs(w.FailKind) || w.FailKind == failkind.Lapsed }

// cleanState makes an ended execution one that counts for nothing. what it was stays known.
func cleanState(w *model.WorkerState, what string, now time.Time) {
	reason := "its " + what + " was reset at " + now.UTC().Format(clock.Format) + " by a send"
	if w.FailReason != "" {
		reason += ": " + w.FailReason
	}
	w.FailKind, w.FailReason = failkind.Cleaned, safetext.Clip(reason, maxReasonBytes)
	w.Parked = false
}
