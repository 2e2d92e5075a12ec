package pull

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	pullScan = 200 // lapsed leases that one fetch looks at

	// All fetches of a process together look for lapsed leases as often as one worker does
	// that is alone: four times a second, and less often where the database answers slowly.
	scanPause   = time.Second / 4
	longestPace = 5 * time.Second
)

// scan is the search for lapsed leases of some types.
type scan struct {
	pace *clock.Pacer
	from store.LapsedFrom // where the next look begins; of the look that is under way alone
}

// look finds lapsed leases. After a full look the next one goes on behind it.
func (s *scan) look(ctx context.Context, st *store.Store, types []string) ([]*model.Task, error) {
	found, err := st.Tasks.Lapsed(ctx, types, &s.from, pullScan)
	if len(found) < pullScan {
		s.from = store.LapsedFrom{}
	}
	for _, t := range found {
		s.from.Leave(t)
	}
	return found, err
}

// takeOver takes tasks over lapsed leases, as far as the request goes, and leaves the rest of
// what it found for others, as a consumer does.
func (f *fetch) takeOver(ctx context.Context) error {
	trust := f.p.memory.trust
	var found []*model.Task
	scan := f.p.memory.scan(f.types, f.p.room.Store.Local())
	looked, err := scan.pace.Try(func() (err error) {
		found, err = scan.look(ctx, f.p.room.Store, f.types)
		return err
	})
	if err != nil || !looked {
		return err
	}
	trust.Answered()
	if len(found) > 0 || f.p.memory.unbased() {
		if err := f.checkPrimary(ctx); err != nil {
			return err
		}
	}
	room := f.p.room.Store.Tasks.Fit(f.left) // what is taken over is read whole
	l := f.claimer.Judge(found, f.exec, room, nil, trust)
	defer func() { f.p.watch.observe(f.types, l.Left) }()
	out, err := f.carryOut(ctx, l)
	for _, w := range out.Won {
		f.p.memory.hear(w.After) // it may want further workers
		f.take(w.After, w.Before.LapseAt)
	}
	if err != nil {
		return err
	}
	done, _, err := f.claimer.Leave(ctx, l.Leaves)
	for _, w := range done {
		f.p.memory.hear(w.After)
	}
	return err
}

// carryOut writes takeovers, whether ctx ends meanwhile or not: a takeover may be on its way then, and its task would be
// held for a worker that does not know of it. If the caller waits no longer, what they win is given back. They go on for
// sharedTime after that; what is won later lapses.
func (f *fetch) carryOut(ctx context.Context, l claim.Lapses) (claim.Outcome, error) {
	if len(l.TakeOvers) == 0 {
		return claim.Outcome{}, nil
	}
	type answer struct {
		claim.Outcome
		err error
	}
	on, cancel := context.WithCancel(context.WithoutCancel(ctx))
	by, exec, answered := *f.claimer, f.exec, make(chan answer, 1)
	by.Unsure, by.Send = on, nil // which would give back, too, what it finds won
	go func() {
		defer cancel()
		out, err := by.TakeOver(on, &l, exec)
		answered <- answer{out, err}
	}()
	select {
	case a := <-answered:
		return a.Outcome, a.err
	case <-ctx.Done():
		time.AfterFunc(sharedTime, cancel)
		f.giveBack(ctx, exec, func() (won []*model.Task) {
			for _, w := range (<-answered).Won {
				won = append(won, w.After)
			}
			return won
		})
		return claim.Outcome{}, context.Cause(ctx)
	}
}

// checkPrimary asks who the primary is, and notes it for workers that start: another one than before
// means that the workers may just not have been able to ping. A reading of another server's clock is replaced.
func (f *fetch) checkPrimary(ctx context.Context) error {
	name, err := f.p.room.Store.Primary(ctx)
	if err != nil {
		return err
	}
	if f.p.memory.trust.SawPrimary(name) {
		f.p.room.Store.Forget()
		f.p.room.Store.Clock.Doubt()
	}
	f.p.room.Store.Control.NoteTerm(ctx, name)
	if f.p.memory.trust.WantsClock() {
		return f.p.room.Store.ReadClock(ctx)
	}
	return nil
}
