package limits

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	perSweep = 1000
	// fresh permits are left to whoever took them: the claim is on its way.
	fresh = 5 * time.Second
)

// Sweep frees the permits of executions that have ended or will never begin, and gives keys
// that have room to the next task that waits: what processes that died left over. Any number
// of processes may do it at once.
func (g *Gate) Sweep(ctx context.Context) error {
	for after := ""; ; {
		permits, err := g.store.OldSlots(ctx, g.store.Clock.Now().Add(-fresh), after, perSweep)
		if err != nil {
			return err
		}
		if err := g.sweep(ctx, permits); err != nil {
			return err
		}
		if len(permits) < perSweep {
			break
		}
		after = permits[len(permits)-1].Name
	}
	return g.sweepWaits(ctx)
}

func (g *Gate) sweep(ctx context.Context, permits []model.Permit) error {
	free, ahead, err := g.judge(ctx, permits)
	if err != nil {
		return err
	}
	if len(ahead) > 0 {
		// First what a claim that is still on its way would be guarded by; only then can
		// it be told whether it arrived.
		tasks, err := g.store.ByIDs(ctx, idsOf(ahead))
		if err != nil {
			return err
		}
		var fences []store.Write
		fenced := map[string]bool{}
		now := g.store.Clock.Now()
		for i := range ahead {
			t := tasks[ahead[i].TaskID]
			if t == nil || fenced[t.ID] || ahead[i].State(t) != model.PermitAhead {
				continue
			}
			fenced[t.ID] = true
			fences = append(fences, store.Write{Before: t, After: ahead[i].Fence(t, now)})
		}
		if _, err := g.store.Writes(ctx, fences, 0); err != nil {
			return err
		}
		more, _, err := g.judge(ctx, ahead)
		if err != nil {
			return err
		}
		free = append(free, more...)
	}
	return g.freeNow(ctx, free)
}

// judge reads the tasks of the permits and sorts them; those that are used are left out.
func (g *Gate) judge(ctx context.Context, permits []model.Permit) (free, ahead []model.Permit, err error) {
	tasks, err := g.store.HoldersOf(ctx, idsOf(permits))
	if err != nil {
		return nil, nil, err
	}
	for _, p := range permits {
		switch p.State(tasks[p.TaskID]) {
		case model.PermitFree:
			free = append(free, p)
		case model.PermitAhead:
			ahead = append(ahead, p)
		case model.PermitUsed:
		}
	}
	return free, ahead, nil
}

func idsOf(permits []model.Permit) []string {
	ids := make([]string, len(permits))
	for i, p := range permits {
		ids[i] = p.TaskID
	}
	return ids
}

// sweepWaits looks at every key that tasks were held back for.
func (g *Gate) sweepWaits(ctx context.Context) error {
	for after := ""; ; {
		waits, err := g.store.Waits(ctx, after, perLook)
		if err != nil || len(waits) == 0 {
			return err
		}
		after = waits[len(waits)-1].Name
		byType := map[string][]store.SlotOf{}
		for _, w := range waits {
			of := store.SlotOf{Type: w.Type, Key: w.Key}
			if w.At.Before(g.store.Clock.Now().Add(-waitKept)) {
				left, err := g.store.HeldBack(ctx, of, 1)
				if err != nil {
					return err
				}
				if len(left) == 0 {
					if err := g.store.ForgetWait(ctx, w); err != nil {
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
	}
}
