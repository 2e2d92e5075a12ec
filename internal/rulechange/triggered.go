package rulechange

import (
	"context"
	"errors"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
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
	var rule *schedule.Rule
	if rec == nil {
		if rule, err = st.Rules.Get(ctx, tickplan.RuleOf(run)); err != nil {
			return out, err
		}
		rec = tickplan.RunOf(rule, run)
	}
	if rec == nil {
		if rec, err = rules.GetRun(ctx, run); err != nil && !errors.Is(err, store.ErrNoRun) {
			return out, err
		}
	}
	if rec != nil {
		out.Status, out.Reason, out.TaskID = rec.Status, rec.Reason, rec.TaskID
		return out, nil
	}
	out.Status, out.Reason = schedule.RunSkipped, tickplan.SkipConcurrency
	if forced || rule.MaxConcurrency == 0 || rule.Concurrency == schedule.ConcurrencyParallel {
		out.Reason = tickplan.SkipCapacity // no other limit holds
	}
	return out, nil
}
