package lifecycle

import (
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// restoredMargin is added to what a task may have been written since: clocks that differ a little.
const restoredMargin = 1000

// Restored is what becomes of a task of a database that was restored from a backup, when no worker
// runs. What the task went through after the backup is forgotten, and other systems keep the fencing tokens
// and the callbacks of that. The life gets the generation that a new one would have: it is greater than those of
// all lives that began after the backup. It stays the same life in all else. A task that has ended stays as it
// is, because its next life is later still.
//
// An open execution is released, because its handler has stopped. A parked one has no handler and stays:
// its completion may still come. The handle of that has the generation, so the task keeps it, and only the rev makes
// the next token greater than any that was given out in this life: a document is written less than once a
// millisecond, so the rev rises by the milliseconds since its last write.
func Restored(t *model.Task, eff Effective, now time.Time) *model.Task {
	if t.Status.Ended() || !Known(t.Status) {
		return t
	}
	c := next(t, now)
	c.Rev += max(now.Sub(t.UpdatedAt).Milliseconds(), 0) + restoredMargin
	if !slices.ContainsFunc(c.WorkerStates, func(w model.WorkerState) bool { return Open(&w) && w.Parked }) {
		c.Generation = laterGeneration(t, now)
	}
	verdict, released := judged(c, eff), false
	for i := range c.WorkerStates {
		if w := &c.WorkerStates[i]; Open(w) && !w.Parked {
			fail(c, w, Failed(failkind.Released, "the database was restored from a backup"), judgedBy(c, w, eff), now, 0)
			released = true
		}
	}
	if released {
		settleBy(c, verdict, now)
		wake(c, now)
	}
	return c
}
