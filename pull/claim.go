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

const (
	// tries is how often a fetch looks again, further down the queue, when others were quicker.
	tries = 4
	// mostLooks and lookingTime bound how often it looks behind tasks that limits keep from it.
	mostLooks   = 50
	lookingTime = 2 * time.Second
)

// claimDue claims what is due.
func (f *fetch) claimDue(ctx context.Context) error {
	local := f.p.room.Store.Local()
	until := local.Monotonic() + lookingTime
	rivals := 0 // tries in which other processes were quicker
	for try, look := 0, 0; try < tries && look < mostLooks && f.left > 0 && len(f.types) > 0; look++ {
		crowd := f.p.memory.crowd(f.seeker.Finder, f.types)
		found, dealt, all, err := f.find(ctx, crowd, rivals)
		if err != nil || len(found) == 0 {
			return err
		}
		// A permit names the one try that it is for: what an earlier one gives back, a moment
		// later perhaps, must not be what this one has taken since.
		f.exec = claim.NewExecID()
		out, err := f.claimer.Claim(ctx, claim.Bid{ExecID: f.exec, Tasks: found, Most: f.left, Search: store.Patience})
		crowd.settle(dealt)
		f.claimer.Abandon(ctx, &out)
		f.p.room.Limits.Return(out.Unused...)
		if out.Lost > 0 {
			rivals++
		}
		used, timed := make([]limits.Grant, len(out.Won)), false
		for i, w := range out.Won {
			used[i] = out.Grants[w.Before]
			timed = timed || !used[i].From.IsZero()
			f.p.memory.hear(w.After) // it may want further workers
		}
		if err := errors.Join(f.begin(ctx, out.Won, used), err); err != nil {
			return err
		}
		limited := f.passOver(out.Missed)
		switch {
		case limited && !all && !timed && local.Monotonic() < until: // who has a start by a rate waits for nothing more
		case out.Lost+out.Unwritable+len(out.Held) > 0 || out.Refused > 0 && !all:
			try++
		default:
			return nil // all that there is for this worker
		}
	}
	return nil
}

// passOver notes what has no room for the fetch, and reports whether there is any: types, which it looks for no longer,
// and keys, whose tasks are held back as they are found.
func (f *fetch) passOver(missed []*model.Task) bool {
	for _, t := range missed {
		if t.Options.LimitKey == "" || f.p.room.Limits.Waiting(t.Type) {
			f.types = slices.DeleteFunc(slices.Clone(f.types), func(typ string) bool { return typ == t.Type })
		} else {
			f.full[limitOf(t)] = true
		}
	}
	if len(missed) > 0 && len(f.full) > 0 {
		f.wider++
	}
	return len(missed) > 0
}

func limitOf(t *model.Task) store.LimitOf {
	return store.LimitOf{Type: t.Type, Key: t.Options.LimitKey}
}

// few are the candidates to claim: no more than may be claimed, and those whose key is full. They leave the queue together,
// and take no permit that others could use.
func (f *fetch) few(found []*model.Task) []*model.Task {
	n := 0
	return slices.DeleteFunc(found, func(t *model.Task) bool {
		if f.full[limitOf(t)] {
			return false
		}
		n++
		return n > f.left
	})
}

// find returns candidates: those that only this worker finds, with what it is dealt of what its crowd
// finds. all says that there are no more. The caller settles what was dealt.
func (f *fetch) find(ctx context.Context, c *crowd, rivals int) (found, dealt []*model.Task, all bool, err error) {
	most := min(f.left<<min(3*f.wider, 10), maxFetch) // ever more, where tasks of full keys stand first
	rare, err := f.seeker.FindRare(ctx, f.types, most)
	if err != nil {
		return nil, nil, false, err
	}
	now := f.p.room.Store.Clock.Now()
	got, err := c.take(ctx, ask{most: most, rivals: rivals, wants: func(t *model.Task) bool { return !f.seeker.Refused.Has(t.ID, now) }})
	if err != nil {
		return nil, nil, false, err
	}
	if len(got.dealt)+len(rare) == 0 && got.passed { // what it refused keeps others from being found
		var own claim.Catch
		own, err = f.seeker.look(ctx, f.types, most, f.p.memory.news.Load(), true)
		found, all = own.Tasks, own.Complete()
	} else {
		found, all = claim.Best(slices.Concat(rare, got.dealt), most), len(got.dealt) < f.p.room.Store.Tasks.Fit(most)
	}
	few := f.few(found)
	return few, got.dealt, all && len(few) == len(found), err
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
