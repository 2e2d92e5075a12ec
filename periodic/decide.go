package periodic

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// frozen: a process that stood still for so long between reading a rule and carrying out
// what it decided reads the rule again.
const frozen = time.Minute

// unlessFrozen returns the rules, or, where this process stood still since they were about to
// be read, what they are now: what it is about to do may have been done, and be over, long
// ago, so only what is still planned counts.
func (p *Periodic) unlessFrozen(ctx context.Context, began clock.Instant, rules []*schedule.Rule) ([]*schedule.Rule, error) {
	if began.Since(p.store.Local()) <= frozen {
		return rules, nil
	}
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.ID
	}
	found, err := p.store.Rules.ByIDs(ctx, ids)
	var current []*schedule.Rule
	for _, r := range found {
		if r != nil {
			current = append(current, r)
		}
	}
	return current, err
}

// verdict is what became of a portion of decisions.
type verdict struct {
	applied []bool        // of each: it was written
	refused map[int]error // by index: why the server refuses it, which concerns its own rule alone
	sent    sent          // the rules of which something is still to be carried out
	err     error         // nothing is known of those that are not applied
}

// decideAll writes decisions and carries out those that were applied, portion by portion.
// All tasks are sent before the first record is stored: somebody may wait for them. What
// cannot be carried out now stays planned, for whoever looks next. began is when the rules
// were about to be read.
func (p *Periodic) decideAll(ctx context.Context, began clock.Instant, writes []store.RuleWrite) (applied []bool, refused map[int]error, err error) {
	parts := portions(writes, func(w store.RuleWrite) *schedule.Rule { return w.After })
	verdicts := make([]verdict, len(parts))
	var failed atomic.Bool
	eachAtOnce(len(parts), func(i int) {
		if failed.Load() {
			return // it is decided when somebody looks again
		}
		verdicts[i] = p.decidePortion(ctx, began, parts[i])
		if verdicts[i].err != nil {
			failed.Store(true)
		}
	})
	eachAtOnce(len(parts), func(i int) { p.carryRest(ctx, began, verdicts[i].sent) })
	refused = map[int]error{}
	for part, v := range verdicts {
		err = errors.Join(err, v.err)
		for i, why := range v.refused {
			refused[len(applied)+i] = why
			p.complain(parts[part][i].After.ID, why)
		}
		applied = append(applied, v.applied...)
	}
	if err != nil {
		return nil, nil, err
	}
	return applied, refused, nil
}

// decideOne is [Periodic.decideAll] of one decision, for a person who wants to know.
func (p *Periodic) decideOne(ctx context.Context, began clock.Instant, w store.RuleWrite) (applied bool, err error) {
	v := p.decidePortion(ctx, began, []store.RuleWrite{w})
	if v.err == nil {
		v.err = v.refused[0]
	}
	if v.err != nil {
		return false, v.err
	}
	p.carryRest(ctx, began, v.sent)
	return v.applied[0], nil
}

// atOnce is how many portions go out at the same time: one is encoded while the server
// works on another.
const atOnce = 2

func eachAtOnce(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(atOnce, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// stopPatience is how long a stop waits for what is being decided and carried out: what is
// left then waits for another engine's sweep, and its tasks are that late.
const stopPatience = 5 * time.Second

// throughStop is a context for one portion of decisions, from the first write to the last:
// it lasts for callTimeout, and when ctx ends for stopPatience at most.
func throughStop(ctx context.Context) (context.Context, context.CancelFunc) {
	through, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	stop := context.AfterFunc(ctx, func() {
		clock.Pause(through, stopPatience)
		cancel()
	})
	return through, func() {
		stop()
		cancel()
	}
}

// decidePortion writes decisions and sends the tasks of those that were applied.
func (p *Periodic) decidePortion(ctx context.Context, began clock.Instant, writes []store.RuleWrite) (v verdict) {
	if v.err = ctx.Err(); v.err != nil {
		return v // it stops: nothing more is decided
	}
	fresh, read := context.WithTimeout(ctx, callTimeout)
	v.err = p.types.Fresh(fresh, tasktypes.MaxAge)
	if read(); v.err != nil {
		return v
	}
	ctx, cancel := throughStop(ctx)
	defer cancel()
	now := p.store.Clock.Now()
	for _, w := range writes {
		w.After.Decision = randomHex(8)
		w.After.QueuedAt = queuedSince(w, now)
		complete(w, p.types.Get)
	}
	if v.applied, v.refused, v.err = p.writeRules(ctx, writes); store.Classify(v.err) == store.Ambiguous {
		// What was applied all the same would be nobody's until a sweep finds it.
		applied, err := p.store.Rules.Applied(ctx, writes)
		if err != nil {
			return v
		}
		if v.applied = applied; !slices.Contains(applied, false) {
			v.err = nil
		}
	} else if v.err != nil {
		return v
	}
	var decided []*schedule.Rule
	for i, w := range writes {
		if v.applied[i] {
			decided = append(decided, w.After)
		}
	}
	decided, err := p.unlessFrozen(ctx, began, decided)
	if err == nil {
		v.sent, err = p.send(ctx, decided)
	}
	if err != nil {
		v.sent = sent{}
		p.later(err)
	}
	return v
}

// writeRules writes decisions, but for those whose tasks are of a type that cannot be read.
func (p *Periodic) writeRules(ctx context.Context, writes []store.RuleWrite) (applied []bool, refused map[int]error, err error) {
	unread := map[int]error{}
	var ready []store.RuleWrite
	var of []int
	for i, w := range writes {
		if err := unreadType(w, p.types.Unread); err != nil {
			unread[i] = err
			continue
		}
		ready, of = append(ready, w), append(of, i)
	}
	if len(unread) == 0 {
		return p.store.Rules.Write(ctx, writes)
	}
	applied = make([]bool, len(writes))
	some, refusals, err := p.store.Rules.Write(ctx, ready)
	for i, yes := range some {
		applied[of[i]] = yes
	}
	for i, why := range refusals {
		unread[of[i]] = why
	}
	return applied, unread, err
}

// carryRest does what is left after the tasks. A process that stood still leaves it to others.
func (p *Periodic) carryRest(ctx context.Context, began clock.Instant, s sent) {
	if len(s.rules) == 0 || began.Since(p.store.Local()) > frozen {
		return
	}
	ctx, cancel := throughStop(ctx)
	defer cancel()
	if _, err := p.finish(ctx, s); err != nil {
		p.later(err)
	}
}

func (p *Periodic) later(err error) {
	p.log.Warn().Err(err).Msg("what was decided about rules is carried out later")
}

// queuedSince is since when runs of the rule wait, after a decision: the mark by which every
// engine finds such rules. Zero while none do.
func queuedSince(w store.RuleWrite, now time.Time) time.Time {
	if len(w.After.Queued) == 0 {
		return time.Time{}
	}
	return cmp.Or(w.Before.QueuedAt, clock.Millis(now))
}
