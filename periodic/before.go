package periodic

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Ends before ticks. Rules are told of the ends of their runs between ticks, so a tick would
// take a run that ended a moment ago for one that is under way. Where that makes a
// difference, the decision of the tick looks at the tasks itself and decides their ends, too.

// judgesRuns says whether what a tick of the rule becomes depends on which of its runs have
// ended, and how.
func judgesRuns(r *schedule.Rule) bool {
	if len(r.Active) == 0 {
		return false
	}
	return r.Overlap == schedule.OverlapSkip || r.Overlap == schedule.OverlapCancelPrev ||
		r.OnFailure == schedule.FailureSkip || r.OnFailure == schedule.FailureRetry ||
		r.MaxConcurrency > 0 && r.Concurrency != schedule.ConcurrencyParallel ||
		len(r.Queued) > 0 || len(r.Active) >= tickplan.MaxActive
}

// endsNotTold reads the ends of runs that nobody has told to those of the due rules that they make
// a difference to, by the rules' ids. Where there are none it asks nothing.
func (p *Periodic) endsNotTold(ctx context.Context, due []*schedule.Rule, now time.Time) (map[string][]store.OutboxLife, error) {
	var ids []string
	for _, r := range due {
		if !judgesRuns(r) || !p.turn(r.ID, now.Sub(r.NextFireAt)) {
			continue
		}
		for _, a := range r.Active {
			ids = append(ids, model.TaskID(r.Tenant, a.TaskType, a.ID))
		}
	}
	out := map[string][]store.OutboxLife{}
	for some := range slices.Chunk(ids, perInsert) {
		lives, err := p.store.Tasks.OutboxesOf(ctx, some, lifecycle.OutcomePeriodic)
		if err != nil {
			return nil, err
		}
		for _, l := range lives {
			if l.Origin != nil && l.Origin.Tick != nil {
				out[l.Origin.ID] = append(out[l.Origin.ID], l)
			}
		}
	}
	return out, nil
}

// forget takes ends that were decided with ticks from the tasks' outboxes: they are told. One
// that stays there is told once more, which changes nothing.
func (p *Periodic) forget(ctx context.Context, writes []store.RuleWrite, applied []bool, ends map[string][]store.OutboxLife) {
	var told []store.Carried
	for i, w := range writes {
		for _, l := range ends[w.Before.ID] {
			if !applied[i] || slices.ContainsFunc(w.After.Active, func(a schedule.RunRef) bool { return a.ID == l.Origin.Tick.Run }) {
				continue
			}
			for _, e := range l.Outbox {
				if e.Kind == lifecycle.OutcomePeriodic {
					told = append(told, store.Carried{Life: l, Entry: e})
				}
			}
		}
	}
	if len(told) == 0 {
		return
	}
	ctx, cancel := throughStop(ctx)
	defer cancel()
	if err := p.store.Tasks.RemoveOutbox(ctx, told); err != nil {
		p.later(err)
	}
}
