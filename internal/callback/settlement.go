package callback

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Types is what the documents of types say now.
type Types interface {
	Options(typ string) model.Options
}

// Settlement is the outcome kind [lifecycle.OutcomeDelivery]: the end of a delivery is told to
// the life whose callback it was, also where that has moved to the history.
type Settlement struct {
	Store *store.Store
	Types Types
}

// Name implements [outcome.Kind].
func (Settlement) Name() string { return lifecycle.OutcomeDelivery }

// rounds is how often a settlement that somebody crossed is decided again at once.
const rounds = 5

// Carry implements [outcome.Kind].
func (s Settlement) Carry(ctx context.Context, entries []outcome.Entry) []error {
	errs := make([]error, len(entries))
	left := make([]int, 0, len(entries))
	for i, e := range entries {
		if e.Life.Origin != nil { // what has none was made by hand, and nobody learns of it
			left = append(left, i)
		}
	}
	for range rounds {
		if left = s.settle(ctx, entries, left, errs); len(left) == 0 {
			return errs
		}
	}
	for _, i := range left {
		errs[i] = errors.New("recording the delivery on task " + entries[i].Life.Origin.ID + ": the task changed during every attempt")
	}
	return errs
}

// settle reads, decides and writes once, all in one batch, and returns what was crossed.
func (s Settlement) settle(ctx context.Context, entries []outcome.Entry, which []int, errs []error) (crossed []int) {
	fail := func(err error) []int {
		for _, i := range which {
			errs[i] = err
		}
		return nil
	}
	if len(which) == 0 {
		return nil
	}
	ids := make([]string, 0, len(which))
	for _, i := range which {
		ids = append(ids, entries[i].Life.Origin.ID)
	}
	tasks, err := s.Store.Tasks.States(ctx, ids)
	if err != nil {
		return fail(err)
	}
	now := s.Store.Clock.Now()
	var writes []store.Write
	var of []int
	taken := map[string]bool{}
	var past []store.LifeOf
	var ofPast []int
	for _, i := range which {
		e := entries[i].Life
		t, there := tasks[e.Origin.ID]
		if there && t == nil {
			errs[i] = errors.New("recording the delivery on task " + e.Origin.ID + ": this release cannot read the task")
			continue
		}
		if t == nil || t.Generation != e.Origin.Generation {
			if lifecycle.Delivers(e.Status) { // in the history, or deleted
				past, ofPast = append(past, store.LifeOf{TaskID: e.Origin.ID, Generation: e.Origin.Generation}), append(ofPast, i)
			}
			continue
		}
		if !t.Status.Ended() {
			errs[i] = fmt.Errorf("recording the delivery on task %s: the server that answered does not have its end yet", t.ID)
			continue
		}
		if taken[t.ID] { // two ends of one delivery: one after the other
			crossed = append(crossed, i)
			continue
		}
		after := lifecycle.Delivered(t, lifecycle.Delivers(e.Status), lifecycle.EffectiveOf(t, s.Types.Options(t.Type)), now)
		if after != t {
			taken[t.ID] = true
			writes, of = append(writes, store.Write{Before: t, After: after}), append(of, i)
		}
	}
	held, err := s.Store.History.DeliveredLives(ctx, past)
	if err != nil {
		for _, i := range ofPast {
			errs[i] = err
		}
	}
	for _, n := range held { // the sweeper tries again
		errs[ofPast[n]] = fmt.Errorf("recording the delivery on the history of task %s: %w", past[n].TaskID, store.ErrHeld)
	}
	if len(writes) == 0 {
		return crossed
	}
	written, err := s.Store.Tasks.Writes(ctx, writes, store.Patience)
	if err != nil {
		return fail(err)
	}
	for n, w := range written {
		switch {
		case w.Refused != nil:
			errs[of[n]] = w.Refused
		case w.Held: // the sweeper tries again
			errs[of[n]] = fmt.Errorf("recording the delivery on task %s: %w", writes[n].After.ID, store.ErrHeld)
		case !w.Applied:
			crossed = append(crossed, of[n])
		}
	}
	return crossed
}
