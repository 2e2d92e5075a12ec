package periodic

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// planner is what the machinery of decisions needs to know of rules.
type planner struct{ *Periodic }

var _ decision.Planner[*schedule.Rule] = planner{}

func (planner) Kind() string                      { return lifecycle.OutcomePeriodic }
func (planner) DueAt(r *schedule.Rule) time.Time  { return r.NextFireAt }
func (planner) PlannedBytes(r *schedule.Rule) int { return tickplan.PlannedBytes(r) }

func (planner) Tasks(r *schedule.Rule) (tasks []*model.Task) {
	for i := range r.Planned {
		if t := r.Planned[i].Task; t != nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// Trace implements [decision.Planner]: each tick has a span of its own, see [Periodic.begin].
func (planner) Trace(*schedule.Rule) *model.Trace { return nil }

func (planner) Of(l store.OutboxLife) string {
	if l.Origin == nil || l.Origin.Tick == nil {
		return ""
	}
	return l.Origin.ID
}

// MustKnow implements [decision.Planner]: a tick would take a run that ended a moment ago for one
// that is under way.
func (planner) MustKnow(r *schedule.Rule) (taskIDs []string) {
	if !judgesRuns(r) {
		return nil
	}
	for _, a := range r.Active {
		taskIDs = append(taskIDs, model.TaskID(r.Tenant, a.TaskType, a.ID))
	}
	return taskIDs
}

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

// Keep implements [decision.Planner]: a decision keeps all that it needs of ends.
func (planner) Keep(context.Context, []decision.Case[*schedule.Rule]) error { return nil }

// Decide implements [decision.Planner]: the ends of a rule's runs, and then its ticks.
func (p planner) Decide(ctx context.Context, cases []decision.Case[*schedule.Rule], now time.Time) ([]decision.Answer[*schedule.Rule], error) {
	rules := make([]*schedule.Rule, len(cases))
	for i, c := range cases {
		rules[i] = c.Doc
	}
	begun, err := p.begun(ctx, rules)
	if err != nil {
		return nil, err
	}
	answers := make([]decision.Answer[*schedule.Rule], len(cases))
	for i, c := range cases {
		a := &answers[i]
		known := tickplan.Begun(c.Doc, begun)
		a.After = known
		if !c.Due || !tickplan.Heavy(known) { // else what is planned must go out first
			a.After, a.Told = tell(known, c.Ends, now)
		}
		if c.Due {
			switch cal, err := p.calendarOf(c.Doc); {
			case err == nil:
				a.After = cmp.Or(tickplan.Plan(a.After, cal, now), a.After)
			case a.After == known:
				a.Err = err
				continue
			default: // the ends of its runs count all the same
				p.decider.Complain(c.Doc.ID, err)
			}
		}
		a.Changed = a.After != known
	}
	return answers, nil
}

// tell decides the ends of runs of a rule, and says of how many, from the first on: each may
// start what waited, and the rest is told when what one document should carry has gone out.
func tell(r *schedule.Rule, lives []store.OutboxLife, now time.Time) (after *schedule.Rule, told int) {
	after = r
	for _, l := range lives {
		if told > 0 && tickplan.Heavy(after) {
			break
		}
		status, info := tickplan.RunStatusOf(l.Task)
		after = tickplan.Ended(after, l.Task, status, info, now)
		told++
	}
	return after, told
}

// begun reads which active runs of the rules a worker has begun, if that makes a difference.
func (p planner) begun(ctx context.Context, rules []*schedule.Rule) (map[string]bool, error) {
	runs := map[string]string{} // by their tasks
	var ids []string
	for _, r := range rules {
		for _, a := range r.Active {
			if tickplan.Judged(r, a) {
				id := model.TaskID(r.Tenant, a.TaskType, a.ID)
				runs[id] = a.ID
				ids = append(ids, id)
			}
		}
	}
	begun := map[string]bool{}
	for some := range slices.Chunk(ids, perCommand) {
		tasks, err := p.store.Tasks.Begun(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, id := range tasks {
			begun[runs[id]] = true
		}
	}
	return begun, nil
}

// Complete implements [decision.Planner]. It gives the tasks that a decision plans what a send of
// their type gives to its tasks: the planner knows the rule alone.
func (p planner) Complete(w store.RuleWrite, now time.Time) error {
	w.After.QueuedAt = time.Time{}
	if len(w.After.Queued) > 0 { // the mark by which every engine finds such rules
		w.After.QueuedAt = cmp.Or(w.Before.QueuedAt, clock.Millis(now))
	}
	known := p.store.Rules.PlanIDs(w.Before)
	for _, pl := range w.After.Planned {
		if pl.Task == nil || slices.Contains(known, pl.ID) {
			continue
		}
		callOnce(pl.Task, p.types.Get(pl.Task.Type))
		if err := p.types.Give(pl.Task); err != nil {
			return err
		}
	}
	return nil
}

// callOnce has the call of a target fail with its first error where nobody says how it is
// retried: what follows a failed run is the rule's to say, and each try of a target that
// waits for a completion may take the whole callback timeout.
func callOnce(t *model.Task, typ *model.TaskType) {
	if t.Type == httptarget.TaskType && t.Options.Retry == nil && (typ == nil || typ.Options.Retry == nil) {
		t.Options.Retry = &model.Retry{Strategy: model.RetryNone}
	}
}
