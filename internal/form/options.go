package form

import (
	"reflect"
	"slices"
	"strings"
)

// Options are those of a task; a type and a rule say them for all of their tasks. What is
// absent was not said.
type Options struct {
	ExecutionTimeout      *Timeout  `json:"timeout,omitzero" ms:"execution_timeout_ms" unit:"1m" doc:"limit for one execution; none = no limit, even if its type sets one"`
	Retry                 *Retry    `json:"retry,omitzero"`
	NeedManual            *bool     `json:"need_manual,omitzero" doc:"when all retries are spent: Pending, for a person to decide, instead of Failure"`
	MaxLapses             *int      `json:"max_lapses,omitzero" doc:"number of lapsed leases that the task survives; defaults to 3"`
	MaxErrorsPerWorker    *int      `json:"max_errors_per_worker,omitzero" doc:"a worker leaves the task alone after this many errors of its own; defaults to 0, no limit"`
	PingInterval          *Duration `json:"ping_interval,omitzero" unit:"1s" doc:"how often the worker extends its lease; defaults to a third of --worker-timeout: 10s"`
	WorkerTimeout         *Duration `json:"worker_timeout,omitzero" unit:"1s" doc:"lease: another worker takes over when no ping arrives for this long; defaults to 30s, or three times --ping-interval if that is longer"`
	Retention             *Duration `json:"retention,omitzero" doc:"how long the ended task and its key are kept, at least a minute; defaults to 7d"`
	Callback              *Callback `json:"callback,omitzero" whole:"yes"`
	ConcurrentWorkerCount *int      `json:"concurrent_worker_count,omitzero" least:"1" doc:"number of different workers that must each succeed; defaults to 1"`
	SpecificWorkerIDs     []string  `json:"specific_worker_ids,omitzero" doc:"the only workers that may run it; defaults to every worker"`
	LimitKey              *string   `json:"limit_key,omitzero" doc:"tasks of the type with the same key run one at a time, or as many as the type allows"`
	ExpiresAt             *Time     `json:"expires_at,omitzero" doc:"cancel the task if no worker has started it by this time, within about a minute of it; defaults to never"`
}

func (Options) renamed() map[string]string {
	return map[string]string{
		"workers": "use specific_worker_ids", "concurrent_workers": "use concurrent_worker_count", "execution_timeout": "use timeout",
	}
}

// Retry says what follows an error.
type Retry struct {
	Strategy    *string     `json:"strategy,omitzero" flag:"retry-strategy" doc:"none, fixed, sequence or exponential (default)"`
	Interval    *Duration   `json:"interval,omitzero" unit:"1s" least:"1ms" flag:"retry-interval" doc:"first delay before a retry; defaults to 1s"`
	Sequence    []Duration  `json:"sequence,omitzero" unit:"1s" flag:"retry-sequence" doc:"the delays of the strategy sequence, such as 1s,10s,1m"`
	Factor      *float64    `json:"factor,omitzero" flag:"retry-factor" doc:"growth of the delay (exponential); defaults to 2"`
	MaxInterval *Duration   `json:"max_interval,omitzero" unit:"1s" least:"1ms" flag:"retry-max-interval" doc:"greatest delay (exponential); defaults to 1h"`
	Jitter      *float64    `json:"jitter,omitzero" flag:"retry-jitter" doc:"share of the delay that is random (exponential); defaults to 0.1, negative for none"`
	MaxErrors   *int        `json:"max_errors,omitzero" doc:"number of retries of the task; defaults to 10"`
	Local       *LocalRetry `json:"local,omitzero"`
}

// LocalRetry are retries inside one execution.
type LocalRetry struct {
	Count    *int      `json:"count,omitzero" flag:"local-retries" doc:"retries inside one execution, before it counts as an error"`
	Interval *Duration `json:"interval,omitzero" unit:"1s" flag:"local-retry-interval" doc:"delay between local retries"`
}

// Callback says who is told of the end of a task.
type Callback struct {
	Success   *CallbackTarget   `json:"success,omitzero"`
	Error     *CallbackTarget   `json:"error,omitzero"`
	OnPending bool              `json:"on_pending,omitzero"`
	Security  *CallbackSecurity `json:"security,omitzero"`
}

// CallbackTarget is where a callback goes.
type CallbackTarget struct {
	URL    string `json:"url,omitzero"`
	Method string `json:"method,omitzero"`
}

// CallbackSecurity has one key in ak and sk, as seed 000 has it, or several in keys.
type CallbackSecurity struct {
	Type string        `json:"type,omitzero"`
	AK   string        `json:"ak,omitzero"`
	SK   string        `json:"sk,omitzero"`
	Keys []CallbackKey `json:"keys,omitzero"`
}

// CallbackKey is an access key with its secret.
type CallbackKey struct {
	AccessKey string `json:"ak,omitzero"`
	Secret    string `json:"sk,omitzero"`
}

// OptionField is the name of a field in a form that has options: an option that is named alone gets the
// name of what it belongs to.
func OptionField(name string) string {
	first := name
	if end := strings.IndexAny(name, ".["); end >= 0 {
		first = name[:end]
	}
	if slices.ContainsFunc(fieldsOf(reflect.TypeFor[Options]()), func(f field) bool { return f.name == first }) {
		return "options." + name
	}
	return name
}
