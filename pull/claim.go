package pull

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// tries is how often a fetch looks again, further down the queue, when others were quicker.
const tries = 4

// claimDue claims what is due.
func (f *fetch) claimDue(ctx context.Context) error {
	crowd := f.p.memory.crowd(f.seeker.Finder, f.types)
	rivals := 0 // tries in which other processes were quicker
	for try := 0; try < tries && f.left > 0; try++ {
		found, dealt, all, err := f.find(ctx, crowd, rivals)
		if err != nil || len(found) == 0 {
			return err
		}
		// A permit names the one try that it is for: what an earlier one gives back, a moment
		// later perhaps, must not be what this one has taken since.
		f.exec = claim.NewExecID()
		out, err := f.claimer.Claim(ctx, claim.Bid{ExecID: f.exec, Tasks: found, Search: store.Patience})
		crowd.settle(dealt)
		f.claimer.Abandon(ctx, &out)
		f.p.room.Limits.Return(out.Unused...)
		if out.Lost > 0 {
			rivals++
		}
		used := make([]limits.Grant, len(out.Won))
		for i, w := range out.Won {
			used[i] = out.Grants[w.Before]
			f.p.memory.hear(w.After) // it may want further workers
		}
		if err := errors.Join(f.begin(ctx, out.Won, used), err); err != nil {
			return err
		}
		if out.Lost+out.Unwritable+len(out.Held) == 0 && (out.Refused == 0 || all) {
			return nil // all that there is for this worker
		}
	}
	return nil
}

// find returns candidates: those that only this worker finds, with what it is dealt of what its crowd
// finds. all says that there are no more. The caller settles what was dealt.
func (f *fetch) find(ctx context.Context, c *crowd, rivals int) (found, dealt []*model.Task, all bool, err error) {
	rare, err := f.seeker.FindRare(ctx, f.types, f.left)
	if err != nil {
		return nil, nil, false, err
	}
	now := f.p.room.Store.Clock.Now()
	got, err := c.take(ctx, ask{most: f.left, rivals: rivals, wants: func(t *model.Task) bool { return !f.seeker.Refused.Has(t.ID, now) }})
	if err != nil {
		return nil, nil, false, err
	}
	if len(got.dealt)+len(rare) == 0 && got.passed { // what it refused keeps others from being found
		own, err := f.seeker.look(ctx, f.types, f.left, f.p.memory.news.Load(), true)
		return own.Tasks, nil, own.Complete(), err
	}
	return claim.Best(slices.Concat(rare, got.dealt), f.left), got.dealt, len(got.dealt) < f.left, nil
}

// begin takes what was won into the result when it may begin: where the type has a rate, in
// the time of its start. What came too late for that is given back, and what the caller does
// not wait for, also where that has ended ctx.
func (f *fetch) begin(ctx context.Context, won []store.Write, used []limits.Grant) error {
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
	for i, w := range won {
		early, reason := used[i].From.After(now), ""
		switch {
		case early:
			reason = "its start by the rate limit was not waited for"
		case used[i].Late(now):
			reason = "its start by the rate limit had passed"
		default:
			f.take(w.After, w.Before.DueAt)
			continue
		}
		_, err := f.p.room.GiveBack(ctx, input.HandleOf(w.After, f.exec), reason)
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
