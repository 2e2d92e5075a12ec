package model

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Bounds and defaults of the options. A default is what applies when neither the task,
// nor its type, nor the handler says anything.
const (
	MaxWorkers           = 64
	MaxSpecificWorkers   = 64
	DefaultPriority      = 5
	MaxPriority          = 9
	DefaultPingInterval  = DefaultWorkerTimeout / 3 // where nobody says a lease, else a third of it
	DefaultWorkerTimeout = 30 * time.Second         // where nobody says a ping interval, else at least three of it
	MinWorkerTimeout     = time.Second
	DefaultMaxErrors     = 10
	DefaultMaxLapses     = 3
	DefaultRetryInterval = time.Second
	DefaultRetryFactor   = 2
	DefaultRetryMax      = time.Hour
	DefaultRetryJitter   = 0.1
	DefaultRetention     = 7 * 24 * time.Hour
	// MaxDuration bounds every duration an option takes: ten years.
	MaxDuration = NoTimeout
	// NoTimeout as an execution timeout is none, also where a layer below says one.
	NoTimeout time.Duration = 10 * 365 * 24 * time.Hour
)

// RetryStrategy says how the delay before a retry grows.
type RetryStrategy string

// The retry strategies; none, fixed and sequence are those of seed 000.
const (
	RetryNone        RetryStrategy = "none"        // the first error ends the task: max_errors 0, see [Retry]
	RetryFixed       RetryStrategy = "fixed"       // Interval each time
	RetrySequence    RetryStrategy = "sequence"    // Sequence[i] after error i+1, past its end the last
	RetryExponential RetryStrategy = "exponential" // Interval · Factor^(errors-1), at most MaxInterval, jitter included
)

// Retry says what follows an error. Every zero field means "not said here": the next
// layer decides (the task, its type, the handler, the defaults).
//
// The strategy none says max_errors 0 with it. A layer above undoes both together, by
// another strategy or by a max_errors above 0; what it does not say of the two then has its
// default. So a task's max_errors 5 above a type's none is 5 exponential retries, and a task's
// fixed is 10 retries.
type Retry struct {
	Strategy    RetryStrategy   `bson:"strategy,omitempty"`        // default exponential
	Interval    time.Duration   `bson:"interval_ms,omitempty"`     // fixed, exponential; default 1 s
	Sequence    []time.Duration `bson:"sequence_ms,omitempty"`     // sequence
	Factor      float64         `bson:"factor,omitempty"`          // exponential; default 2
	MaxInterval time.Duration   `bson:"max_interval_ms,omitempty"` // exponential; default 1 h
	Jitter      float64         `bson:"jitter,omitempty"`          // exponential; share of the delay, default 0.1; negative = none
	MaxErrors   *int            `bson:"max_errors,omitempty"`      // retries: the task ends when error_count > MaxErrors; default 10
	Local       *LocalRetry     `bson:"local,omitempty"`           // retries inside an execution; default none
}

// LocalRetry are retries inside one execution, under its lease (seed 004): they cost no
// error, and no other worker takes part. Each is counted in the execution before it begins.
// An execution that takes the task over after a lapse or a release goes on counting; after
// an error or a snooze the next one starts anew. Count 0 = none.
type LocalRetry struct {
	Count    int           `bson:"count,omitempty"`
	Interval time.Duration `bson:"interval_ms,omitempty"`
}

// Options of a task, as its document holds them: only what was set. The zero value
// says nothing.
type Options struct {
	ConcurrentWorkerCount int           `bson:"concurrent_worker_count,omitempty"` // workers that must each succeed; default 1, at most 64
	PingInterval          time.Duration `bson:"ping_interval_ms,omitempty"`        // default a third of the lease, as where the layers make it more than half of that: 10 s
	WorkerTimeout         time.Duration `bson:"worker_timeout_ms,omitempty"`       // the lease; default 30 s, or three ping intervals where that is more; at least 1 s
	ExecutionTimeout      time.Duration `bson:"execution_timeout_ms,omitempty"`    // from the claim; default none; [NoTimeout] undoes what a layer below says
	SpecificWorkerIDs     []string      `bson:"specific_worker_ids,omitempty"`     // only these may claim; default everybody
	Retry                 *Retry        `bson:"retry,omitempty"`
	MaxLapses             *int          `bson:"max_lapses,omitempty"`            // the task ends when lapse_count > MaxLapses; default 3
	MaxErrorsPerWorker    int           `bson:"max_errors_per_worker,omitempty"` // a worker with so many stays away; default no limit, at most 10
	NeedManual            *bool         `bson:"need_manual,omitempty"`           // budget spent: Pending instead of Failure
	Retention             time.Duration `bson:"retention_ms,omitempty"`          // how long the ended task stays and its key deduplicates; default 7 days
	Callback              *Callback     `bson:"callback,omitempty"`              // who is told of its end; default nobody

	// What belongs to one task and has no layers.
	ExpiresAt time.Time `bson:"expires_at,omitempty"` // not started by then: Cancelled; default never
	LimitKey  string    `bson:"limit_key,omitempty"`  // limits hold for the tasks with this key together, see [KeyLimit]
	ClaimBy   ClaimBy   `bson:"claim_by,omitempty"`   // as its type said when it was sent
}

// Effective are the options that apply to a claim, with nothing left open.
type Effective struct {
	PingInterval       time.Duration
	Lease              time.Duration
	ExecutionTimeout   time.Duration // 0 = none
	Retry              Retry         // every field set; MaxErrors and Local never nil
	MaxLapses          int
	MaxErrorsPerWorker int // 0 = no limit
	NeedManual         bool
	Retention          time.Duration
	Callback           *Callback // nil = nobody is told
}

// ResolveOptions lays options over each other, the first that says something wins: the
// task's, its type's, the handler's; then the defaults.
func ResolveOptions(layers ...Options) Effective {
	var o Options
	var r Retry
	overlay(&o, &r, layers)
	e := Effective{
		PingInterval: o.PingInterval, Lease: o.WorkerTimeout, ExecutionTimeout: o.ExecutionTimeout,
		MaxErrorsPerWorker: o.MaxErrorsPerWorker, NeedManual: o.NeedManual != nil && *o.NeedManual,
		Retention: o.Retention, Callback: o.Callback,
	}
	if e.ExecutionTimeout == NoTimeout {
		e.ExecutionTimeout = 0
	}
	e.leaseDefaults()
	first(&e.Retention, DefaultRetention)
	first(&r.Strategy, RetryExponential)
	first(&r.Interval, DefaultRetryInterval)
	first(&r.Factor, DefaultRetryFactor)
	first(&r.MaxInterval, DefaultRetryMax)
	first(&r.Jitter, DefaultRetryJitter)
	first(&r.Local, &noLocalRetry)
	first(&r.MaxErrors, &defaultMaxErrors)
	first(&o.MaxLapses, &defaultMaxLapses)
	e.Retry, e.MaxLapses = r, *o.MaxLapses
	return e
}

// What nobody changes: shared, so that resolving options costs no memory.
var (
	noLocalRetry     LocalRetry
	noErrors         = 0
	defaultMaxErrors = DefaultMaxErrors
	defaultMaxLapses = DefaultMaxLapses
)

// Overlay lays options over each other, the first that says something wins, and leaves
// open what none says: what a type and a handler together say to their tasks.
func Overlay(layers ...Options) Options {
	var o Options
	overlay(&o, &Retry{}, layers)
	return o
}

// overlay fills o; r becomes its Retry where a layer has one.
func overlay(o *Options, r *Retry, layers []Options) {
	none := false // a layer above says none, which hides what those below say of it
	for i := range layers {
		l := &layers[i]
		first(&o.PingInterval, l.PingInterval)
		first(&o.WorkerTimeout, l.WorkerTimeout)
		first(&o.ExecutionTimeout, l.ExecutionTimeout)
		first(&o.MaxErrorsPerWorker, l.MaxErrorsPerWorker)
		first(&o.Retention, l.Retention)
		first(&o.MaxLapses, l.MaxLapses)
		first(&o.NeedManual, l.NeedManual)
		first(&o.Callback, l.Callback)
		if l.Retry == nil {
			continue
		}
		o.Retry = r
		switch {
		case none:
		case l.Retry.Strategy == RetryNone:
			none = true
			if r.Strategy == "" && (r.MaxErrors == nil || *r.MaxErrors == 0) { // else it is undone
				r.Strategy, r.MaxErrors = RetryNone, &noErrors
			}
		default:
			first(&r.Strategy, l.Retry.Strategy)
			first(&r.MaxErrors, l.Retry.MaxErrors)
		}
		first(&r.Interval, l.Retry.Interval)
		if r.Sequence == nil {
			r.Sequence = l.Retry.Sequence
		}
		first(&r.Factor, l.Retry.Factor)
		first(&r.MaxInterval, l.Retry.MaxInterval)
		first(&r.Jitter, l.Retry.Jitter)
		first(&r.Local, l.Retry.Local)
	}
}

// leaseDefaults fills ping interval and lease. When only one of them was said, or the
// layers disagree, the ping interval yields: three pings fit a lease.
func (e *Effective) leaseDefaults() {
	first(&e.Lease, max(DefaultWorkerTimeout, 3*e.PingInterval))
	if e.PingInterval == 0 || e.PingInterval > e.Lease/2 {
		e.PingInterval = e.Lease / 3
	}
}

func first[T comparable](dst *T, v T) {
	var zero T
	if *dst == zero {
		*dst = v
	}
}

// Delay is how long after the errors-th error (from 1) a retry is due. random in
// [0,1) spreads it by the jitter, so that what failed together does not come back
// together.
func (r Retry) Delay(errors int, random float64) time.Duration {
	errors = max(errors, 1)
	switch r.Strategy {
	case RetryNone:
		return 0
	case RetryFixed:
		return r.Interval
	case RetrySequence:
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
		return time.Duration(min(d, float64(MaxDuration))).Round(time.Millisecond)
	}
}

// Validate finds everything that is wrong with the options, not only the first; nil
// means they are fine.
func (o *Options) Validate() error {
	v := validator{}
	if n := o.ConcurrentWorkerCount; n < 0 || n > MaxWorkers { // 0, not said, is none of what can be said
		v.add("concurrent_workers", "is %d; want 1 to %d", n, MaxWorkers)
	}
	v.duration("ping_interval", o.PingInterval)
	v.duration("worker_timeout", o.WorkerTimeout)
	if o.WorkerTimeout > 0 && o.WorkerTimeout < MinWorkerTimeout {
		v.add("worker_timeout", "is %v; a lease shorter than %v cannot be kept", o.WorkerTimeout, MinWorkerTimeout)
	}
	if o.WorkerTimeout > 0 && o.PingInterval > o.WorkerTimeout/2 {
		v.add("ping_interval", "is %v; at most half of worker_timeout (%v) keeps the lease when one ping is lost", o.PingInterval, o.WorkerTimeout)
	}
	v.duration("execution_timeout", o.ExecutionTimeout)
	v.duration("retention", o.Retention)
	if len(o.SpecificWorkerIDs) > MaxSpecificWorkers {
		v.add("workers", "has %d ids; at most %d are allowed", len(o.SpecificWorkerIDs), MaxSpecificWorkers)
	}
	for i, id := range o.SpecificWorkerIDs {
		if err := ValidWorkerID(fmt.Sprintf("workers[%d]", i), id); err != nil {
			v.errs = append(v.errs, err)
		}
	}
	if n := distinct(o.SpecificWorkerIDs); n > 0 && o.ConcurrentWorkerCount > n {
		v.add("concurrent_workers", "is %d, but only %d workers may run the task", o.ConcurrentWorkerCount, n)
	}
	if o.MaxLapses != nil {
		v.within("max_lapses", *o.MaxLapses, 1_000_000)
	}
	v.within("max_errors_per_worker", o.MaxErrorsPerWorker, MaxBadStates)
	if o.Retry != nil {
		v.retry(o.Retry)
	}
	if o.Callback != nil {
		v.errs = append(v.errs, o.Callback.Validate())
	}
	if !o.ExpiresAt.IsZero() && (o.ExpiresAt.Year() < 1970 || o.ExpiresAt.After(latestTime)) {
		v.add("expires_at", "is %v; want a time between 1970 and 9999", o.ExpiresAt)
	}
	if err := ValidLabel("limit_key", o.LimitKey); err != nil {
		v.errs = append(v.errs, err)
	}
	return errors.Join(v.errs...)
}

func distinct(ids []string) int {
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		seen[id] = struct{}{}
	}
	return len(seen)
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

func (v *validator) retry(r *Retry) {
	switch r.Strategy {
	case "", RetryNone, RetryFixed, RetryExponential:
		if len(r.Sequence) > 0 && r.Strategy != "" {
			v.add("retry.sequence", "is given, but the strategy is %s", r.Strategy)
		}
	case RetrySequence:
		if len(r.Sequence) == 0 {
			v.add("retry.sequence", "is empty, but the strategy is sequence")
		}
	default:
		v.add("retry.strategy", "is %q; want none, fixed, sequence or exponential", clip(string(r.Strategy), 40))
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
	}
	if r.MaxErrors != nil {
		v.within("retry.max_errors", *r.MaxErrors, 1_000_000)
		if r.Strategy == RetryNone && *r.MaxErrors > 0 {
			v.add("retry.max_errors", "is %d, but the strategy is none", *r.MaxErrors)
		}
	}
	if r.Local != nil {
		v.within("retry.local.count", r.Local.Count, 1000)
		v.duration("retry.local.interval", r.Local.Interval)
	}
}

// ValidWorkerID checks a worker's id: 1 to 200 bytes of text, not starting with one of
// the characters that audiences use for something else.
func ValidWorkerID(field, id string) error {
	switch {
	case id == "":
		return Invalid(field, "is empty")
	case len(id) > 200:
		return Invalid(field, "has %d bytes; at most 200 are allowed", len(id))
	case id[0] == '*' || id[0] == '#':
		return Invalid(field, "is %q; it must not start with * or #", id)
	case len(id) > 1 && id[1] == ':':
		return Invalid(field, "is %q; its second character must not be a colon, which marks other audiences", id)
	case !validText(id):
		return Invalid(field, "must be valid UTF-8 without a NUL byte")
	default:
		return nil
	}
}

// IsZero says whether nothing is set; the driver leaves such options out.
func (o Options) IsZero() bool {
	return o.ConcurrentWorkerCount == 0 && o.PingInterval == 0 && o.WorkerTimeout == 0 && o.ExecutionTimeout == 0 &&
		o.SpecificWorkerIDs == nil && o.Retry == nil && o.MaxLapses == nil && o.MaxErrorsPerWorker == 0 &&
		o.NeedManual == nil && o.Retention == 0 && o.Callback == nil && o.ExpiresAt.IsZero() && o.LimitKey == "" && o.ClaimBy == ""
}

// same says whether both are stored the same. A rule hands options on as they are, so
// mostly they even share what they point to.
func (o *Options) same(p *Options) bool {
	shared := o.ConcurrentWorkerCount == p.ConcurrentWorkerCount && o.PingInterval == p.PingInterval &&
		o.WorkerTimeout == p.WorkerTimeout && o.ExecutionTimeout == p.ExecutionTimeout &&
		slices.Equal(o.SpecificWorkerIDs, p.SpecificWorkerIDs) &&
		o.Retry == p.Retry && o.MaxLapses == p.MaxLapses && o.MaxErrorsPerWorker == p.MaxErrorsPerWorker &&
		o.NeedManual == p.NeedManual && o.Retention == p.Retention && o.Callback == p.Callback &&
		o.ExpiresAt.Equal(p.ExpiresAt) && o.LimitKey == p.LimitKey && o.ClaimBy == p.ClaimBy
	return shared || bytes.Equal(appendOptions(nil, "", o), appendOptions(nil, "", p))
}
