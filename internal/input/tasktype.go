package input

import (
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of the limits.
const (
	MaxMaxRunning = 100_000
	maxRateCount  = 100_000
	minRatePer    = 100 * time.Millisecond
	maxRatePer    = 24 * time.Hour
)

// TaskType finds everything that is wrong with the type.
func TaskType(t *model.TaskType) error {
	v := validator{errs: []error{Name("code", t.Code), InAddress("code", t.Code)}}
	for field, s := range map[string]string{"name": t.Name, "category": t.Category} {
		if err := Label(field, s); err != nil {
			v.errs = append(v.errs, err)
		}
	}
	if len(t.Description) > MaxTextBytes || !safetext.IsText(t.Description) {
		v.add("description", "must be at most %d bytes of valid UTF-8 without a NUL byte", MaxTextBytes)
	}
	v.errs = append(v.errs, SharedOptions(&t.Options, "options"), OptionsFor(&t.Options, t.Code))
	switch t.ClaimBy {
	case "", model.ClaimByTenant, model.ClaimByCreator, model.ClaimByCategory:
	default:
		v.add("claim_by", "is %q; want tenant, creator or category", safetext.Clip(string(t.ClaimBy), 40))
	}
	v.within("max_running", t.MaxRunning, MaxMaxRunning)
	v.rate("rate_limit", t.RateLimit)
	if t.KeyLimit != nil {
		v.within("key_limit.max_running", t.KeyLimit.MaxRunning, MaxMaxRunning)
		v.rate("key_limit.rate_limit", t.KeyLimit.RateLimit)
	}
	return errors.Join(v.errs...)
}

// SharedOptions is [Options] for options that a type or a handler says to all its
// tasks: it refuses those that belong to one task.
func SharedOptions(o *model.Options, field string) error {
	if o.ConcurrentWorkerCount != 0 || len(o.SpecificWorkerIDs) > 0 || o.LimitKey != "" || !o.ExpiresAt.IsZero() || o.ClaimBy != "" {
		return Invalid(field, "cannot set specific_worker_ids, concurrent_worker_count, limit_key, expires_at or claim_by: they belong to a task")
	}
	return Options(o)
}

func (v *validator) rate(field string, r *model.RateLimit) {
	if r == nil {
		return
	}
	if r.Count < 1 || r.Count > maxRateCount {
		v.add(field+".count", "is %d; want 1 to %d", r.Count, maxRateCount)
	}
	if r.Per < minRatePer || r.Per > maxRatePer {
		v.add(field+".per", "is %v; want %v to %v", r.Per, minRatePer, maxRatePer)
	}
}
