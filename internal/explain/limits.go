package explain

import (
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// nobodyTakes explains a task that the conditions of all live workers of its type leave out.
func (r *report) nobodyTakes(serving []Worker) {
	t := r.Task
	of := "no tenant"
	if t.Tenant != "" {
		of = "the tenant " + t.Tenant
	}
	if t.Category != "" {
		of += ", the category " + t.Category
	}
	if t.Creator != "" {
		of += ", the creator " + t.Creator
	}
	r.because("It is of %s, and of the %s none takes such a task.", of, human.Plural(len(serving), "live worker of its type", "live workers of its type"))
	r.next("It waits until a worker lives that takes it: one without conditions, or with others.")
}

// heldBack explains a due task whose limit_key had no room for it.
func (r *report) heldBack() {
	t, limit := r.Task, lifecycle.Keyed(r.Type)
	if limit.MaxRunning > 0 {
		r.because("Of the tasks of %s with the limit_key %s at most %d may run at once.", t.Type, t.Options.LimitKey, limit.MaxRunning)
	}
	if rate := limit.RateLimit; rate != nil {
		r.because("Of the tasks of %s with the limit_key %s at most %d may begin in %v.", t.Type, t.Options.LimitKey, rate.Count, rate.Per)
	}
	for _, p := range r.OfKey {
		r.because("%s has a permit since %s.", p.TaskID, human.When(p.At, r.Now))
	}
	const order = "the greatest priority first, then the longest due"
	switch {
	case limit.MaxRunning > 0 && len(r.OfKey) >= limit.MaxRunning:
		r.next("When one of those ends, the next has its turn: %s. To end one: mscheduler task cancel %s", order, human.TaskArg(r.OfKey[0].TaskID))
	case limit.RateLimit != nil:
		r.next("When the rate allows the next start, the next has its turn: %s.", order)
	default:
		r.next("There is room by the permits: the next has its turn in a moment, %s. What began before the limit was set has no permit, and counts until it has ended.", order)
	}
}

// typeFull says whether as many tasks of the type run as may, and explains that.
func (r *report) typeFull() bool {
	if r.Type == nil || r.Type.MaxRunning == 0 || len(r.OfType) < r.Type.MaxRunning {
		return false
	}
	r.because("Of the tasks of %s at most %d may run at once, and so many do; %s has its permit since %s.",
		r.Task.Type, r.Type.MaxRunning, r.OfType[0].TaskID, human.When(r.OfType[0].At, r.Now))
	r.next("When one of them ends, the next is claimed: the greatest priority first, then the longest due.")
	return true
}
