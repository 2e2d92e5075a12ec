package decision

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// running are the engines of this process. Planners of one database share one, unless they are of
// the same kind, or go by a clock of a test.
var running struct {
	sync.Mutex
	engines []*shared
}

// shared is an engine that runs, and the planners that came to it.
type shared struct {
	*Engine
	namespace store.Namespace
	bell      chan struct{}
	guests    []*guest // those that stay are members; guarded by running
}

// guest is a planner that an engine runs until ctx ends.
type guest struct {
	*member
	ctx  context.Context //nolint:containedctx // of the call of Run that waits for left
	left chan struct{}
}

// Run decides until ctx ends, and then returns nil. Before it returns it applies the decisions that
// it has made, for at most five seconds. It waits for a server that is down, and returns an error
// that waiting cannot fix, or that the decider has another engine. id names a new engine among the workers, kind is the type under which
// engines of this kind are listed there.
func Run[D any](ctx context.Context, id, kind string, d *Decider[D]) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	m := newMember(kind, d)
	e := newEngine(id, m)
	err = e.Start(ctx)
	if ctx.Err() != nil {
		m.signOff(ctx, id, signOffPatience)
		return nil // it was told to stop
	}
	if err != nil {
		return err
	}
	g := &guest{member: m, ctx: ctx, left: make(chan struct{})}
	if s := join(g, e); s.id != id {
		m.signOff(ctx, id, callTimeout) // the engine that it joined lists it
	}
	<-g.left
	return nil
}

// join has the guest run by an engine of this process, or by its own.
func join(g *guest, own *Engine) *shared {
	running.Lock()
	defer running.Unlock()
	namespace := g.store.Namespace()
	for _, s := range running.engines {
		if s.namespace == namespace && g.store.Local() == clock.System() && !slices.ContainsFunc(s.guests, func(o *guest) bool { return o.kind == g.kind }) {
			s.guests = append(s.guests, g)
			clock.Wake(s.bell)
			return s
		}
	}
	own.sweepsApart = true
	s := &shared{Engine: own, namespace: namespace, bell: make(chan struct{}, 1), guests: []*guest{g}}
	if g.store.Local() != clock.System() {
		s.namespace = store.Namespace{} // nobody's
	}
	running.engines = append(running.engines, s)
	go s.run()
	return s
}

// run works until nobody is left.
func (s *shared) run() {
	for s.settle() {
		s.work()
	}
}

// settle lets those go whose time is up, and takes in those who have come. It says whether anybody
// is here.
func (s *shared) settle() bool {
	running.Lock()
	var gone []*guest
	s.guests = slices.DeleteFunc(s.guests, func(g *guest) bool {
		if g.ctx.Err() != nil {
			gone = append(gone, g)
			return true
		}
		return false
	})
	here := len(s.guests) > 0
	if !here { // whoever comes now begins another engine
		running.engines = slices.DeleteFunc(running.engines, func(o *shared) bool { return o == s })
	}
	members := make([]*member, len(s.guests))
	for i, g := range s.guests {
		members[i] = g.member
	}
	running.Unlock()
	for _, g := range gone {
		g.news().listen(nil)
		g.sweeping.Wait() // it ends with the round
		g.flush(g.ctx, 0)
	}
	switch {
	case !here:
		gone[0].store.Series.Record(context.WithoutCancel(gone[0].ctx), true)
		gone[0].signOff(gone[0].ctx, s.id, signOffPatience)
	case !slices.Equal(s.members, members):
		s.members, s.beaten = members, -longest // the others learn of it
	}
	for _, m := range members {
		m.news().listen(s.bell)
	}
	for _, g := range gone {
		close(g.left)
	}
	return here
}

// work looks and decides until somebody comes or goes.
func (s *shared) work() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, g := range s.here() {
		stop := context.AfterFunc(g.ctx, cancel)
		defer stop()
	}
	for ctx.Err() == nil && len(s.here()) == len(s.members) {
		s.pause(ctx, s.Round(ctx))
	}
}

func (s *shared) here() []*guest {
	running.Lock()
	defer running.Unlock()
	return slices.Clone(s.guests)
}

// pause waits for the next look, and listens to what this process does meanwhile.
func (s *shared) pause(ctx context.Context, d time.Duration) {
	local := s.local()
	for until := local.Monotonic() + d; clock.PauseOr(ctx, until-local.Monotonic(), s.bell); {
		for _, m := range s.members {
			if m.hear(ctx) {
				now := local.Monotonic()
				m.worked, m.soon = now, soonLook
				until = min(until, now+max(soonLook, s.looks.Left()))
			}
		}
		if len(s.here()) != len(s.members) {
			return
		}
	}
}

// signOffPatience is how long a stop waits until the engine is removed from the workers.
const signOffPatience = 2 * time.Second

// signOff removes an engine from the workers.
func (m *member) signOff(ctx context.Context, id string, patience time.Duration) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := m.store.Workers.Remove(last, document(id, nil)); err != nil {
		m.log.Debug().Err(err).Msg("could not remove the engine's document")
	}
}

// Ended tells the engines of this process of the end of a task, which it has just written to the
// given database.
func Ended(st *store.Store, t *model.Task) {
	if len(t.Outbox) == 0 {
		return
	}
	running.Lock()
	defer running.Unlock()
	for _, s := range running.engines {
		if s.namespace != st.Namespace() {
			continue
		}
		for _, g := range s.guests {
			if slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return g.prompt(e.Kind) }) {
				g.news().ofEnd(t)
			}
		}
	}
}
