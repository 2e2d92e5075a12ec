package limits

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
)

// What one round looks at; the next goes on from there.
const (
	permitsPerRound = 1000
	keysPerRound    = 2 * perLook
	passPause       = time.Minute
)

// Sweep frees the permits of executions that have ended or will never begin, and gives keys
// that have room to the next task that waits: what processes that died left over. Any number
// of processes may do it at once. One round is bounded; more says that there may be permits or
// keys left at which it is time to look.
func (g *Gate) Sweep(ctx context.Context) (more bool, err error) {
	if err := g.types.Fresh(ctx, tasktypes.MaxAge); err != nil {
		return false, err
	}
	if more, err = g.sweepPermits(ctx); err != nil {
		return false, err
	}
	left, err := g.sweepWaits(ctx)
	return more || left, err
}

func (g *Gate) sweepPermits(ctx context.Context) (more bool, err error) {
	n, err := g.settle(ctx, func(ordered context.Context) ([]lifecycle.Permit, error) {
		return g.store.Permits.Due(ordered, permitsPerRound)
	})
	return n == permitsPerRound, err
}

// settle reads n permits and frees those that nobody uses.
func (g *Gate) settle(ctx context.Context, read func(ordered context.Context) ([]lifecycle.Permit, error)) (n int, err error) {
	ordered, end, err := g.store.Permits.InOrder(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	permits, err := read(ordered)
	if err != nil || len(permits) == 0 {
		return 0, err
	}
	first, err := g.judge(ordered, permits)
	if err != nil {
		return 0, err
	}
	free, kept := first[lifecycle.PermitFree], first[lifecycle.PermitUsed]
	if ahead := first[lifecycle.PermitAhead]; len(ahead) > 0 {
		if err := g.fence(ctx, ahead); err != nil {
			return 0, err
		}
		again, err := g.judge(ordered, ahead)
		if err != nil {
			return 0, err
		}
		free = append(free, again[lifecycle.PermitFree]...)
		kept = append(append(kept, again[lifecycle.PermitUsed]...), again[lifecycle.PermitAhead]...)
	}
	if err := g.freeNow(ctx, free); err != nil {
		return 0, err
	}
	return len(permits), g.store.Permits.Saw(ctx, kept)
}

// judge reads the tasks of the permits and sorts them.
func (g *Gate) judge(ordered context.Context, permits []lifecycle.Permit) (sorted map[lifecycle.PermitState][]lifecycle.Permit, err error) {
	tasks, err := g.store.Permits.HoldersOf(ordered, idsOf(permits))
	if err != nil {
		return nil, err
	}
	sorted = map[lifecycle.PermitState][]lifecycle.Permit{}
	for _, p := range permits {
		state := p.State(tasks)
		sorted[state] = append(sorted[state], p)
	}
	return sorted, nil
}

// fence raises what a claim that is still on its way would be guarded by: afterwards it can
// be told whether it arrived.
func (g *Gate) fence(ctx context.Context, ahead []lifecycle.Permit) error {
	tasks, err := g.store.Tasks.ByIDs(ctx, idsOf(ahead))
	if err != nil {
		return err
	}
	var fences []store.Write
	fenced := map[string]bool{}
	now := g.store.Clock.Now()
	for i := range ahead {
		for _, f := range ahead[i].Fences(tasks, now) {
			if !fenced[f[0].ID] {
				fenced[f[0].ID] = true
				fences = append(fences, store.Write{Before: f[0], After: f[1]})
			}
		}
	}
	_, err = g.store.Tasks.Writes(ctx, fences, store.Patience)
	return err
}

func idsOf(permits []lifecycle.Permit) []string {
	ids := make([]string, 0, len(permits))
	for _, p := range permits {
		ids = append(ids, p.TaskID)
		if p.Next != nil {
			ids = append(ids, p.Next.TaskID)
		}
	}
	return ids
}

// sweepWaits looks at the keys that tasks were held back for: at so many each round, from
// where the last one stopped. The first pass over all of them, and one a minute, is made without
// a pause. Those whose next start this process
// waits for already it passes over; so whoever sweeps first after a restart knows of all.
func (g *Gate) sweepWaits(ctx context.Context) (more bool, err error) {
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	for range keysPerRound / perLook {
		waits, err := g.store.Permits.Waits(ctx, g.looked, perLook)
		if err != nil {
			return false, err
		}
		if err := g.lookFor(ctx, g.unexpected(waits)); err != nil {
			return false, err
		}
		if len(waits) < perLook {
			g.looked, g.passed = "", max(g.store.Local().Monotonic(), 1)
			return false, nil
		}
		g.looked = waits[len(waits)-1].Name
	}
	return g.passed == 0 || g.store.Local().Monotonic()-g.passed > passPause, nil
}

// unexpected are those keys that no look of this process is planned for.
func (g *Gate) unexpected(waits []store.Wait) []store.Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(waits, func(w store.Wait) bool {
		k := g.due[store.LimitOf{Type: w.Type, Key: w.Key}]
		return k != nil && k.limit == keyRuleOf(g.types.Get(w.Type))
	})
}

func (g *Gate) lookFor(ctx context.Context, waits []store.Wait) error {
	byType := map[string][]store.LimitOf{}
	for _, w := range waits {
		of := store.LimitOf{Type: w.Type, Key: w.Key}
		if w.At.Before(g.store.Clock.Now().Add(-waitKept)) {
			left, err := g.store.Permits.HeldBack(ctx, of, 1)
			if err != nil {
				return err
			}
			if len(left) == 0 {
				if err := g.store.Permits.ForgetWait(ctx, w); err != nil {
					return err
				}
				continue
			}
		}
		byType[w.Type] = append(byType[w.Type], of)
	}
	for typ, keys := range byType {
		if err := g.Look(ctx, typ, keys); err != nil {
			return err
		}
	}
	return nil
}
