package lifecycle

import (
	"math"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// RetryDelay is how long after the errors-th error (from 1) a retry is due. random in
// [0,1) spreads it by the jitter, so that what failed together does not come back
// together.
func RetryDelay(r model.Retry, errors int, random float64) time.Duration {
	errors = max(errors, 1)
	switch r.Strategy {
	case model.RetryNone:
		return 0
	case model.RetryFixed:
		return r.Interval
	case model.RetrySequence:
		if len(r.Sequence) == 0 {
			return r.Interval
		}
		return r.Sequence[min(errors, len(r.Sequence))-1]
	default:
		d := float64(r.Interval) * math.Pow(r.Factor, float64(errors-1))
		d = min(d, float64(r.MaxInterval))
		if r.Jitter > 0 {
			d *= 1 + r.Jitter*(2*random-1)
		}
		if longest := float64(r.MaxInterval); d > longest {
			d = max(2*longest-d, 0) // what would come too late comes as much sooner
		}
		return time.Duration(min(d, float64(input.MaxDuration))).Round(time.Millisecond)
	}
}

// RetryFrom makes a task run again by a person's word from a named step on: the steps
// before it stay, it and what follows are done again. Of several workers each goes back
// to its own step of that name, and those that have none keep what they have. What ended
// without success begins a new life, as with [RetryNow]; what waits is due now.
func RetryFrom(t *model.Task, step, remark string, eff Effective, now time.Time) (*model.Task, error) {
	kept := stepsBefore(t, step)
	switch {
	case OpenExecutions(t) > 0:
		return nil, refuse(t, "it cannot go back to a step while a worker runs it")
	case t.Status != model.StatusNew && t.Status != model.StatusError && t.Status != model.StatusFailure && t.Status != model.StatusPending && t.Status != model.StatusCancelled:
		return nil, refuse(t, "only New, Error, Failure, Pending and Cancelled can be retried from a step")
	case len(kept) == len(t.Steps):
		return nil, refuse(t, "it has no step "+safetext.Clip(step, 120)+"; "+input.StepNames(t.Steps))
	}
	var c *model.Task
	if t.Status.Ended() {
		c = retryLife(t, now)
	} else {
		c = next(t, now)
		runNow(c, now)
	}
	c.Steps = kept
	c.Remark = safetext.Clip(remark, input.MaxTextBytes)
	settle(c, eff, now)
	return c, nil
}

// stepsBefore leaves out the named step and what was saved after it: by anybody where one
// worker is wanted, else by the same worker.
func stepsBefore(t *model.Task, name string) []model.Step {
	var kept []model.Step
	var back []string // the workers that go back
	for _, s := range t.Steps {
		if s.Name == name {
			back = append(back, s.WorkerID)
		}
		if len(back) == 0 || Wanted(t) > 1 && !slices.Contains(back, s.WorkerID) {
			kept = append(kept, s)
		}
	}
	return kept
}
