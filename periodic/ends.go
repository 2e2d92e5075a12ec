package periodic

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// ends is the outcome kind that tells a rule of the end of one of its runs.
type ends struct{ *Periodic }

// Name implements [outcome.Kind].
func (ends) Name() string { return lifecycle.OutcomePeriodic }

// Carry implements [outcome.Kind]. The ends of one rule are one decision; to decide an end
// twice is the same as once, since its run is then among the active ones no more.
func (p ends) Carry(ctx context.Context, entries []outcome.Entry) []error {
	errs := make([]error, len(entries))
	newest, err := p.newest(ctx, entries)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	byRule := map[string][]int{}
	for i, e := range entries {
		last, asked := newest[e.Life.ID]
		switch {
		case e.Life.Origin == nil || e.Life.Origin.Tick == nil:
		case asked && last == nil:
			errs[i] = errUnreadLife
		case !asked || e.Life.Generation >= last.Generation:
			byRule[e.Life.Origin.ID] = append(byRule[e.Life.Origin.ID], i)
		}
	}
	for tries := 0; len(byRule) > 0; tries++ {
		if err := p.carry(ctx, entries, byRule, errs); err != nil || tries >= maxTries {
			for _, of := range byRule {
				for _, i := range of {
					errs[i] = errors.Join(err, errCrossed)
				}
			}
			return errs
		}
	}
	return errs
}

// newest are the newest lives of tasks of which a life lies in the history: a person has had
// them run again. The ends of the earlier ones say nothing any more: the run goes on until
// the newest ends, and has ended as that did, in whichever order the two ends are found.
func (p ends) newest(ctx context.Context, entries []outcome.Entry) (map[string]*model.Task, error) {
	var ids []string
	for _, e := range entries {
		if e.Life.InHistory {
			ids = append(ids, e.Life.ID)
		}
	}
	return p.store.Rules.LastLives(ctx, ids)
}

var errUnreadLife = errors.New("the newest life of the task of the run that ended cannot be read by this process")

var errCrossed = errors.New("the end of a run was not told to its rule yet")

var errUnread = errors.New("the rule of the run that ended cannot be read by this process")

// carry decides once for each rule and takes out of byRule those that are done, and those
// that cannot be, with the reason in errs.
func (p ends) carry(ctx context.Context, entries []outcome.Entry, byRule map[string][]int, errs []error) error {
	cannot := func(id string, why error) {
		for _, i := range byRule[id] {
			errs[i] = why
		}
		delete(byRule, id)
	}
	ids := make([]string, 0, len(byRule))
	for id := range byRule {
		ids = append(ids, id)
	}
	began := clock.Read(p.store.Local())
	rules, err := p.store.Rules.ByIDs(ctx, ids)
	if err != nil {
		return err
	}
	begun, err := p.begun(ctx, slices.Collect(maps.Values(rules)))
	if err != nil {
		return err
	}
	now := p.store.Clock.Now()
	var writes []store.RuleWrite
	var tells []int // of each write: the ends that it tells
	for id, of := range byRule {
		r, there := rules[id]
		if !there {
			delete(byRule, id) // a rule that somebody deleted by hand
			continue
		}
		if r == nil {
			cannot(id, errUnread)
			continue
		}
		lives := make([]store.OutboxLife, len(of))
		for k, i := range of {
			lives[k] = entries[i].Life
		}
		after, told := tell(tickplan.Begun(r, begun), lives, now)
		writes = append(writes, store.RuleWrite{Before: r, After: after})
		tells = append(tells, told)
	}
	applied, refused, err := p.decideAll(ctx, began, writes)
	if err != nil {
		return err
	}
	for i, w := range writes {
		id := w.Before.ID
		if why := refused[i]; why != nil {
			cannot(id, why)
		}
		if !applied[i] {
			continue
		}
		if byRule[id] = byRule[id][tells[i]:]; len(byRule[id]) == 0 {
			delete(byRule, id)
		}
	}
	return nil
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
