package explain

import (
	"slices"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// noneTakes explains a task that the conditions of all live workers of its type exclude.
func (r *report) noneTakes(serving []Worker) {
	t := r.Task
	if !slices.ContainsFunc(serving, func(w Worker) bool { return !w.Draining }) {
		if slices.ContainsFunc(serving, func(w Worker) bool { return w.Resumes }) {
			r.because("All live workers of its type (%d) were drained. At least one is resumed.", len(serving))
			r.next("A worker that is resumed claims again from its next heartbeat on, within 30s.")
			return
		}
		r.because("All live workers of its type (%d) are being drained: they claim nothing more.", len(serving))
		r.next("It waits for another worker, or until one of them is resumed.")
		return
	}
	labels := "no tenant"
	if t.Tenant != "" {
		labels = "the tenant " + t.Tenant
	}
	if t.Category != "" {
		labels += ", the category " + t.Category
	}
	if t.Creator != "" {
		labels += ", the creator " + t.Creator
	}
	r.because("It has %s. No live worker of its type (%d) takes such a task.", labels, len(serving))
	r.next("It waits for a worker with other conditions, or without conditions.")
}

// heldBack explains a due task whose limit_key had no room for it.
func (r *report) heldBack() {
	t, limit := r.Task, lifecycle.Keyed(r.Type)
	if limit.MaxRunning > 0 {
		r.because("The type %[1]s allows %[3]d at once for the limit_key %[2]s.", t.Type, t.Options.LimitKey, limit.MaxRunning)
	}
	if rate := limit.RateLimit; rate != nil {
		r.because("The type %[1]s allows %[3]d per %[4]v for the limit_key %[2]s.", t.Type, t.Options.LimitKey, rate.Count, rate.Per)
	}
	for _, p := range r.OfKey {
		r.because("%s has held a permit since %s.", r.taskName(p.TaskID), human.When(p.At, r.Now))
	}
	const order = "the highest priority first, then the earliest due"
	switch {
	case limit.MaxRunning > 0 && len(r.OfKey) >= limit.MaxRunning:
		r.next("When one of those ends, the next task starts: %s.%s", order, r.howToCancel(r.OfKey[0].TaskID))
	case limit.RateLimit != nil:
		r.next("When the rate allows it, the next task starts: %s.", order)
	default:
		r.next("A permit is free: the next task starts within seconds, %s. Executions that began before the limit was set have no permit but count until they end.", order)
	}
}

// howToCancel is how to cancel a task that the reader may see.
func (r *report) howToCancel(id string) string {
	if r.taskName(id) != id {
		return ""
	}
	return " To cancel one: mscheduler task cancel " + human.TaskArg(id)
}

// typeFull reports whether the type's max_running is reached, and explains it.
func (r *report) typeFull() bool {
	if r.Type == nil || r.Type.MaxRunning == 0 || len(r.OfType) < r.Type.MaxRunning {
		return false
	}
	r.because("The type %s allows %d at once, and that many are running; %s has held its permit since %s.",
		r.Task.Type, r.Type.MaxRunning, r.taskName(r.OfType[0].TaskID), human.When(r.OfType[0].At, r.Now))
	r.next("When one of them ends, the next is claimed: the highest priority first, then the earliest due.")
	return true
}
