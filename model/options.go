package model

import (
	"time"
)

// Bounds and defaults of the options. A default is what applies when neither the task,
// nor its type, nor the handler says anything.
const (

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

// IsZero says whether nothing is set; the driver leaves such options out.
func (o Options) IsZero() bool {
	return o.ConcurrentWorkerCount == 0 && o.PingInterval == 0 && o.WorkerTimeout == 0 && o.ExecutionTimeout == 0 &&
		o.SpecificWorkerIDs == nil && o.Retry == nil && o.MaxLapses == nil && o.MaxErrorsPerWorker == 0 &&
		o.NeedManual == nil && o.Retention == 0 && o.Callback == nil && o.ExpiresAt.IsZero() && o.LimitKey == "" && o.ClaimBy == ""
}
