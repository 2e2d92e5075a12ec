package pull

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
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

// takeOver takes tasks over lapsed leases, as far as the request goes, and leaves the rest of
// what it found for others, as a consumer does.
func (f *fetch) takeOver(ctx context.Context) error {
	trust := f.p.memory.trust
	var found []*model.Task
	looked, err := f.p.memory.scan(f.types, f.p.room.Store.Local()).Try(func() (err error) {
		found, err = f.p.room.Store.Tasks.Lapsed(ctx, f.types, pullScan)
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
	now := f.p.room.Store.Clock.Now()
	room := f.p.room.Store.Tasks.Fit(f.left) // what is taken over is read whole
	var takeovers, leaves []store.Write
	var left claim.LeftAlone
	defer func() { f.p.watch.observe(f.types, left) }()
	for _, t := range found {
		eff, by := f.terms(t)
		if !trust.Allows(&eff, &left) {
			continue
		}
		may := room > len(takeovers) && !f.p.room.Limits.Limited(t)     // that needs a grant: it is due again
		d, ok := claim.Lapsed(t, by, may, eff, now, mathrand.Float64()) //nolint:gosec // jitter, not a secret
		switch {
		case !ok:
		case d.Takeover:
			takeovers = append(takeovers, d.Write)
		default:
			leaves = append(leaves, d.Write)
		}
	}
	if err := f.finishTakeOver(ctx, takeovers); err != nil {
		return err
	}
	written, err := f.p.room.Store.Tasks.Writes(ctx, leaves, store.Patience)
	for i, w := range written {
		after := leaves[i].After
		if w.Applied {
			f.p.memory.hear(after)
			f.p.room.Limits.Ended(after, lifecycle.EndedExecutions(leaves[i].Before, after))
		}
		if w.Applied && after.Status.Ended() {
			f.p.room.Follow.Ended(after)
		}
	}
	return err
}

// finishTakeOver writes the takeovers and takes what was won, as it is by then: other workers of
// the same task may have pinged.
func (f *fetch) finishTakeOver(ctx context.Context, takeovers []store.Write) error {
	written, err := f.write(ctx, takeovers)
	if err != nil {
		return err
	}
	var won []string
	for i, w := range written {
		if w.Applied {
			won = append(won, takeovers[i].After.ID)
		}
	}
	if len(won) == 0 {
		return nil
	}
	current, err := f.p.room.Store.Tasks.ByIDs(ctx, won)
	if err != nil {
		return err
	}
	for _, id := range won {
		if t := current[id]; t != nil {
			if _, w := t.Execution(f.exec); w != nil && w.Open() {
				f.take(t)
			}
		}
	}
	return nil
}

// checkPrimary asks who the primary is: another one than before means that the workers
// may just not have been able to ping. A reading of another server's clock is replaced.
func (f *fetch) checkPrimary(ctx context.Context) error {
	name, err := f.p.room.Store.Primary(ctx)
	if err != nil {
		return err
	}
	if f.p.memory.trust.SawPrimary(name) {
		f.p.room.Store.Forget()
		f.p.room.Store.Clock.Doubt()
	}
	if f.p.memory.trust.WantsClock() {
		return f.p.room.Store.ReadClock(ctx)
	}
	return nil
}

// newExecID makes a random UUID (version 4).
func newExecID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
