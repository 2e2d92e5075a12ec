package model

import (
	"time"
)

// Bounds and defaults of the options. A default applies if neither the task nor its type nor
// the handler sets the option.
const (

	// NoTimeout as an execution timeout means no timeout, even if a lower layer sets one.
	NoTimeout time.Duration = 10 * 365 * 24 * time.Hour
)

// RetryStrategy selects how the delay before a retry grows.
type RetryStrategy string

// The retry strategies; none, fixed and sequence are those of seed 000.
const (
	RetryNone        RetryStrategy = "none"        // the first error ends the task: max_errors 0, see [Retry]
	RetryFixed       RetryStrategy = "fixed"       // Interval each time
	RetrySequence    RetryStrategy = "sequence"    // Sequence[i] after error i+1; the last entry repeats
	RetryExponential RetryStrategy = "exponential" // Interval · Factor^(errors-1), at most MaxInterval, jitter included
)

// Retry configures what happens after an error. A zero field is not set: the next layer decides
// (the task, its type, the handler, the defaults).
//
// The strategy none implies max_errors 0. A higher layer overrides both with another strategy
// or a max_errors above 0; if it sets only one of the two, the other has its default. For
// example, above a type with none, max_errors 5 of a task means 5 exponential retries, and
// fixed means 10 retries.
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

// LocalRetry configures retries inside one execution, under its lease (seed 004). They do not
// count as errors, and no other worker takes part. Each retry is recorded in the execution
// before it begins. After a lapse or a release, the next execution continues the count; after
// an error or a snooze, it starts at zero. Count 0 = none.
type LocalRetry struct {
	Count    int           `bson:"count,omitempty"`
	Interval time.Duration `bson:"interval_ms,omitempty"`
}

// Options of a task, as stored: only the options that were set. A zero field is not set.
type Options struct {
	ConcurrentWorkerCount int           `bson:"concurrent_worker_count,omitempty"` // workers that must each succeed; default 1, at most 64
	PingInterval          time.Duration `bson:"ping_interval_ms,omitempty"`        // default a third of the lease, also if the layers make it more than half of the lease: 10 s
	WorkerTimeout         time.Duration `bson:"worker_timeout_ms,omitempty"`       // the lease; default 30 s, or three ping intervals if that is more; at least 1 s
	ExecutionTimeout      time.Duration `bson:"execution_timeout_ms,omitempty"`    // from the claim; default none; [NoTimeout] overrides a lower layer
	SpecificWorkerIDs     []string      `bson:"specific_worker_ids,omitempty"`     // only these may claim; default all workers
	Retry                 *Retry        `bson:"retry,omitempty"`
	MaxLapses             *int          `bson:"max_lapses,omitempty"`            // the task ends when lapse_count > MaxLapses; default 3
	MaxErrorsPerWorker    int           `bson:"max_errors_per_worker,omitempty"` // a worker with this many errors leaves the task to others; default no limit, at most 10
	NeedManual            *bool         `bson:"need_manual,omitempty"`           // if the budget is exhausted: Pending instead of Failure
	Retention             time.Duration `bson:"retention_ms,omitempty"`          // how long the ended task stays and its key deduplicates; default 7 days
	Callback              *Callback     `bson:"callback,omitempty"`              // receivers of the callback; default none

	// These options belong to one task and have no layers.
	ExpiresAt time.Time `bson:"expires_at,omitempty"` // Cancelled if not started by then; default never
	LimitKey  string    `bson:"limit_key,omitempty"`  // tasks with the same key share a limit, see [KeyLimit]
	ClaimBy   ClaimBy   `bson:"claim_by,omitempty"`   // copied from the type when the task was sent
}

// IsZero reports whether no option is set. The driver omits such options.
func (o Options) IsZero() bool {
	return o.ConcurrentWorkerCount == 0 && o.PingInterval == 0 && o.WorkerTimeout == 0 && o.ExecutionTimeout == 0 &&
		o.SpecificWorkerIDs == nil && o.Retry == nil && o.MaxLapses == nil && o.MaxErrorsPerWorker == 0 &&
		o.NeedManual == nil && o.Retention == 0 && o.Callback == nil && o.ExpiresAt.IsZero() && o.LimitKey == "" && o.ClaimBy == ""
}
