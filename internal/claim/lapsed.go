package claim

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Found is what becomes of a task over a lapsed lease.
type Found struct {
	Write    store.Write
	Takeover bool   // the claimant becomes its execution; else the task is left for others, or ended
	Previous string // the worker whose lease lapsed; "" = only an early lapse_at is put right
}

// Lapsed decides about a task that was found over a lapsed lease: taken over by the
// claimant, where it may, else given back or ended, so that nothing is left behind. ok is
// false where there is nothing to do. The lapsed execution is judged by the options of its own
// claim, and eff are those of a new one. random in [0,1) is for the retry's jitter.
func Lapsed(t *model.Task, by lifecycle.Claimant, may bool, eff lifecycle.Effective, now time.Time, random float64) (f Found, ok bool) {
	var said model.Options
	if by.Applied != nil {
		said = *by.Applied
	}
	expired := lifecycle.Expire(t, lifecycle.EffectiveOf(t, said), now, random)
	if expired == nil {
		return Found{}, false
	}
	lapsed, previous := Previous(t, expired)
	f = Found{Write: store.Write{Before: t, After: expired, Lapsed: lapsed, At: now}, Previous: previous}
	if previous == "" {
		return f, true
	}
	if may {
		if taken, no := lifecycle.Claim(expired, by, eff, now); no == "" {
			taken.Rev = t.Rev + 1 // one write, one rev
			f.Write.After, f.Takeover = taken, true
			return f, true
		}
	}
	f.Write.After = lifecycle.Leave(expired, now)
	return f, true
}

// Previous is the execution that the rule ended, and its worker; "" when it only repaired
// an early lapse_at.
func Previous(before, after *model.Task) (execID, worker string) {
	for i := range before.WorkerStates {
		w := &before.WorkerStates[i]
		if _, a := after.Execution(w.ExecID); w.Open() && a != nil && !a.Open() {
			return w.ExecID, w.WorkerID
		}
	}
	return "", ""
}
