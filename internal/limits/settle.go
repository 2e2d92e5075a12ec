package limits

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// A limit that is set, or lowered, finds executions that began without it: they have no
// permit, or one beyond it. Until a process has seen that there are none, it counts them. Which
// limits are new it cannot know, so each that it meets for the first time is one to it.

const (
	// settleAfter is how long a process looks at least: who has not heard of a limit goes on
	// claiming without it, for as long as a copy of the types may be old, and while those
	// claims are on their way.
	settleAfter = 5 * time.Second
	lookPause   = time.Second // between the looks
)

// most is how many executions of a type, and of each key of it, may be open; 0 = any number.
type most struct{ ofType, ofKey int }

func mostOf(t *model.TaskType) most {
	return most{ruleOf(t).maxRunning, t.Keyed().MaxRunning}
}

// settling is what a process knows of what began without a limit.
type settling struct {
	limit   most
	since   time.Duration // monotonic: when this process first met it
	looked  time.Duration // monotonic
	settled bool
	others  others
}

// others counts open executions that have no permit.
type others struct {
	ofType int
	ofKey  map[string]int
}

// othersOf are those that began without the limits of a type; settled says that there are
// none and will not be.
func (g *Gate) othersOf(ctx context.Context, typ string) (o others, settled bool, err error) {
	limit, now := mostOf(g.types.Get(typ)), g.store.Local().Monotonic()
	g.mu.Lock()
	s := g.settles[typ]
	if s == nil || s.limit != limit {
		s = &settling{limit: limit, since: now, looked: now - lookPause}
		g.settles[typ] = s
	}
	o, settled = s.others, s.settled
	look := !settled && now-s.looked >= lookPause
	g.mu.Unlock()
	if !look {
		return o, settled, nil
	}
	o, beyond, err := g.lookForOthers(ctx, typ, limit)
	if err != nil {
		return others{}, false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.others, s.looked = o, now
	s.settled = now-s.since >= settleAfter && !beyond && o.ofType == 0 && len(o.ofKey) == 0
	return o, s.settled, nil
}

// lookForOthers reads the tasks first: a permit is taken before its execution begins, and freed
// after it has ended, so an execution is counted that ends meanwhile, and none is forgotten.
func (g *Gate) lookForOthers(ctx context.Context, typ string, limit most) (o others, beyond bool, err error) {
	tasks, err := g.store.OpenOf(ctx, typ)
	if err != nil {
		return o, false, err
	}
	permits, err := g.store.PermitsOf(ctx, typ)
	if err != nil {
		return o, false, err
	}
	type permit struct{ exec, key string }
	has := make(map[permit]bool, len(permits))
	for _, p := range permits {
		has[permit{p.ExecID, p.Key}] = true
		n := limit.ofType
		if p.Key != "" {
			n = limit.ofKey
		}
		beyond = beyond || n > 0 && store.SlotNumber(p) >= n
	}
	o.ofKey = map[string]int{}
	for _, t := range tasks {
		key := t.Options.LimitKey
		for i := range t.WorkerStates {
			w := &t.WorkerStates[i]
			if !w.Open() {
				continue
			}
			if limit.ofType > 0 && !has[permit{w.ExecID, ""}] {
				o.ofType++
			}
			if limit.ofKey > 0 && key != "" && !has[permit{w.ExecID, key}] {
				o.ofKey[key]++
			}
		}
	}
	return o, beyond, nil
}
