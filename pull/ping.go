package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Pinged is the result of [Puller.Ping].
type Pinged struct {
	// Until is the end of the lease, in the database's time. Ping again well before it.
	Until time.Time
	// CancelRequested reports that the task is being cancelled, or that its worker filter no
	// longer names this worker: stop the work and end the execution with Complete or Fail. An
	// excluded worker's Fail counts no error: it releases the task for the other workers.
	CancelRequested bool
	// PingInterval is how often to ping from now on: it may have changed since the fetch. It is at
	// most half of the lease, which stays that of the claim.
	PingInterval time.Duration
}

// Ping extends the execution's lease to the task's worker timeout from now. It never shortens
// the lease or extends it past the deadline. A parked execution waits for its completion until
// a fixed time; a ping returns that time and changes nothing. Pings are never part of a
// transaction.
func (p *Puller) Ping(ctx context.Context, handle string) (Pinged, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return Pinged{}, fmt.Errorf("pinging an execution: %w", err)
	}
	ctx = store.Outside(ctx)
	pinged, err := p.ping(ctx, h)
	if err != nil {
		return Pinged{}, fmt.Errorf("pinging an execution of task %s: %w", h.TaskID, err)
	}
	return pinged, nil
}

func (p *Puller) ping(ctx context.Context, h input.Handle) (Pinged, error) {
	if err := p.room.Prepare(ctx); err != nil {
		return Pinged{}, err
	}
	t, err := p.room.Store.Tasks.Get(ctx, h.TaskID)
	if err != nil {
		return Pinged{}, err
	}
	i, w := h.Execution(t)
	if w == nil || !lifecycle.Open(w) {
		return Pinged{}, model.ErrFenced
	}
	if w.Pulled {
		p.known.pings(ctx, w.WorkerID)
	}
	eff := lifecycle.EffectiveFor(t, w, p.room.Types.Options(t.Type))
	stop := !t.CancelRequestedAt.IsZero() || lifecycle.MustStop(t, w.WorkerID)
	out := Pinged{Until: w.PingExpireTime, CancelRequested: stop, PingInterval: eff.PingInterval}
	if w.Parked {
		return out, nil
	}
	// The ping is written even if it does not extend the lease: a failover may undo the lease that was read, and a write
	// waits for a majority.
	until := clock.Later(lifecycle.Lease(w, eff.Lease, p.room.Store.Clock.Now()), w.PingExpireTime)
	pings := []store.Ping{{ID: t.ID, ExecID: w.ExecID, Index: i, Many: lifecycle.Wanted(t) > 1, Until: until}}
	lost, err := p.room.Store.Tasks.Pings(ctx, pings, store.Patience)
	if err != nil {
		return Pinged{}, err
	}
	if len(lost) > 0 {
		return Pinged{}, model.ErrFenced
	}
	if pings[0].Missed {
		return Pinged{}, store.ErrHeld
	}
	out.Until = until
	return out, nil
}
