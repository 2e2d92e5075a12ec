package limits

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// A limit that is set, or lowered, finds executions that began without it: they have no
// permit, or one beyond it. Until a process has seen that there are none, it counts them.
// Whether a limit is new it cannot know, so each is that when the process first meets it, and
// again after any type was changed: this one may have been without a limit meanwhile.

const (
	// settleAfter is how long a process looks at least: who has not heard of a limit goes on
	// claiming without it, for as long as a copy of the types may be old, and while those
	// claims are on their way.
	settleAfter = 5 * time.Second
	// Between the looks: an eighth of the time since the first, within these. So the end of a
	// short execution is seen soon, and one of days costs two reads a minute.
	soonestLook, rarestLook = time.Second, 30 * time.Second
)

// settling is what a process knows of what began without the limits of a type.
type settling struct {
	version int64         // of the types when this process met them
	since   time.Duration // monotonic: when that was
	until   time.Time     // the store's: whoever claims later has heard of the limits
	known   bool          // it has looked
	looked  time.Duration // monotonic
	settled bool
	others  others
}

// pause is how long to wait until the next look.
func (s *settling) pause() time.Duration {
	return min(max((s.looked-s.since)/8, soonestLook), rarestLook)
}

// others counts open executions that have no permit.
type others struct {
	ofType int
	ofKey  map[string]int
}

// othersOf are those that began without the limits of a type; settled says that there are
// none and will not be.
func (g *Gate) othersOf(ctx context.Context, typ string) (o others, settled bool, err error) {
	version, now := g.types.Version(), g.store.Local().Monotonic()
	g.mu.Lock()
	s := g.settles[typ]
	if s == nil || s.version != version {
		s = &settling{version: version, since: now, until: g.store.Clock.Now().Add(settleAfter)}
		g.settles[typ] = s
	}
	look := !s.known || !s.settled && now-s.looked >= s.pause()
	o, settled = s.others, s.settled
	g.mu.Unlock()
	if !look {
		return o, settled, nil
	}
	o, beyond, err := g.lookForOthers(ctx, typ, s.until)
	if err != nil {
		return others{}, false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.known, s.others, s.looked = true, o, now
	s.settled = now-s.since >= settleAfter && !beyond && o.ofType == 0 && len(o.ofKey) == 0
	return o, s.settled, nil
}

// lookAgain is when the end of what began without a limit can be seen; zero = it has none of
// the key.
func (g *Gate) lookAgain(of store.LimitOf) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.settles[of.Type]
	if s == nil || s.others.ofKey[of.Key] == 0 {
		return time.Time{}
	}
	return g.store.Clock.Now().Add(max(s.looked+s.pause()-g.store.Local().Monotonic(), 0) + time.Millisecond)
}

// lookForOthers reads the tasks first: a permit is taken before its execution begins, and freed
// after it has ended, so an execution is counted that ends meanwhile, and none is forgotten.
// beyond says that a permit is taken that is beyond the type's limit, or beyond a limit of keys so
// great that permits are taken without looking.
func (g *Gate) lookForOthers(ctx context.Context, typ string, until time.Time) (o others, beyond bool, err error) {
	t := g.types.Get(typ)
	ofType, ofKey := ruleOf(t).maxRunning, lifecycle.Keyed(t).MaxRunning
	tasks, unread, err := g.store.Permits.OpenOf(ctx, typ, until)
	if err != nil {
		return o, false, err
	}
	ids := make([]string, 0, len(tasks)+len(unread))
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	for _, u := range unread {
		ids = append(ids, u.ID)
	}
	permits, err := g.store.Permits.OfTasks(ctx, ids)
	if err != nil {
		return o, false, err
	}
	type permit struct{ exec, key string }
	has, named := make(map[permit]bool, len(permits)), map[string]bool{}
	for _, p := range permits {
		for _, use := range []*lifecycle.PermitUse{&p.PermitUse, p.Next} {
			if use != nil {
				has[permit{use.ExecID, p.Key}] = true
				named[use.TaskID] = named[use.TaskID] || p.Key == ""
			}
		}
	}
	o.ofKey = map[string]int{}
	for _, u := range unread {
		if ofType > 0 && !named[u.ID] {
			o.ofType++ // one execution, as far as anybody knows
		}
	}
	for _, t := range tasks {
		key := t.Options.LimitKey
		for i := range t.WorkerStates {
			w := &t.WorkerStates[i]
			if !lifecycle.Open(w) {
				continue
			}
			if ofType > 0 && !has[permit{w.ExecID, ""}] {
				o.ofType++
			}
			if ofKey > 0 && key != "" && !has[permit{w.ExecID, key}] {
				o.ofKey[key]++
			}
		}
	}
	beyond, err = g.store.Permits.TakenBeyond(ctx, typ, ofType, ofKey)
	return o, beyond, err
}
