package claim

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// lapsed decides about a task that was found over a lapsed lease: taken over by the
// claimant, where it may, else given back or ended, so that nothing is left behind. ok is
// false where there is nothing to do. The lapsed execution is judged by the options of its own
// claim, and eff are those of a new one. random in [0,1) is for the retry's jitter.
func lapsed(t *model.Task, by lifecycle.Claimant, may bool, eff lifecycle.Effective, now time.Time, random float64) (w store.Write, takeover, ok bool) {
	var said model.Options
	if by.Applied != nil {
		said = *by.Applied
	}
	expired := lifecycle.Expire(t, lifecycle.EffectiveOf(t, said), now, random)
	if expired == nil {
		return store.Write{}, false, false
	}
	w = store.Write{Before: t, After: expired, Lapsed: endedBy(t, expired), At: now}
	if w.Lapsed == "" {
		return w, false, true // only an early lapse_at is put right
	}
	if may {
		if taken, no := lifecycle.Claim(expired, by, eff, now); no == "" {
			taken.Rev = t.Rev + 1 // one write, one rev
			w.After = taken
			return w, true, true
		}
	}
	w.After = lifecycle.Leave(expired, now)
	return w, false, true
}

// endedBy is the id of the execution that the rule ended; "" when it only repaired an early
// lapse_at.
func endedBy(before, after *model.Task) string {
	for i := range before.WorkerStates {
		w := &before.WorkerStates[i]
		if _, a := lifecycle.ExecutionOf(after, w.ExecID); lifecycle.Open(w) && a != nil && !lifecycle.Open(a) {
			return w.ExecID
		}
	}
	return ""
}

// Previous is the worker whose lapsed lease the write ends; "" = it ends none.
func Previous(w store.Write) string {
	if _, st := lifecycle.ExecutionOf(w.Before, w.Lapsed); st != nil {
		return st.WorkerID
	}
	return ""
}
