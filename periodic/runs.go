package periodic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// TriggerOptions are the options of a manual run. The zero value is valid.
type TriggerOptions struct {
	// Request is an idempotency key: repeated calls with the same request start one run, as long as
	// its record or its task is stored; the history counts, too. [a-zA-Z0-9._-]{1,100}. Defaults to a
	// generated one.
	Request string
	// Force starts the run despite the concurrency limit. If the rule already has 1,000 active
	// runs, the run is skipped (capacity).
	Force bool
}

// Trigger starts a manual run, whatever the status of the rule, and returns its id. The
// concurrency policy applies unless the run is forced.
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Trigger(ctx context.Context, id string, o TriggerOptions) (run string, err error) {
	if o.Request == "" {
		o.Request = input.Random()
	} else if err := input.Name("request", o.Request); err != nil {
		return "", fmt.Errorf("triggering a rule: %w", err)
	}
	run = id + "!" + o.Request
	ctx = store.Outside(ctx) // the decision reads
	_, err = p.change(ctx, "triggering", id, func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if done, err := p.decided(ctx, r, run); done || err != nil {
			return nil, err
		}
		return tickplan.Trigger(r, cal, o.Request, o.Force, now), nil
	})
	return run, err
}

// decided says whether a manual run has been decided before: the call is repeated.
func (p *Periodic) decided(ctx context.Context, r *schedule.Rule, run string) (bool, error) {
	known, err := p.known(ctx, r, []string{run})
	return known[run], err
}

// known tells which of the manual runs have been decided before.
func (p *Periodic) known(ctx context.Context, r *schedule.Rule, runs []string) (map[string]bool, error) {
	known, err := p.store.Runs.Have(ctx, runs)
	if err != nil {
		return nil, err
	}
	// Without records the tasks are what is left of them.
	of := map[string]string{} // runs, by the tasks that they may have
	for _, run := range runs {
		if !known[run] {
			for _, id := range tasksOf(r, run) {
				of[id] = run
			}
		}
	}
	sent, err := p.store.Tasks.LastLivesOf(ctx, slices.Collect(maps.Keys(of)), store.State)
	if err != nil {
		return nil, err
	}
	for id := range sent {
		known[of[id]] = true
	}
	for _, refs := range [][]schedule.RunRef{r.Active, r.Queued} {
		for i := range refs {
			known[refs[i].ID] = true
		}
	}
	for _, x := range r.Planned { // and not carried out yet
		if x.Record != nil {
			known[x.Record.ID] = true
		}
		if x.Task != nil {
			known[x.Task.Key] = true
		}
	}
	return known, nil
}

// tasksOf returns the ids that the task of a run may have: its type may have been another before an edit.
func tasksOf(r *schedule.Rule, run string) (ids []string) {
	for _, typ := range append([]string{r.Task.Type}, r.PastTypes...) {
		ids = append(ids, model.TaskID(r.Tenant, typ, run))
	}
	return ids
}

// inError is a time as errors show it.
func inError(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// backfillSlack is how far in the future a backfill may end: at the present of the caller, whose
// clock is a little ahead of the database's, or of the least that it can be. What lies ahead is
// cut off.
const backfillSlack = time.Second

// Backfill runs the rule for its past ticks in [from, to), in order. to must not be in the
// future, and at most 1,000 ticks are allowed. The runs respect the rule's limit and wait
// behind those of new ticks; without a limit all start at once. If the rule's overlap is SKIP, one runs
// at a time: it waits for all active runs, and a new tick waits for it. Backfill excludes ticks before StartAt and ticks at or after
// EndAt. Without a StartAt, the ticks of a cron rule may be older than the rule. Backfill
// returns the number of decided runs. A non-empty request makes the call idempotent: each tick
// runs once per request, even if the call is repeated with other times. This holds for as long as the
// record or the task of the run is stored; the history counts, too.
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Backfill(ctx context.Context, id string, from, to time.Time, request string) (n int, err error) {
	if request == "" {
		request = input.Random()
	} else if err := input.Name("request", request); err != nil {
		return 0, fmt.Errorf("backfilling a rule: %w", err)
	}
	ctx = store.Outside(ctx) // the decision reads
	_, err = p.change(ctx, "backfilling", id, p.withTimes(func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if to.After(now.Add(backfillSlack + p.store.Clock.Error())) {
			return nil, input.Invalid("to", "is %s, which is in the future", inError(to))
		}
		to := to
		if to.After(now) {
			to = now
		}
		if !from.Before(to) {
			return nil, input.Invalid("from", "is %s; want a time before %s, the end", inError(from), inError(to))
		}
		n = 0
		var ticks []time.Time
		begin := clock.Later(from, r.StartAt)
		for t := range cal.Ticks(begin.Add(-time.Second)) {
			if !t.At.Before(to) || !r.EndAt.IsZero() && !t.At.Before(r.EndAt) {
				break
			}
			if t.Fires && !t.At.Before(begin) {
				ticks = append(ticks, t.At)
			}
			if len(ticks) > tickplan.MaxBackfill {
				return nil, input.Invalid("from", "is %s; more than %d ticks lie between it and %s", inError(from), tickplan.MaxBackfill, inError(to))
			}
		}
		ids := make([]string, len(ticks))
		for i, at := range ticks {
			ids[i] = tickplan.TickID(id, at) + "!" + request
		}
		known, err := p.known(ctx, r, ids)
		if err != nil {
			return nil, err
		}
		ticks = slices.DeleteFunc(ticks, func(at time.Time) bool { return known[tickplan.TickID(id, at)+"!"+request] })
		if len(ticks) == 0 {
			return nil, nil
		}
		if size := (len(r.Task.Args.Value) + len(r.Ext.Value) + 1<<10) * len(ticks); size > 8<<20 {
			return nil, input.Invalid("from", "is %s: the %d ticks between it and %s do not fit into one document with these args and ext; want fewer ticks", inError(from), len(ticks), inError(to))
		}
		if len(r.Active)+len(r.Queued)+len(ticks) > tickplan.MaxActive+rulespec.MaxQueueLimit {
			return nil, input.Invalid("from", "is %s: %d ticks lie between it and %s, but %d runs are already active or waiting", inError(from), len(ticks), inError(to), len(r.Active)+len(r.Queued))
		}
		n = len(ticks)
		return tickplan.Backfill(r, cal, request, ticks, now), nil
	}))
	return n, err
}

// Cancel cancels one run, also of a deleted rule. A waiting run is cancelled at once. For a
// running one, Cancel cancels its task; the run is CANCELED when the task has ended. The same holds
// for a run that has ended and whose task a person has retried. If the run neither runs nor waits, the
// error is a *[model.RefusedError].
// run is the id of a run, see [Periodic.GetRun].
func (p *Periodic) Cancel(ctx context.Context, run string) error {
	rule := tickplan.RuleOf(run)
	if rule == "" {
		return input.Invalid("run", "is %q; want rule@time or rule!request", run)
	}
	ctx = store.Outside(ctx) // the decision reads
	found := false
	_, err := p.changeAny(ctx, "cancelling a run of", rule, func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		after := tickplan.Cancel(r, cal, run, now)
		if after == nil {
			tasks, err := p.store.Tasks.Unended(ctx, tasksOf(r, run))
			if err != nil {
				return nil, err
			}
			for id, t := range tasks {
				if isOf(run, t) {
					after = tickplan.CancelTask(r, id, now)
				}
			}
		}
		found = after != nil
		return after, nil
	})
	if err == nil && !found {
		return &model.RefusedError{ID: run, Reason: "the run neither runs nor waits"}
	}
	return err
}
