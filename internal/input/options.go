package input

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds and defaults of the options. A default is what applies when neither the task,
// nor its type, nor the handler says anything.
const (
	MaxWorkers         = 64
	MaxSpecificWorkers = 64
	MaxPriority        = 9
	MinWorkerTimeout   = time.Second
	// MaxDuration bounds every duration an option takes: ten years.
	MaxDuration = model.NoTimeout
)

// Options finds everything that is wrong with the options, not only the first; nil
// means they are fine.
func Options(o *model.Options) error {
	v := validator{}
	if n := o.ConcurrentWorkerCount; n < 0 || n > MaxWorkers { // 0, not said, is none of what can be said
		v.add("concurrent_worker_count", "is %d; want 1 to %d", n, MaxWorkers)
	}
	v.duration("ping_interval", o.PingInterval)
	v.duration("worker_timeout", o.WorkerTimeout)
	if o.WorkerTimeout > 0 && o.WorkerTimeout < MinWorkerTimeout {
		v.add("worker_timeout", "is %v; a lease shorter than %v cannot be kept", o.WorkerTimeout, MinWorkerTimeout)
	}
	if o.WorkerTimeout > 0 && o.PingInterval > o.WorkerTimeout/2 {
		v.add("ping_interval", "is %v; at most half of worker_timeout (%v) keeps the lease when one ping is lost", o.PingInterval, o.WorkerTimeout)
	}
	v.duration("timeout", o.ExecutionTimeout)
	v.duration("retention", o.Retention)
	if len(o.SpecificWorkerIDs) > MaxSpecificWorkers {
		v.add("specific_worker_ids", "has %d ids; at most %d are allowed", len(o.SpecificWorkerIDs), MaxSpecificWorkers)
	}
	for i, id := range o.SpecificWorkerIDs {
		if err := WorkerID(fmt.Sprintf("specific_worker_ids[%d]", i), id); err != nil {
			v.errs = append(v.errs, err)
		} else if first := slices.Index(o.SpecificWorkerIDs, id); first < i {
			v.add(fmt.Sprintf("specific_worker_ids[%d]", i), "is %s, which specific_worker_ids[%d] names already", safetext.Clip(id, 40), first)
		}
	}
	if n := len(o.SpecificWorkerIDs); n > 0 && o.ConcurrentWorkerCount > n {
		v.add("concurrent_worker_count", "is %d, but only %d workers may run the task", o.ConcurrentWorkerCount, n)
	}
	if o.MaxLapses != nil {
		v.within("max_lapses", *o.MaxLapses, 1_000_000)
	}
	v.within("max_errors_per_worker", o.MaxErrorsPerWorker, MaxBadStates)
	if o.Retry != nil {
		v.retry(o.Retry)
	}
	if o.Callback != nil {
		v.errs = append(v.errs, Callback(o.Callback))
	}
	if !o.ExpiresAt.IsZero() && (o.ExpiresAt.Year() < 1970 || o.ExpiresAt.After(latestTime)) {
		v.add("expires_at", "is %v; want a time between 1970 and 9999", o.ExpiresAt)
	}
	if err := Label("limit_key", o.LimitKey); err != nil {
		v.errs = append(v.errs, err)
	}
	return errors.Join(v.errs...)
}

type validator struct{ errs []error }

func (v *validator) add(field, format string, args ...any) {
	v.errs = append(v.errs, Invalid(field, format, args...))
}

func (v *validator) within(field string, n, high int) {
	if n < 0 || n > high {
		v.add(field, "is %d; want 0 to %d", n, high)
	}
}

func (v *validator) duration(field string, d time.Duration) {
	switch {
	case d < 0:
		v.add(field, "is %v; it cannot be negative", d)
	case d > MaxDuration:
		v.add(field, "is %v; at most ten years are allowed", d)
	case d > 0 && d < time.Millisecond:
		v.add(field, "is %v; the unit of the database is a millisecond", d)
	}
}

func (v *validator) retry(r *model.Retry) {
	switch r.Strategy {
	case "", model.RetryNone, model.RetryFixed, model.RetryExponential:
		if len(r.Sequence) > 0 && r.Strategy != "" {
			v.add("retry.sequence", "is given, but the strategy is %s", r.Strategy)
		}
	case model.RetrySequence:
		if len(r.Sequence) == 0 {
			v.add("retry.sequence", "is empty, but the strategy is sequence")
		}
	default:
		v.add("retry.strategy", "is %q; want none, fixed, sequence or exponential", safetext.Clip(string(r.Strategy), 40))
	}
	v.duration("retry.interval", r.Interval)
	v.duration("retry.max_interval", r.MaxInterval)
	if len(r.Sequence) > 100 {
		v.add("retry.sequence", "has %d entries; at most 100 are allowed", len(r.Sequence))
	}
	for i, d := range r.Sequence {
		v.duration(fmt.Sprintf("retry.sequence[%d]", i), d)
	}
	if r.Factor != 0 && (r.Factor < 1 || r.Factor > 100 || math.IsNaN(r.Factor)) {
		v.add("retry.factor", "is %v; want 1 to 100", r.Factor)
	}
	if r.Jitter > 1 || math.IsNaN(r.Jitter) {
		v.add("retry.jitter", "is %v; want at most 1, negative for none", r.Jitter)
	} else if r.Jitter > 0 && r.Strategy != "" && r.Strategy != model.RetryExponential {
		v.add("retry.jitter", "is given, but the strategy is %s", safetext.Clip(string(r.Strategy), 40))
	}
	if r.MaxErrors != nil {
		v.within("retry.max_errors", *r.MaxErrors, 1_000_000)
		if r.Strategy == model.RetryNone && *r.MaxErrors > 0 {
			v.add("retry.max_errors", "is %d, but the strategy is none", *r.MaxErrors)
		}
	}
	if r.Local != nil {
		v.within("retry.local.count", r.Local.Count, 1000)
		v.duration("retry.local.interval", r.Local.Interval)
	}
}

var latestTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
