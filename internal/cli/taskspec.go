package cli

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"time"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// taskSpec is a task to send, as a line of a JSONL file or the flags of `send` say it.
// Names and units are those of the task's document. What is absent was not said.
type taskSpec struct {
	Type      *string         `json:"type"`
	Key       *string         `json:"key"`
	Args      json.RawMessage `json:"args"`
	Tenant    *string         `json:"tenant"`
	Creator   *string         `json:"creator"`
	Category  *string         `json:"category"`
	Priority  *int            `json:"priority"`
	StartTime *time.Time      `json:"start_time"`
	In        *millis         `json:"in_ms"`
	ExpiresIn *millis         `json:"expires_in_ms"`
	Held      *bool           `json:"held"`
	Existing  []string        `json:"existing"`
	Options   optionsSpec     `json:"options"`
}

type optionsSpec struct {
	ConcurrentWorkers  *int       `json:"concurrent_worker_count"`
	PingInterval       *millis    `json:"ping_interval_ms"`
	WorkerTimeout      *millis    `json:"worker_timeout_ms"`
	ExecutionTimeout   *millis    `json:"execution_timeout_ms"`
	Workers            []string   `json:"specific_worker_ids"`
	Retry              retrySpec  `json:"retry"`
	MaxLapses          *int       `json:"max_lapses"`
	MaxErrorsPerWorker *int       `json:"max_errors_per_worker"`
	NeedManual         *bool      `json:"need_manual"`
	Retention          *millis    `json:"retention_ms"`
	ExpiresAt          *time.Time `json:"expires_at"`
	LimitKey           *string    `json:"limit_key"`

	Callback *model.Callback `json:"callback"` // {} = nobody is told
}

type retrySpec struct {
	Strategy    *string   `json:"strategy"`
	Interval    *millis   `json:"interval_ms"`
	Sequence    []millis  `json:"sequence_ms"`
	Factor      *float64  `json:"factor"`
	MaxInterval *millis   `json:"max_interval_ms"`
	Jitter      *float64  `json:"jitter"`
	MaxErrors   *int      `json:"max_errors"`
	Local       localSpec `json:"local"`
}

type localSpec struct {
	Count    *int    `json:"count"`
	Interval *millis `json:"interval_ms"`
}

// millis is a duration whose JSON is a whole number of milliseconds.
type millis time.Duration

// UnmarshalJSON reads a whole number of milliseconds.
func (m *millis) UnmarshalJSON(data []byte) error {
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	if n > math.MaxInt64/int64(time.Millisecond) || n < math.MinInt64/int64(time.Millisecond) {
		return errors.New("a number of milliseconds is too large")
	}
	*m = millis(time.Duration(n) * time.Millisecond)
	return nil
}

// parseSpec reads one line. A field that it does not know is a mistake.
func parseSpec(line []byte) (*taskSpec, error) {
	s := &taskSpec{}
	if err := strictJSON(line, s, "a task"); err != nil {
		return nil, err
	}
	return s, nil
}

// or fills what s does not say with what d says.
func (s *taskSpec) or(d *taskSpec) { fill(reflect.ValueOf(s).Elem(), reflect.ValueOf(d).Elem()) }

func fill(dst, src reflect.Value) {
	for i := range dst.NumField() {
		switch f := dst.Field(i); f.Kind() {
		case reflect.Struct:
			fill(f, src.Field(i))
		default:
			if f.IsNil() {
				f.Set(src.Field(i))
			}
		}
	}
}

// item is the task as the producer takes it, checked as far as the producer does not
// do it: the arguments of built-in types.
func (s *taskSpec) item(checkArgs bool) (producer.JSONItem, error) {
	it := producer.JSONItem{Args: s.Args}
	if s.Type != nil {
		it.Type = *s.Type
	}
	var errs []error
	if checkArgs {
		errs = append(errs, builtin.CheckArgs(it.Type, s.Args))
	}
	if s.StartTime != nil && s.In != nil {
		errs = append(errs, input.Invalid("in_ms", "and start_time are both given; want one"))
	}
	if s.Options.ExpiresAt != nil && s.ExpiresIn != nil {
		errs = append(errs, input.Invalid("expires_in_ms", "and expires_at are both given; want one"))
	}
	existing, err := existingFlags(s.Existing)
	errs = append(errs, err)
	it.Options = s.options(existing)
	return it, errors.Join(errs...)
}

func (s *taskSpec) options(existing []model.Existing) []producer.Option {
	var out []producer.Option
	add(&out, s.Key, producer.Key)
	add(&out, s.Tenant, producer.Tenant)
	add(&out, s.Creator, producer.Creator)
	add(&out, s.Category, producer.Category)
	add(&out, s.Priority, producer.Priority)
	add(&out, s.StartTime, producer.At)
	if s.In != nil {
		out = append(out, producer.In(time.Duration(*s.In)))
	}
	if s.ExpiresIn != nil {
		out = append(out, producer.ExpiresIn(time.Duration(*s.ExpiresIn)))
	}
	add(&out, s.Options.ExpiresAt, producer.ExpiresAt)
	add(&out, s.Options.LimitKey, producer.LimitKey)
	if s.Held != nil && *s.Held {
		out = append(out, producer.Held())
	}
	if len(existing) > 0 {
		out = append(out, producer.OnExisting(existing...))
	}
	o := &s.Options
	add(&out, o.ConcurrentWorkers, producer.ConcurrentWorkers)
	if o.Workers != nil {
		out = append(out, producer.Workers(o.Workers...))
	}
	if o.PingInterval != nil || o.WorkerTimeout != nil {
		out = append(out, producer.Lease(o.PingInterval.duration(), o.WorkerTimeout.duration()))
	}
	if o.ExecutionTimeout != nil {
		out = append(out, producer.Timeout(o.ExecutionTimeout.duration()))
	}
	if !reflect.ValueOf(o.Retry).IsZero() {
		out = append(out, producer.Retry(o.Retry.retry()))
	}
	add(&out, o.MaxLapses, producer.MaxLapses)
	add(&out, o.MaxErrorsPerWorker, producer.MaxErrorsPerWorker)
	add(&out, o.NeedManual, producer.NeedManual)
	if o.Retention != nil {
		out = append(out, producer.Retention(o.Retention.duration()))
	}
	if o.Callback != nil {
		out = append(out, producer.Callback(*o.Callback))
	}
	return out
}

func add[T any](out *[]producer.Option, v *T, option func(T) producer.Option) {
	if v != nil {
		*out = append(*out, option(*v))
	}
}

func (m *millis) duration() time.Duration {
	if m == nil {
		return 0
	}
	return time.Duration(*m)
}

func (r *retrySpec) retry() model.Retry {
	out := model.Retry{Interval: r.Interval.duration(), MaxInterval: r.MaxInterval.duration(), MaxErrors: r.MaxErrors}
	if r.Strategy != nil {
		out.Strategy = model.RetryStrategy(*r.Strategy)
	}
	for _, d := range r.Sequence {
		out.Sequence = append(out.Sequence, time.Duration(d))
	}
	if r.Factor != nil {
		out.Factor = *r.Factor
	}
	if r.Jitter != nil {
		out.Jitter = *r.Jitter
	}
	if r.Local.Count != nil || r.Local.Interval != nil {
		out.Local = &model.LocalRetry{Interval: r.Local.Interval.duration()}
		if r.Local.Count != nil {
			out.Local.Count = *r.Local.Count
		}
	}
	return out
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

func existingFlags(names []string) ([]model.Existing, error) {
	var out []model.Existing
next:
	for _, name := range names {
		for _, e := range existingNames {
			if e.name == name {
				if e.flag != 0 {
					out = append(out, e.flag)
				}
				continue next
			}
		}
		return nil, input.Invalid("existing", "has %q; want keep, update-args, update-idle, restart-failed, restart-succeeded, keep-args", name)
	}
	return out, nil
}
