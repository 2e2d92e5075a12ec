package lifecycle

import (
	"cmp"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Bounds and defaults of the options. A default is what applies when neither the task,
// nor its type, nor the handler says anything.
const (
	DefaultPriority      = 5
	DefaultPingInterval  = DefaultWorkerTimeout / 3 // where nobody says a lease, else a third of it
	DefaultWorkerTimeout = 30 * time.Second         // where nobody says a ping interval, else at least three of it
	DefaultMaxErrors     = 10
	DefaultMaxLapses     = 3
	DefaultRetryInterval = time.Second
	DefaultRetryFactor   = 2
	DefaultRetryMax      = time.Hour
	DefaultRetryJitter   = 0.1
	DefaultRetention     = 7 * 24 * time.Hour
)

// Effective are the options that apply to a claim, with nothing left open.
type Effective struct {
	PingInterval       time.Duration
	Lease              time.Duration
	ExecutionTimeout   time.Duration // 0 = none
	Retry              model.Retry   // every field set; MaxErrors and Local never nil
	MaxLapses          int
	MaxErrorsPerWorker int // 0 = no limit
	NeedManual         bool
	Retention          time.Duration
	Callback           *model.Callback // nil = nobody is told
}

// ResolveOptions lays options over each other, the first that says something wins: the
// task's, its type's, the handler's; then the defaults.
func ResolveOptions(layers ...model.Options) Effective {
	var o model.Options
	var r model.Retry
	overlay(&o, &r, layers)
	e := Effective{
		PingInterval: o.PingInterval, Lease: o.WorkerTimeout, ExecutionTimeout: o.ExecutionTimeout,
		MaxErrorsPerWorker: o.MaxErrorsPerWorker, NeedManual: o.NeedManual != nil && *o.NeedManual,
		Retention: o.Retention, Callback: o.Callback,
	}
	if e.ExecutionTimeout == model.NoTimeout {
		e.ExecutionTimeout = 0
	}
	e.leaseDefaults()
	first(&e.Retention, DefaultRetention)
	first(&r.Strategy, model.RetryExponential)
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
	noLocalRetry     model.LocalRetry
	noErrors         = 0
	defaultMaxErrors = DefaultMaxErrors
	defaultMaxLapses = DefaultMaxLapses
)

// Overlay lays options over each other, the first that says something wins, and leaves
// open what none says: what a type and a handler together say to their tasks.
func Overlay(layers ...model.Options) model.Options {
	var o model.Options
	overlay(&o, &model.Retry{}, layers)
	return o
}

// overlay fills o; r becomes its Retry where a layer has one.
func overlay(o *model.Options, r *model.Retry, layers []model.Options) {
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
		case l.Retry.Strategy == model.RetryNone:
			none = true
			if r.Strategy == "" && (r.MaxErrors == nil || *r.MaxErrors == 0) { // else it is undone
				r.Strategy, r.MaxErrors = model.RetryNone, &noErrors
			}
		default:
			if len(l.Retry.Sequence) > 0 { // delays alone name their strategy
				first(&r.Strategy, cmp.Or(l.Retry.Strategy, model.RetrySequence))
			}
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
// layers disagree, the ping interval yields.
func (e *Effective) leaseDefaults() {
	first(&e.Lease, max(DefaultWorkerTimeout, 3*e.PingInterval))
	e.PingInterval = PingEvery(e.PingInterval, e.Lease)
}

// PingEvery returns how often to ping an execution with that lease and ping interval; 0 = none is set. An interval of more
// than half of the lease becomes a third of it, so that three pings fit a lease.
func PingEvery(interval, lease time.Duration) time.Duration {
	if interval == 0 || interval > lease/2 {
		return lease / 3
	}
	return interval
}

func first[T comparable](dst *T, v T) {
	var zero T
	if *dst == zero {
		*dst = v
	}
}
