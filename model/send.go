package model

import (
	"errors"
	"slices"
	"time"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"
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
	Origin   *Origin       // what made it and learns of its end; nil = nobody
	Options  Options
	// TypeOptions is what the task's type says to its tasks, as far as the sender knows. It
	// is not stored: workers know it better.
	TypeOptions Options
}

// Typed fills in what the draft leaves to its type; nil = nothing is stored of that.
func (d *Draft) Typed(typ *TaskType) {
	d.Options.ClaimBy, d.TypeOptions = "", Options{}
	if typ == nil {
		return
	}
	if d.Category == "" {
		d.Category = typ.Category
	}
	d.Options.ClaimBy, d.TypeOptions = typ.ClaimBy, typ.Options
}

// Typed is [Draft.Typed] for the task that [NewTask] has made of the draft: it becomes what
// it had been, if the type had been known.
func (t *Task) Typed(typ *TaskType, now time.Time) {
	d := Draft{Category: t.Category, Options: t.Options}
	d.Typed(typ)
	t.Category, t.Options = d.Category, d.Options
	settle(t, t.Effective(d.TypeOptions), now)
	t.Audience = audience(t)
}

var latestTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Validate finds everything that is wrong with the draft; nothing may be written
// before it returned nil.
func (d *Draft) Validate() error {
	errs := []error{ValidName("type", d.Type), ValidKey(d.Key)}
	if d.Tenant != "" {
		errs = append(errs, ValidName("tenant", d.Tenant))
	}
	errs = append(errs, ValidLabel("creator", d.Creator), ValidLabel("category", d.Category), d.Options.Validate(), d.Options.ValidFor(d.Type))
	errs = append(errs, ValidPriority(d.Priority), ValidStart(d.Start), ValidArgs(d.Args))
	return errors.Join(errs...)
}

// ValidArgs checks encoded arguments: a well-formed BSON value of at most
// [MaxArgsBytes]. [EncodeValue] makes such a value; this is for those that came
// another way.
func ValidArgs(v bson.RawValue) error {
	switch {
	case v.Type == 0 && len(v.Value) == 0:
		return nil
	case len(v.Value) > MaxArgsBytes:
		return Invalid("args", "has %d bytes as BSON; at most %d are allowed", len(v.Value), MaxArgsBytes)
	case v.Validate() != nil:
		return Invalid("args", "is not a well-formed BSON value: %v", v.Validate())
	default:
		return nil
	}
}

// ValidPriority checks a priority; nil is the default.
func ValidPriority(p *int) error {
	if p != nil && (*p < 0 || *p > MaxPriority) {
		return Invalid("priority", "is %d; want 0 to %d, %d runs first", *p, MaxPriority, MaxPriority)
	}
	return nil
}

// ValidStart checks a start time; zero means now.
func ValidStart(at time.Time) error {
	if !at.IsZero() && (at.Year() < 1970 || at.After(latestTime)) {
		return Invalid("start_time", "is %v; want a time between 1970 and 9999", at)
	}
	return nil
}

// ValidLabel checks a short text that tasks are filtered by: at most 200 bytes.
func ValidLabel(field, s string) error {
	switch {
	case len(s) > 200:
		return Invalid(field, "has %d bytes; at most 200 are allowed", len(s))
	case !validText(s):
		return Invalid(field, "must be valid UTF-8 without a NUL byte")
	default:
		return nil
	}
}

// ValidLine checks a name that people are shown: text in one line, without what a terminal
// takes for more than that, such as escapes, line breaks and changes of direction.
func ValidLine(field, s string) error {
	for _, r := range s {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return Invalid(field, "is %q; it must not have control characters, such as line breaks", s)
		}
	}
	return nil
}

// NewTask makes the document of a valid draft, in its first life.
func NewTask(d Draft, now time.Time) *Task {
	if d.Tenant == NoTenant {
		d.Tenant = "" // the same id, so the same task
	}
	t := &Task{
		ID: TaskID(d.Tenant, d.Type, d.Key), Type: d.Type, Key: d.Key, Tenant: d.Tenant,
		Rev: 1, Generation: now.UnixMilli(), CreatedAt: now, UpdatedAt: now,
	}
	d.fill(t, now)
	return t
}

// fill sets what a draft says, on a task without executions or with successful ones.
func (d *Draft) fill(t *Task, now time.Time) {
	t.Category, t.Creator, t.Args, t.Options, t.Origin = d.Category, d.Creator, d.Args, d.Options, d.Origin
	t.Options.ExpiresAt = Millis(t.Options.ExpiresAt)
	t.Priority = DefaultPriority
	if d.Priority != nil {
		t.Priority = *d.Priority
	}
	t.StartTime = now
	if !d.Start.IsZero() {
		t.StartTime = Millis(d.Start)
	}
	t.Status = StatusNew
	if d.Held {
		t.Status = StatusWait
	}
	t.adoptResult()
	settle(t, t.Effective(d.TypeOptions), now)
	t.Audience = audience(t)
}

// Existing says what a send does to a key that exists; the zero value leaves it alone.
// The values are flags.
type Existing uint8

// What to do with a key that exists.
const (
	// UpdateArgs gives a task that has not ended the new arguments, start time and
	// options; an execution that runs goes on with the old ones. A send whose options
	// change the limit_key is refused while one is open, see [Update].
	UpdateArgs Existing = 1 << iota
	// UpdateIdle is UpdateArgs, but not while an execution is open.
	UpdateIdle
	// RestartFailed begins a new life when the task ended without success or waits for
	// a retry (seed 004, clean_failed). What successful workers did stays done, unless
	// RestartSucceeded is given, too: then the new life starts from nothing.
	RestartFailed
	// RestartSucceeded begins a new life when the task succeeded (seed 004, clean_success).
	// In a task of several workers that has not ended it takes back the successes so far,
	// in the same life. Those workers must succeed again; open executions go on.
	RestartSucceeded
	// KeepArgs makes a restart run the task with its stored arguments, options, priority,
	// labels and origin. The send only decides when the task starts and whether it is held.
	// KeepArgs needs RestartFailed or RestartSucceeded.
	KeepArgs
)

// SendAgain decides what a draft makes of the task that has its key. It returns t
// itself when nothing changes, and an error, a *[RefusedError], only where [Update] does.
func SendAgain(t *Task, d Draft, policy Existing, now time.Time) (*Task, error) {
	has := func(f Existing) bool { return policy&f != 0 }
	switch t.Status {
	case StatusFailure, StatusPending, StatusCancelled, StatusError:
		if has(RestartFailed) {
			return restart(t, d, policy, now), nil
		}
	case StatusSuccess, StatusCompleted, StatusManuallyProcessed:
		if has(RestartSucceeded) {
			return restart(t, d, policy, now), nil
		}
	}
	if t.Status.Ended() || !t.Status.Known() {
		return t, nil
	}
	cleaned := t
	if has(RestartSucceeded) {
		cleaned = clean(t, t.Effective(d.TypeOptions), now)
	}
	if !has(UpdateArgs) && (!has(UpdateIdle) || t.OpenExecutions() > 0) {
		return cleaned, nil
	}
	patch := Patch{Args: &d.Args, Priority: d.Priority}
	if d.Options.saidBySender() {
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
func (o Options) saidBySender() bool {
	o.ClaimBy = ""
	return !o.IsZero()
}

// restart begins a new life with the values of the draft or, with [KeepArgs], with those of
// the task.
func restart(t *Task, d Draft, policy Existing, now time.Time) *Task {
	c := newLife(t, policy&RestartSucceeded == 0, now)
	if policy&KeepArgs != 0 {
		d = t.again(d)
		if at := d.Options.ExpiresAt; !at.IsZero() && !at.After(now) { // the sender still wants it to run
			d.Options.ExpiresAt = time.Time{}
		}
	}
	d.fill(c, now)
	return c
}

// again returns the draft that sends the task once more with its stored values. The start time
// and the current values of its type are those of d.
func (t *Task) again(d Draft) Draft {
	o := t.Options
	o.ClaimBy = d.Options.ClaimBy // the type's, see [Draft.Typed]
	return Draft{
		Tenant: t.Tenant, Type: t.Type, Key: t.Key, Category: t.Category, Creator: t.Creator, Origin: t.Origin,
		Args: t.Args, Priority: new(t.Priority), Options: o,
		Start: d.Start, Held: d.Held, TypeOptions: d.TypeOptions,
	}
}

// clean takes back the successes of single workers in a task that has not ended, with their
// checkpoints and steps: these workers must succeed again. The entries keep their places, because
// these address open executions. clean returns t itself if there are no successes.
func clean(t *Task, eff Effective, now time.Time) *Task {
	if t.Successes() == 0 {
		return t
	}
	c := t.next(now)
	cleaned := map[string]bool{}
	for i := range c.WorkerStates {
		w := &c.WorkerStates[i]
		if w.SuccessTime.IsZero() {
			continue
		}
		cleaned[w.WorkerID] = true
		w.FailTime, w.FailKind = w.SuccessTime, FailCleaned
		w.FailReason = "its success was taken back at " + now.UTC().Format(TimeFormat) + " by a send"
		w.SuccessTime, w.NoCallback = time.Time{}, false
		w.Returns, w.Checkpoint = bson.RawValue{}, bson.RawValue{}
	}
	c.Result = bson.RawValue{}
	if t.Wanted() > 1 { // else the steps belong to all workers, including the running one
		c.Steps = slices.DeleteFunc(slices.Clone(c.Steps), func(s Step) bool { return cleaned[s.WorkerID] })
	}
	settle(c, eff, now)
	c.Audience = audienceNow(c, now)
	if !c.DueAt.IsZero() { // as due as before, but now also for the workers whose successes are gone
		c.WakeAt = now
	}
	return c
}
