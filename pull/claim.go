package pull

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// tries is how often a fetch looks again, further down the queue, when others were quicker.
const tries = 4

// claimDue claims what is due.
func (f *fetch) claimDue(ctx context.Context) error {
	crowd := 0 // tries in which others were quicker
	for try := 0; try < tries && f.left > 0; try++ {
		got, err := f.find(ctx, crowd)
		found := got.Tasks
		if err != nil || len(found) == 0 {
			return err
		}
		// A permit names the one try that it is for: what an earlier one gives back, a moment
		// later perhaps, must not be what this one has taken since.
		f.exec = newExecID()
		grants, err := f.admit(ctx, found)
		if err != nil {
			return err
		}
		now := f.p.room.Store.Clock.Now() // after the starts were reserved
		var claims, repairs []store.Write
		refused := 0
		for _, t := range found {
			if f.p.room.Limits.Limited(t) && !grants.usable(t, now) {
				continue
			}
			eff, by := f.terms(t)
			by.From = grants[t].From
			after, no := lifecycle.Claim(t, by, eff, now)
			if no == "" {
				claims = append(claims, store.Write{Before: t, After: after})
			} else if fixed := lifecycle.Repair(t, eff, now); no.Stale() && fixed != nil {
				repairs = append(repairs, store.Write{Before: t, After: fixed})
			} else {
				refused++
				var retry time.Time
				if no == lifecycle.RefusedOwnRetry {
					retry = lifecycle.RetryOf(t, f.WorkerID)
				}
				f.seeker.Refused.Add(t.ID, now, retry)
			}
		}
		repaired, err := f.p.room.Store.Tasks.Writes(ctx, repairs, store.Patience)
		if err != nil {
			return err
		}
		for i, w := range repaired {
			if w.Applied && repairs[i].After.Status.Ended() { // expired
				f.p.room.Follow.Ended(repairs[i].After)
			}
		}
		written, err := f.write(ctx, claims)
		if err != nil {
			return err // what was won of limited tasks the sweeper finds out
		}
		won, used, apart := f.sort(claims, written, grants)
		if len(won)+apart < len(claims) {
			crowd++
		}
		for t := range grants {
			f.p.room.Limits.Return(grants[t])
		}
		if err := f.begin(ctx, won, used); err != nil {
			return err
		}
		if len(won) == len(claims) && (refused == 0 || got.Complete()) {
			return nil // all that there is for this worker
		}
	}
	return nil
}

// find reads candidates: the head of the queue first, later somewhere behind it.
func (f *fetch) find(ctx context.Context, crowd int) (claim.Catch, error) {
	if crowd > 0 {
		return f.seeker.lookBehind(ctx, f.types, f.left, rand.IntN(f.left*4<<crowd))
	}
	return f.seeker.look(ctx, f.types, f.left, f.p.memory.news.Load())
}

// grants are what limited tasks need for their claims.
type grants map[*model.Task]limits.Grant

// usable says whether the task has a grant that counts at the time.
func (g grants) usable(t *model.Task, now time.Time) bool {
	grant, ok := g[t]
	return ok && (grant.Until.IsZero() || !now.After(grant.Until))
}

// admit asks for what the claims of limited tasks need.
func (f *fetch) admit(ctx context.Context, found []*model.Task) (grants, error) {
	now := f.p.room.Store.Clock.Now()
	var ask []*model.Task
	for _, t := range found {
		if eff, by := f.terms(t); f.p.room.Limits.Limited(t) && lifecycle.ConditionsMet(by.Only, t) && lifecycle.Claimable(t, f.WorkerID, eff, now) == "" {
			ask = append(ask, t)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	got, err := f.p.room.Limits.Admit(ctx, ask, f.exec)
	for t, until := range got.Later {
		f.seeker.Refused.Add(t.ID, now, until)
	}
	return got.Granted, err
}

// write carries claims or takeovers out. The next fetches leave out tasks that other clients
// hold, or that the server refuses to change.
func (f *fetch) write(ctx context.Context, claims []store.Write) ([]store.Written, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	written, err := f.p.room.Store.Tasks.Writes(ctx, claims, store.Patience)
	if err != nil {
		eff, _ := f.terms(claims[0].After)
		written, err = f.settle(ctx, claims, eff.Lease, err)
	}
	now := f.p.room.Store.Clock.Now()
	for i, w := range written {
		id := claims[i].Before.ID
		switch {
		case w.Applied:
			f.p.memory.hear(claims[i].After) // it may want further workers
		case w.Held:
			f.seeker.Refused.AddHeld(id, now)
		case w.Refused != nil:
			f.seeker.Refused.Add(id, now, time.Time{})
			f.p.log.Error().Err(w.Refused).Str("task_id", id).Msg("the database refuses every write of a task; it cannot run")
		}
	}
	return written, err
}

// sort takes the grants of what was won out of the others. apart is how many are held by other
// clients, or refused by the server.
func (f *fetch) sort(claims []store.Write, written []store.Written, grants grants) (won []*model.Task, used []limits.Grant, apart int) {
	f.p.room.Limits.Claimed(grants)
	for i, w := range written {
		before := claims[i].Before
		switch {
		case w.Applied:
			won, used = append(won, claims[i].After), append(used, grants[before])
			delete(grants, before)
		case w.Held:
			apart++
			delete(grants, before) // the sweeper frees its permits, once it is sure
		case w.Refused != nil:
			apart++
		}
	}
	return won, used, apart
}

// settle asks, until the server answers, which of the claims were won whose answer was lost
// with the error.
func (f *fetch) settle(ctx context.Context, claims []store.Write, lease time.Duration, err error) (written []store.Written, _ error) {
	for wait := 50 * time.Millisecond; err != nil && store.Classify(err) != store.Fatal && ctx.Err() == nil; wait = min(2*wait, time.Second) {
		f.p.memory.failed(err)
		if !clock.Pause(ctx, wait) {
			break
		}
		written, err = f.p.room.Store.Tasks.SettleClaim(ctx, claims, f.exec, lease)
	}
	return written, err
}

// begin takes what was won into the result when it may begin: where the type has a rate, in
// the time of its start. What came too late for that is given back, and what the caller does
// not wait for, also where that has ended ctx.
func (f *fetch) begin(ctx context.Context, won []*model.Task, used []limits.Grant) error {
	var last time.Time
	for _, g := range used {
		if g.From.After(last) {
			last = g.From
		}
	}
	now := f.p.room.Store.Clock.Now()
	var errs []error
	if last.After(now) {
		if !clock.Pause(ctx, last.Sub(now)+time.Millisecond) { // now is cut to milliseconds
			errs = append(errs, ctx.Err())
		}
		now = f.p.room.Store.Clock.Now()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), givingBack)
	defer cancel()
	for i, t := range won {
		early, reason := used[i].From.After(now), ""
		switch {
		case early:
			reason = "its start by the rate limit was not waited for"
		case used[i].Late(now):
			reason = "its start by the rate limit had passed"
		default:
			f.take(t)
			continue
		}
		_, err := f.p.room.GiveBack(ctx, t.HandleOf(f.exec), reason)
		if err == nil && early { // its permits went with its end
			used[i].Permits = nil
			f.p.room.Limits.Return(used[i])
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// givingBack is how long a fetch tries to give back what is not to begin; what it cannot
// lapses.
const givingBack = 5 * time.Second
