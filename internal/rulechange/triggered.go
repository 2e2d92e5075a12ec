package rulechange

import (
	"context"
	"errors"
	"strings"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Triggered is what became of a run that was just decided, as JSON.
type Triggered struct {
	Run    string             `json:"run"`
	Status schedule.RunStatus `json:"status"`
	Reason string             `json:"reason,omitempty"`
	TaskID string             `json:"task_id"`
}

// WhatBecame tells from the run's record what became of it, or, where the rule keeps none, from
// the rule and the run's task: what has left no trace there was skipped.
func WhatBecame(ctx context.Context, st *store.Store, rules *periodic.Periodic, run string, forced bool) (Triggered, error) {
	out := Triggered{Run: run}
	rec, err := st.Runs.Get(ctx, run)
	if err != nil {
		return out, err
	}
	if rec != nil {
		out.Status, out.Reason, out.TaskID = rec.Status, rec.Reason, rec.TaskID
		return out, nil
	}
	rule, err := st.Rules.Get(ctx, RuleOf(run))
	if err != nil {
		return out, err
	}
	for _, x := range rule.Active {
		if x.ID == run {
			out.Status, out.TaskID = schedule.RunScheduled, model.TaskID(rule.Tenant, x.TaskType, x.ID)
			return out, nil
		}
	}
	for _, x := range rule.Queued {
		if x.ID == run {
			out.Status = schedule.RunQueued
			return out, nil
		}
	}
	switch ended, err := rules.GetRun(ctx, run); {
	case err == nil:
		out.Status, out.Reason, out.TaskID = ended.Status, ended.Reason, ended.TaskID
		return out, nil
	case !errors.Is(err, store.ErrNoRun):
		return out, err
	}
	out.Status, out.Reason = schedule.RunSkipped, tickplan.SkipConcurrency
	if forced || rule.MaxConcurrency == 0 || rule.Concurrency == schedule.ConcurrencyParallel {
		out.Reason = tickplan.SkipCapacity // no other limit holds
	}
	return out, nil
}

// RuleOf is the id of the rule of a run, which begins the run's id: rule@time, or rule!request. "" = it is no
// id of a run.
func RuleOf(run string) string {
	i := strings.IndexAny(run, "@!")
	return run[:max(i, 0)]
}
