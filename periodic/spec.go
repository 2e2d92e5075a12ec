package periodic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Spec is the definition of a rule. Its JSON and YAML names are those of the fields in snake case;
// durations are text such as "90s". The secrets of Options.Callback and HTTP are sealed with the
// Config's SecretKey before anything is written.
type Spec struct {
	Name        string // unique among the living rules of the tenant; at most 200 bytes in one line
	Tenant      string // "" = none
	Creator     string
	Category    string
	Description string
	// Ext is any JSON value of the caller's own. Handlers read it with consumer.Execution.Ext, HTTP
	// targets with {{ext}}.
	Ext any

	// Cron has 6 fields (5 get second 0), or is @daily and the like, or @every 90s. Given both
	// day of month and day of week, either will do; where one begins with *, both must match.
	Cron     string
	Timezone string // of the time zone database; "" = UTC
	DST      schedule.DST
	StartAt  time.Time // no tick before; zero = from now on
	EndAt    time.Time // no tick at or after; zero = without end
	MaxRuns  int64     // 0 = without end
	Jitter   time.Duration

	Type     string               // of the task that each tick sends
	Args     any                  // any JSON value
	HTTP     *schedule.HTTPTarget // what each tick calls, instead of Type and Args
	Priority *int                 // nil = 5
	Options  model.Options

	Overlap   schedule.OverlapPolicy // "" = ALLOW
	OnFailure schedule.FailurePolicy // "" = RUN_NEW
	// MaxConcurrency is how many runs go on at once; 0 = as many as one rule holds, 1000:
	// beyond that a run is skipped (capacity), whatever the policies say, forced ones too.
	MaxConcurrency int
	Concurrency    schedule.ConcurrencyPolicy // "" = QUEUE
	QueueLimit     int                        // 0 = 100, at most 1000
	CatchUp        schedule.CatchUp
	Log            schedule.RunLog // "" = a record of every tick
	RunRetention   time.Duration   // of the records; 0 = 90 days
}

// Bounds of a rule.
const (
	maxName       = 200
	maxQueueLimit = 1000
	maxArgsBytes  = 64 << 10 // a rule's document carries them, and those of the ticks just decided
)

// rule checks the spec and makes the document of a rule that was never enabled. The error
// joins everything that is wrong, each naming its field.
func (s *Spec) rule(now time.Time) (*schedule.Rule, *calendar.Schedule, error) {
	r := &schedule.Rule{
		Name: s.Name, Tenant: s.Tenant, Creator: s.Creator, Category: s.Category, Description: s.Description,
		Timezone: s.Timezone, StartAt: clock.Millis(s.StartAt), EndAt: clock.Millis(s.EndAt), MaxRuns: s.MaxRuns, Jitter: s.Jitter,
		Task:    &schedule.TaskTemplate{Type: s.Type, Priority: s.Priority, Options: s.Options},
		Overlap: cmp.Or(s.Overlap, schedule.OverlapAllow), OnFailure: cmp.Or(s.OnFailure, schedule.FailureRunNew),
		MaxConcurrency: s.MaxConcurrency, Concurrency: cmp.Or(s.Concurrency, schedule.ConcurrencyQueue), QueueLimit: s.QueueLimit,
		CatchUp: s.CatchUp, Log: s.Log, RunRetention: s.RunRetention,
		Status: schedule.StatusNew, Version: 1, Rev: 1, CreatedAt: now, UpdatedAt: now, DecidedTo: now,
	}
	if r.Tenant == model.NoTenant {
		r.Tenant = ""
	}
	if s.DST != (schedule.DST{}) {
		r.DST = &s.DST
	}
	r.Living = schedule.RuleName(r.Tenant, r.Name)
	errs := s.check()
	args, err := s.target(r.Task)
	if err != nil {
		errs = append(errs, err)
	}
	if r.Ext, err = codec.EncodeValue("ext", s.Ext, maxArgsBytes); err != nil {
		errs = append(errs, err)
	}
	if r.Task.Args, err = codec.EncodeValue("args", args, maxArgsBytes); err != nil {
		errs = append(errs, err)
	}
	cal, err := calendar.Parse(calendar.Spec{
		Cron: s.Cron, Timezone: s.Timezone, Gap: calendar.Gap(s.DST.Gap), Fold: calendar.Fold(s.DST.Fold), Start: cmp.Or(r.StartAt, now),
	})
	if err != nil {
		errs = append(errs, fieldErrors(err)...)
	} else {
		r.Cron = cal.String()
		if input.Start(s.StartAt) != nil || input.Start(s.EndAt) != nil {
			return nil, nil, errors.Join(errs...) // what is wrong is said; nothing is to be said of the ticks
		}
		if first := cal.Next(clock.Later(now, tickplan.BeforeStart(r.StartAt))); first.IsZero() || !r.EndAt.IsZero() && !first.Before(r.EndAt) {
			errs = append(errs, neverFires(r.EndAt))
		}
	}
	return r, cal, errors.Join(errs...)
}

func neverFires(end time.Time) error {
	if end.IsZero() {
		return input.Invalid("cron", "never fires before the year 10000")
	}
	return input.Invalid("cron", "never fires before end_at")
}

// fieldErrors makes the calendar's errors those of every other field.
func fieldErrors(err error) (out []error) {
	var f *calendar.FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, fieldErrors(e)...)
		}
		return out
	}
	if errors.As(err, &f) {
		return []error{input.Invalid(f.Field, "%v", f.Err)}
	}
	return []error{err}
}

// check finds what is wrong but for times and values.
func (s *Spec) check() (errs []error) {
	bad := func(field, format string, args ...any) { errs = append(errs, input.Invalid(field, format, args...)) }
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if s.Name == "" || len(s.Name) > maxName {
		bad("name", "has %d bytes; want 1 to %d", len(s.Name), maxName)
	}
	for field, v := range map[string]string{"name": s.Name, "creator": s.Creator, "category": s.Category} {
		add(input.Label(field, v))
	}
	add(input.Line("name", s.Name))
	if len(s.Description) > 4<<10 {
		bad("description", "has %d bytes; at most %d are allowed", len(s.Description), 4<<10)
	}
	if s.Tenant != "" {
		add(input.Name("tenant", s.Tenant))
	}
	if s.HTTP == nil {
		add(input.Name("type", s.Type))
	}
	add(input.Priority(s.Priority))
	add(input.Options(&s.Options))
	if !s.Options.ExpiresAt.IsZero() {
		bad("expires_at", "is %v, one time for all ticks: those after it would be cancelled; say end_at for the rule's end", s.Options.ExpiresAt)
	}
	add(input.OptionsFor(&s.Options, s.Type))
	oneOf(bad, "overlap", s.Overlap, "", schedule.OverlapAllow, schedule.OverlapSkip, schedule.OverlapCancelPrev, schedule.OverlapParallel)
	oneOf(bad, "on_failure", s.OnFailure, "", schedule.FailureRunNew, schedule.FailureSkip, schedule.FailureRetry)
	oneOf(bad, "concurrency", s.Concurrency, "", schedule.ConcurrencyQueue, schedule.ConcurrencySkip, schedule.ConcurrencyParallel)
	oneOf(bad, "catch_up.mode", s.CatchUp.Mode, "", schedule.CatchUpNone, schedule.CatchUpCompact, schedule.CatchUpFull)
	oneOf(bad, "log", s.Log, "", schedule.LogNone, schedule.LogTrigger, schedule.LogTrans)
	for field, n := range map[string][2]int64{
		"max_runs": {s.MaxRuns, 1 << 40}, "max_concurrency": {int64(s.MaxConcurrency), tickplan.MaxActive},
		"queue_limit": {int64(s.QueueLimit), maxQueueLimit}, "catch_up.cap": {int64(s.CatchUp.Cap), tickplan.MaxCap},
	} {
		if n[0] < 0 || n[0] > n[1] {
			bad(field, "is %d; want 0 to %d", n[0], n[1])
		}
	}
	for field, d := range map[string]time.Duration{"jitter": s.Jitter, "catch_up.window": s.CatchUp.Window, "run_retention": s.RunRetention} {
		if d < 0 || d > input.MaxDuration {
			bad(field, "is %v; want 0 to ten years", d)
		} else if d > 0 && d < time.Millisecond { // it would be stored as 0, which says something else
			bad(field, "is %v; the unit of the database is a millisecond", d)
		}
	}
	for _, t := range []struct {
		field string
		at    time.Time
	}{{"start_at", s.StartAt}, {"end_at", s.EndAt}} {
		var wrong *model.InvalidError
		if errors.As(input.Start(t.at), &wrong) { // which calls it start_time
			bad(t.field, "%s", wrong.Reason)
		}
	}
	if !s.EndAt.IsZero() && !s.EndAt.After(s.StartAt) {
		bad("end_at", "is %v, which is not after start_at", s.EndAt)
	}
	return errs
}

func oneOf[T ~string](bad func(string, string, ...any), field string, v T, allowed ...T) {
	for _, a := range allowed {
		if v == a {
			return
		}
	}
	bad(field, "is %q; want one of %v", v, allowed[1:])
}

// SpecOf returns the definition of a stored rule, to be edited and passed to [Periodic.Update].
// Its secrets are [model.HiddenSecret], which stands for the stored ones.
func SpecOf(r *schedule.Rule) Spec {
	s := specOf(r)
	s.hideSecrets()
	return s
}

// specOf is [SpecOf] with the secrets as they are stored.
func specOf(r *schedule.Rule) Spec {
	s := Spec{
		Name: r.Name, Tenant: r.Tenant, Creator: r.Creator, Category: r.Category, Description: r.Description,
		Cron: r.Cron, Timezone: r.Timezone, StartAt: r.StartAt, EndAt: r.EndAt, MaxRuns: r.MaxRuns, Jitter: r.Jitter,
		Type: r.Task.Type, Priority: r.Task.Priority, Options: r.Task.Options,
		Overlap: r.Overlap, OnFailure: r.OnFailure, MaxConcurrency: r.MaxConcurrency, Concurrency: r.Concurrency,
		QueueLimit: r.QueueLimit, CatchUp: r.CatchUp, Log: r.Log, RunRetention: r.RunRetention,
	}
	if r.DST != nil {
		s.DST = *r.DST
	}
	s.Ext, s.Args = plain(r.Ext), plain(r.Task.Args)
	if target := targetOf(r.Task); target != nil {
		s.Type, s.Args, s.HTTP = "", nil, target
	}
	return s
}

// plain is a stored value as JSON; nil for none.
func plain(v bson.RawValue) any {
	if v.Type == 0 {
		return nil
	}
	return json.RawMessage(codec.ValueJSON(v))
}

// String returns the spec as text for people, without secrets.
func (s Spec) String() string { return fmt.Sprintf("%s (%s)", s.Name, s.Cron) }
