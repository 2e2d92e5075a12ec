package bulk

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// PageSize is how many tasks are named at a time.
const PageSize = 500

const (
	// examined is how many tasks the server looks at for a page: where few match, a page may have none.
	examined = 20_000
	atOnce   = 16 // tasks that are changed side by side

	maxReasons   = 5 // a reason may name what the task has, and each another thing
	otherReasons = "for other reasons"
)

// Counts are what became of the tasks that a filter selects.
type Counts struct {
	Matched int64 `json:"matched"`
	Changed int64 `json:"changed"`
	Skipped int64 `json:"skipped" doc:"refused: their state had changed meanwhile, or the action is not possible in it"`
	// Reasons are why, and of how many.
	Reasons map[string]int64 `json:"reasons,omitempty" doc:"why tasks were skipped, and how many"`
}

func (c *Counts) skip(err error) {
	c.Skipped++
	why := "the task no longer exists"
	var refused *model.RefusedError
	if errors.As(err, &refused) {
		why = refused.Reason
	}
	if c.Reasons == nil {
		c.Reasons = map[string]int64{}
	}
	if c.Reasons[why] == 0 && len(c.Reasons) >= maxReasons {
		why = otherReasons
	}
	c.Reasons[why]++
}

// Walk goes over all tasks that a filter selects, by id: a page of names at a time, however many there are.
type Walk struct {
	Store  *store.Store
	Filter store.Filter
	Where  store.Where
	// Do changes one life of a task. By its context, doors refuse the change if the task has begun another
	// life since it was found, or if the filter no longer selects its status.
	Do func(ctx context.Context, life store.Place) error
	// Failed hears of an error that concerns only this task; nil = such an error ends the walk.
	Failed func(life store.Place, err error)
	// Settled hears that everything up to a place was done and counted, after each page and at the end of a
	// walk that was cut off; nil = nobody does. ahead says that tasks behind the place were done, too: they
	// are not counted, and another walk from there does them again. An error ends the walk.
	Settled func(ctx context.Context, last store.Place, ahead bool) error
}

// All changes every task, and counts. What a task refuses does not stop the others; any other error
// does, when what has begun has ended.
func (w *Walk) All(ctx context.Context, counts *Counts) error {
	f := w.Filter
	for {
		page, next, err := w.Store.History.LifeNames(ctx, f, w.Where, store.Extent{Limit: PageSize, Examine: examined})
		if err != nil {
			return err
		}
		done, ahead, err := w.page(ctx, page, counts)
		var settled *store.Place
		if done > 0 {
			settled = &page[done-1]
		}
		if done == len(page) && next != nil {
			settled = next
		}
		if settled != nil && w.Settled != nil {
			err = errors.Join(err, w.Settled(ctx, *settled, ahead))
		}
		if err != nil || next == nil {
			return err
		}
		f.AfterID = next.ID
		if w.Where != store.InTasks {
			f.AfterGeneration = next.Generation
		}
	}
}

// result is what became of one task of a page.
type result struct {
	settled bool
	err     error // a refusal, or an error that concerns only this task
}

// page changes tasks side by side, in their order, and says how many of them, from the first on, are done.
// ahead says that others behind those may be done. It counts those only where nobody goes on from a place.
func (w *Walk) page(ctx context.Context, page []store.Place, counts *Counts) (done int, ahead bool, err error) {
	results, begun := make([]result, len(page)), 0
	slots := make(chan struct{}, atOnce)
	workers, going := errgroup.WithContext(ctx)
	for i, life := range page {
		select {
		case slots <- struct{}{}:
		case <-going.Done():
		}
		if going.Err() != nil {
			break
		}
		begun++
		workers.Go(func() error {
			defer func() { <-slots }()
			err := w.Do(command.Named(ctx, life.Generation, w.Filter.Statuses), life)
			if err != nil && !refused(err) && (w.Failed == nil || !ofTask(ctx, err)) {
				return err
			}
			results[i] = result{true, err}
			return nil
		})
	}
	err = workers.Wait()
	for done < begun && results[done].settled {
		done++
	}
	for i, r := range results[:begun] {
		if r.settled && (i < done || w.Settled == nil) {
			w.count(counts, page[i], r.err)
		}
	}
	if err == nil && done < len(page) { // nobody has begun the others
		err = context.Cause(ctx)
	}
	return done, done < begun, err
}

func (w *Walk) count(counts *Counts, life store.Place, err error) {
	switch {
	case err == nil:
		counts.Changed++
	case refused(err):
		counts.skip(err)
	default:
		w.Failed(life, err)
	}
}

// refused says whether the task does not allow its change, or is gone.
func refused(err error) bool {
	var refused *model.RefusedError
	return errors.As(err, &refused) || errors.Is(err, store.ErrNotFound)
}

// ofTask says whether an error concerns the one task: another may not meet it.
func ofTask(ctx context.Context, err error) bool {
	if ctx.Err() != nil || store.Denied(err) || errors.Is(err, producer.ErrClosed) {
		return false
	}
	var slow *slowError
	return errors.As(err, &slow) || errors.Is(err, model.ErrInvalid) || store.OfDocument(err) || !failure.OfDatabase(err)
}
