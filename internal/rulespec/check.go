package rulespec

import (
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// check finds what is wrong but for times and values.
func check(s *schedule.Spec) (errs []error) {
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
	add(input.InAddress("name", s.Name))
	if len(s.Description) > 4<<10 {
		bad("description", "has %d bytes; at most %d are allowed", len(s.Description), 4<<10)
	}
	if s.Tenant != "" {
		add(input.Name("tenant", s.Tenant))
		add(input.InAddress("tenant", s.Tenant))
	}
	if s.HTTP == nil && s.Type != httptarget.TaskType { // of that, the check of the target says what to do
		add(input.UserType("type", s.Type))
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
		"queue_limit": {int64(s.QueueLimit), MaxQueueLimit}, "catch_up.cap": {int64(s.CatchUp.Cap), tickplan.MaxCap},
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
	bad(field, "is %q; want one of %s", v, input.Names(allowed[1:]))
}
