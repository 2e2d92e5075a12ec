package periodic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// RunFilter selects runs. A run must match all fields; a zero field matches every run.
type RunFilter struct {
	// Statuses as [Periodic.Runs] returns them. RUNNING and WAITING_CALLBACK are read from the
	// tasks, and so is the end of a run that the rule has not recorded yet. A run whose task a
	// person retried after its end is selected by that end, and returned as the task is.
	Statuses []schedule.RunStatus
	Tenant   string    // of the rules; model.NoTenant = those without one
	From, To time.Time // nominal in [From, To)
	Oldest   bool      // the oldest nominal time first
}

// Runs reads the records of a rule, or of all rules if ruleID is "", the newest nominal time
// first, or the oldest. It returns at most limit runs, from 1 to 1,000, that follow the given one
// (nil = from the first). A result with fewer than limit runs is the last page. Runs reads the state of a run
// from its task if the run has not ended, or if a person has retried the task. If this release cannot read some records, Runs returns the others and a
// [*model.UnreadableError] with their ids.
//
// The database reads the records of the rule, from From to To, until it has found limit that the filter selects.
// If few are of the tenant, or have one of the statuses, that may be all of them: name a rule or a span, or bound
// the time by ctx.
func (p *Periodic) Runs(ctx context.Context, ruleID string, f RunFilter, after *schedule.Run, limit int) (out []*schedule.Run, err error) {
	if limit < 1 || limit > 1000 {
		return nil, input.Invalid("limit", "is %d; want 1 to 1000", limit)
	}
	q := store.RunFilter{RuleID: ruleID, Tenant: f.Tenant, Statuses: storedAs(f.Statuses), From: f.From, To: f.To}
	span := store.Span{Oldest: f.Oldest, Limit: max(limit, 100)} // the tasks of some runs have other statuses
	if after != nil {
		span.At, span.ID = after.Nominal, after.ID
	}
	bad := store.Unread{}
	defer func() {
		if err == nil {
			err = bad.Err()
		}
	}()
	for {
		page, unread, err := p.store.Runs.List(ctx, q, span)
		if err != nil {
			return nil, err
		}
		bad.Note("run", unread)
		stored := make([]schedule.RunStatus, len(page))
		for i, r := range page {
			stored[i] = r.Status
		}
		if err := p.asTheyAre(ctx, page); err != nil {
			return nil, err
		}
		for i, r := range page {
			status := r.Status
			if tickplan.Failed(stored[i]) {
				status = stored[i]
			}
			if len(f.Statuses) > 0 && !slices.Contains(f.Statuses, status) {
				continue
			}
			if out = append(out, r); len(out) == limit {
				return out, nil
			}
		}
		if len(page)+len(unread) < span.Limit || len(page) == 0 && span.Limit == 1000 {
			return out, nil
		}
		if len(page) > 0 {
			last := page[len(page)-1]
			span.At, span.ID = last.Nominal, last.ID
		}
		span.Limit = min(2*span.Limit, 1000)
	}
}

// storedAs returns the statuses that the records of such runs have. A run that was sent stays
// SCHEDULED until its rule knows its end.
func storedAs(statuses []schedule.RunStatus) (out []schedule.RunStatus) {
	for _, s := range statuses {
		if s != schedule.RunRunning && s != schedule.RunWaiting {
			out = append(out, s)
		}
		if s != schedule.RunQueued && s != schedule.RunSkipped {
			out = append(out, schedule.RunScheduled)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// asTheyAre updates runs that have not ended, and those whose tasks run again, from their tasks.
func (p *Periodic) asTheyAre(ctx context.Context, runs []*schedule.Run) error {
	var open, failed []string
	for _, r := range runs {
		switch {
		case r.TaskID == "":
		case r.Status == schedule.RunScheduled:
			open = append(open, r.TaskID)
		case tickplan.Failed(r.Status):
			failed = append(failed, r.TaskID)
		}
	}
	tasks, err := p.store.Tasks.Ends(ctx, open)
	if err != nil {
		return err
	}
	again, err := p.store.Tasks.Unended(ctx, failed)
	if err != nil {
		return err
	}
	maps.Copy(tasks, again)
	for _, r := range runs {
		if t := tasks[r.TaskID]; t != nil {
			asItIs(r, t)
		}
	}
	return nil
}

// isOf reports whether the task is that of the run.
func isOf(run string, t *model.Task) bool {
	return t.Origin != nil && t.Origin.Tick != nil && t.Origin.Tick.Run == run
}

// asItIs updates a run with the state of its task that is not recorded yet. The recorded end of a failed run is
// that of an earlier life if a person has retried the task, which then has not ended.
func asItIs(r *schedule.Run, t *model.Task) {
	if r.Status == schedule.RunScheduled || tickplan.Failed(r.Status) && !t.Status.Ended() && isOf(r.ID, t) {
		r.Status, r.Error = tickplan.RunStatusOf(t)
		r.EndedAt = t.FinishedAt
	}
	if r.ExecutedAt.IsZero() {
		r.ExecutedAt = lifecycle.ExecutedAt(t)
	}
	if r.Call == nil {
		r.Call = tickplan.CallOf(t)
	}
}

// GetRun reads one run by its id: rule@time, or rule!request. A run without a record is read from its rule, or, if
// the rule keeps no records, from its task. It returns [model.ErrNotFound] if neither exists.
func (p *Periodic) GetRun(ctx context.Context, id string) (*schedule.Run, error) {
	r, err := p.store.Runs.Get(ctx, id)
	if r == nil && err == nil {
		r, err = p.unrecorded(ctx, id)
	}
	if err != nil || r.TaskID == "" {
		return r, err
	}
	tasks, err := p.store.Tasks.LastLivesOf(ctx, []string{r.TaskID}, store.End)
	if err != nil {
		return nil, err
	}
	if t := tasks[r.TaskID]; t != nil {
		asItIs(r, t)
	}
	return r, nil
}

// unrecorded makes a run without a record from its rule, whose decision may not be carried out yet, or from its
// task, if the rule keeps no records.
func (p *Periodic) unrecorded(ctx context.Context, id string) (*schedule.Run, error) {
	none := fmt.Errorf("%w: %s", store.ErrNoRun, id)
	rule, err := p.store.Rules.Get(ctx, tickplan.RuleOf(id))
	if errors.Is(err, store.ErrNoRule) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	if r := tickplan.RunOf(rule, id); r != nil {
		return r, nil
	}
	if r, err := p.store.Runs.Get(ctx, id); r != nil || err != nil { // carried out since the first read
		return r, err
	}
	tasks, err := p.store.Tasks.LastLivesOf(ctx, tasksOf(rule, id), store.End)
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		if t != nil && t.Origin != nil && t.Origin.Tick != nil {
			tick := t.Origin.Tick
			return &schedule.Run{
				ID: id, RuleID: rule.ID, RuleName: tick.Rule, Tenant: rule.Tenant, Nominal: tick.Nominal, Attempt: tick.Attempt,
				Manual: tick.Manual, TaskID: t.ID, Status: schedule.RunScheduled, At: t.CreatedAt, StartedAt: t.CreatedAt,
			}, nil
		}
	}
	return nil, none
}
