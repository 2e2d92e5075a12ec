package form

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Task is a task to send. What is absent was not said.
type Task struct {
	Type      *string   `json:"type,omitzero"`
	Key       *string   `json:"key,omitzero" doc:"idempotency key: at most one task per key (default: generated)"`
	Args      Value     `json:"args,omitzero"`
	Tenant    *string   `json:"tenant,omitzero" doc:"tenant that owns the task"`
	Creator   *string   `json:"creator,omitzero" doc:"label: the user or service that sent it"`
	Category  *string   `json:"category,omitzero" doc:"label: group that it belongs to"`
	Priority  *int      `json:"priority,omitzero" doc:"0 to 9; 9 runs first; defaults to 5"`
	StartTime *Time     `json:"start_time,omitzero" flag:"at" doc:"start time, such as 2026-01-31T09:00:00Z, or a duration from now, such as 5m; defaults to now"`
	In        *Duration `json:"in,omitzero" doc:"start after this delay, such as 5m"`
	ExpiresIn *Duration `json:"expires_in,omitzero" doc:"cancel the task if no worker has started it after this delay, such as 1h; within about a minute of the expiry"`
	Held      *bool     `json:"held,omitzero" doc:"store it as Wait: no worker runs it until 'task release'"`
	Existing  []string  `json:"existing,omitzero" doc:"action for an existing key: keep (default), update-args, update-idle, restart-failed, restart-succeeded; with keep-args a restart uses the stored arguments and options"`
	Options   Options   `json:"options,omitzero"`
}

// Item is the task as a producer takes it. now is what durations in start_time and expires_at
// count from.
func (t *Task) Item(now time.Time) (producer.JSONItem, error) {
	it := producer.JSONItem{Args: []byte(t.Args)}
	if t.Type != nil {
		it.Type = *t.Type
	}
	var errs []error
	if t.StartTime != nil && t.In != nil {
		errs = append(errs, input.Invalid("in", "and start_time are both given; want one"))
	}
	if t.Options.ExpiresAt != nil && t.ExpiresIn != nil {
		errs = append(errs, input.Invalid("expires_in", "and expires_at are both given; want one"))
	}
	start, err := t.StartTime.at("start_time", time.UTC, now)
	errs = append(errs, err)
	existing, err := existingFlags(t.Existing)
	errs = append(errs, err)
	o, err := t.Options.Model(time.UTC, now)
	errs = append(errs, err)
	it.Options = t.options(start, existing, &o)
	return it, errors.Join(errs...)
}

// options are those of a producer for what the task says; o is what its options say.
func (t *Task) options(start time.Time, existing []model.Existing, o *model.Options) []producer.Option {
	var out []producer.Option
	add(&out, t.Key, producer.Key)
	add(&out, t.Tenant, producer.Tenant)
	add(&out, t.Creator, producer.Creator)
	add(&out, t.Category, producer.Category)
	add(&out, t.Priority, producer.Priority)
	add(&out, (*time.Duration)(t.In), producer.In)
	add(&out, (*time.Duration)(t.ExpiresIn), producer.ExpiresIn)
	f := &t.Options
	add(&out, f.ConcurrentWorkerCount, producer.ConcurrentWorkers)
	add(&out, f.MaxLapses, producer.MaxLapses)
	add(&out, f.MaxErrorsPerWorker, producer.MaxErrorsPerWorker)
	add(&out, f.NeedManual, producer.NeedManual)
	add(&out, f.LimitKey, producer.LimitKey)
	add(&out, (*time.Duration)(f.ExecutionTimeout), producer.Timeout)
	add(&out, (*time.Duration)(f.Retention), producer.Retention)
	add(&out, o.Retry, producer.Retry)
	add(&out, o.Callback, producer.Callback)
	where := func(said bool, option producer.Option) {
		if said {
			out = append(out, option)
		}
	}
	where(t.StartTime != nil, producer.At(start))
	where(f.ExpiresAt != nil, producer.ExpiresAt(o.ExpiresAt))
	where(t.Held != nil && *t.Held, producer.Held())
	where(len(existing) > 0, producer.OnExisting(existing...))
	where(f.SpecificWorkerIDs != nil, producer.Workers(f.SpecificWorkerIDs...))
	where(f.PingInterval != nil || f.WorkerTimeout != nil, producer.Lease(o.PingInterval, o.WorkerTimeout))
	return out
}

func add[T any](out *[]producer.Option, v *T, option func(T) producer.Option) {
	if v != nil {
		*out = append(*out, option(*v))
	}
}

// existingNames are what `existing` may say about a key that exists.
var existingNames = []struct {
	name string
	flag model.Existing
}{
	{"keep", 0}, {"update-args", model.UpdateArgs}, {"update-idle", model.UpdateIdle},
	{"restart-failed", model.RestartFailed}, {"restart-succeeded", model.RestartSucceeded},
	{"keep-args", model.KeepArgs},
}

// ExistingNames are the names that [Task.Existing] may hold.
func ExistingNames() (names []string) {
	for _, e := range existingNames {
		names = append(names, e.name)
	}
	return names
}

func existingFlags(names []string) (out []model.Existing, err error) {
	known := ExistingNames()
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, input.Invalid("existing", "has %q; want %s", name, strings.Join(known, ", "))
		}
		if flag := existingNames[i].flag; flag != 0 {
			out = append(out, flag)
		}
	}
	if len(names) > 1 && slices.Contains(names, "keep") {
		return nil, input.Invalid("existing", "has keep beside others; keep changes nothing")
	}
	if slices.Contains(out, model.KeepArgs) && !slices.Contains(out, model.RestartFailed) && !slices.Contains(out, model.RestartSucceeded) {
		return nil, input.Invalid("existing", "has keep-args without restart-failed or restart-succeeded")
	}
	return out, nil
}
