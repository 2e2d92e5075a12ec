package rulespec

import (
	"cmp"
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Bounds of a rule.
const (
	maxName       = 200
	MaxQueueLimit = 1000     // runs that wait
	maxArgsBytes  = 64 << 10 // a rule's document carries them, and those of the ticks just decided
)

// Build checks the spec and makes the document of a rule that was never enabled, with its times. The error
// joins everything that is wrong, each naming its field.
func Build(s *schedule.Spec, now time.Time) (*schedule.Rule, *calendar.Schedule, error) {
	r := &schedule.Rule{
		Name: s.Name, Tenant: s.Tenant, Creator: s.Creator, Category: s.Category, Description: s.Description,
		Timezone: s.Timezone, StartAt: clock.Millis(s.StartAt), EndAt: clock.Millis(s.EndAt), MaxRuns: s.MaxRuns, Jitter: s.Jitter,
		Task:    &schedule.TaskTemplate{Type: s.Type, Priority: s.Priority, Options: s.Options},
		Overlap: cmp.Or(s.Overlap, schedule.OverlapAllow), OnFailure: cmp.Or(s.OnFailure, schedule.FailureRunNew),
		MaxConcurrency: s.MaxConcurrency, Concurrency: cmp.Or(s.Concurrency, schedule.ConcurrencyQueue), QueueLimit: s.QueueLimit,
		CatchUp: s.CatchUp, Log: s.Log, RunRetention: s.RunRetention,
		Status: tickplan.StatusNew, Version: 1, Rev: 1, CreatedAt: now, UpdatedAt: now, DecidedTo: now,
	}
	if r.Tenant == model.NoTenant {
		r.Tenant = ""
	}
	if s.DST != (schedule.DST{}) {
		r.DST = &s.DST
	}
	r.Living = input.RuleName(r.Tenant, r.Name)
	errs := check(s)
	args, err := targetArgs(s, r.Task)
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

// Normal returns the spec as it would be stored, with its secrets: see [Build].
func Normal(s *schedule.Spec, now time.Time) (schedule.Spec, error) {
	r, _, err := Build(s, now)
	if err != nil {
		return *s, err
	}
	return Of(r), nil
}

// Check reports what is wrong with the spec as an edit of the stored rule, or as a new rule
// if stored is nil. Nothing is read or written.
func Check(s *schedule.Spec, stored *schedule.Rule, now time.Time) error {
	if stored != nil {
		now = Since(s, now, stored)
	}
	_, _, err := Build(s, now)
	return err
}

// Since is the time after which an edited rule must fire: a rule whose end has come and
// stays what it was can still be edited.
func Since(s *schedule.Spec, now time.Time, stored *schedule.Rule) time.Time {
	if clock.Millis(s.EndAt).Equal(stored.EndAt) {
		return stored.CreatedAt
	}
	return now
}
