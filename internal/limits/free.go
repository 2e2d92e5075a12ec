package limits

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// freeing is what is to be given back: permits that are known, or those of executions.
type freeing struct {
	permits []lifecycle.Permit
	starts  []start
	taskID  string
	execIDs []string
	yielded []lifecycle.Permit // for others: this process does not look at once for what may have them
}

// Return gives back what grants took that no execution is open by, nor ever will be. It
// does not wait for it.
func (g *Gate) Return(grants ...Grant) {
	var f freeing
	for _, grant := range grants {
		f.permits, f.starts = append(f.permits, grant.Permits...), append(f.starts, grant.starts...)
	}
	g.free(f)
}

// Ended gives the permits of executions back that have ended, as a write that the database
// has acknowledged says. Those who do not know the permits look them up, also of a type that
// had a limit a moment ago.
func (g *Gate) Ended(t *model.Task, execIDs []string) {
	if len(execIDs) > 0 && (g.Limited(t) || g.knows(t.Type)) {
		g.free(freeing{taskID: t.ID, execIDs: execIDs})
	}
}

// knows says whether this process has met limits of the type.
func (g *Gate) knows(typ string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settles[typ] != nil
}

// ReturnForOthers is [Gate.Return] of permits of a type that another process waits for, see
// [Gate.Yield].
func (g *Gate) ReturnForOthers(permits []lifecycle.Permit) { g.free(freeing{yielded: permits}) }

func (g *Gate) free(f freeing) {
	if len(f.permits) == 0 && len(f.starts) == 0 && len(f.yielded) == 0 && f.taskID == "" {
		return
	}
	// An error is the queue's end: the process stops, and the sweeper of another goes on.
	_ = g.queue.Put(g.ctx, f)
}

// flush frees a batch, and then gives the keys that have got room to the next.
func (g *Gate) flush(batch []freeing) {
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	var permits, yielded []lifecycle.Permit
	var starts []start
	var prepared []string
	for _, f := range batch {
		yielded = append(yielded, f.yielded...)
		starts = append(starts, f.starts...)
		permits = append(permits, f.permits...)
		if f.taskID == "" {
			continue
		}
		found, err := g.store.Permits.OfExecutions(ctx, f.taskID, f.execIDs)
		if err != nil {
			g.report(err, "looking up permits")
			continue
		}
		for _, p := range found {
			// What follows an execution has begun only if that has ended. What is prepared may begin
			// at any moment.
			if p.Next == nil || slices.Contains(f.execIDs, p.Next.ExecID) {
				permits = append(permits, p)
			} else {
				prepared = append(prepared, p.Name)
			}
		}
	}
	g.report(g.store.Permits.Free(ctx, yielded), "freeing permits for other processes")
	g.report(g.returnStarts(ctx, starts), "giving starts back")
	g.report(g.freeNow(ctx, permits), "releasing permits")
	if len(prepared) > 0 {
		_, err := g.settle(ctx, func(ordered context.Context) ([]lifecycle.Permit, error) {
			return g.store.Permits.Named(ordered, prepared)
		})
		g.report(err, "releasing permits")
	}
}

func (g *Gate) freeNow(ctx context.Context, permits []lifecycle.Permit) error {
	err := g.store.Permits.Free(ctx, permits)
	if err != nil && !errors.Is(err, store.ErrHeld) { // then the others are free
		return err
	}
	of := make(map[store.LimitOf]bool, len(permits))
	for _, p := range permits {
		of[store.LimitOf{Type: p.Type, Key: p.Key}] = true
	}
	return cmp.Or(g.freed(ctx, of), err)
}

// freed looks at what waits for the limits, which have room now.
func (g *Gate) freed(ctx context.Context, limits map[store.LimitOf]bool) error {
	keys := map[string][]store.LimitOf{}
	woken := false
	for of, has := range limits {
		switch {
		case !has:
		case of.Key == "":
			woken = g.roomy(of.Type) || woken
		default:
			keys[of.Type] = append(keys[of.Type], of)
		}
	}
	if woken {
		g.wake()
	}
	for typ, all := range keys {
		for some := range slices.Chunk(all, perLook) {
			if err := g.Look(ctx, typ, some); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Gate) report(err error, doing string) {
	if err != nil && g.ctx.Err() == nil && !store.Away(err) {
		g.log.Warn().Err(err).Str("doing", doing).Msg("could not update permits; the sweeper will do it")
	}
}
