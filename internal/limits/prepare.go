package limits

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Preparation asks that an execution may follow a running one by its permit.
type Preparation struct {
	Permit  lifecycle.Permit
	Running string // exec id
	Task    *model.Task
	ExecID  string // of the claim that follows
}

// Prepare notes in permits of a type what follows their executions, and returns those that say so
// now, by their names. It prepares none of a task that needs more than the type's permit. Once a
// second it leaves one out, whose permit may have to go to another process, see [Gate.Yield]. After
// an error some may be prepared: their permits are left to the sweeper.
func (g *Gate) Prepare(ctx context.Context, typ string, all []Preparation) (map[string]lifecycle.Permit, error) {
	limit, err := g.limitOf(ctx, typ)
	if err != nil {
		return nil, err
	}
	now := g.store.Clock.Now()
	var passes []store.Pass
	for _, p := range all {
		if p.Task.Options.LimitKey == "" {
			passes = append(passes, store.Pass{From: p.Permit, To: p.Permit.Prepare(p.Running, p.Task, p.ExecID, now)})
		}
	}
	g.with(typ, func(k *candidates, now time.Duration) {
		if k.wishCheckDue(now) && now-k.spared >= wishAfter && len(passes) > 0 {
			k.spared, passes = now, passes[1:]
		}
	})
	prepared, err := g.store.Permits.Pass(ctx, typ, limit, passes)
	byName := make(map[string]lifecycle.Permit, len(prepared))
	for _, p := range prepared {
		byName[p.Name] = p
	}
	return byName, err
}

// Outranked reports whether a better task of the type is known than the given one.
func (g *Gate) Outranked(t *model.Task) bool {
	best, known := g.Best(t.Type)
	return known && best > t.Priority
}

// Version changes with the limits that this process knows.
func (g *Gate) Version() int64 { return g.types.Version() }
