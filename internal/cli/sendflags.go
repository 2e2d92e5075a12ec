package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/model"
)

// sendFlags are the options of a task as flags. A flag that was not given says nothing.
type sendFlags struct {
	key, tenant, creator, category       string
	args                                 string
	at, in, expiresAt, expiresIn         string
	priority                             int
	held                                 bool
	existing                             []string
	concurrentWorkers                    int
	workers                              []string
	pingInterval, workerTimeout, timeout string
	retryStrategy                        string
	retryInterval, retryMaxInterval      string
	retrySequence                        []string
	retryFactor, retryJitter             float64
	maxErrors, localCount                int
	localInterval                        string
	maxLapses, maxErrorsPerWorker        int
	needManual                           bool
	retention, callback, limitKey        string
}

func (s *sendFlags) register(f *pflag.FlagSet) {
	s.registerChangeable(f)
	f.StringVar(&s.key, "key", "", "idempotency key: at most one task per key (default: generated)")
	f.StringVar(&s.tenant, "tenant", "", "tenant that owns the task")
	f.StringVar(&s.creator, "creator", "", "label: the user or service that sent it")
	f.StringVar(&s.category, "category", "", "label: group that it belongs to")
	f.BoolVar(&s.held, "held", false, "store it as Wait: no worker runs it until 'task release'")
	f.StringSliceVar(&s.existing, "existing", nil, "action for an existing key: keep (default), update-args, update-idle, restart-failed, restart-succeeded; with keep-args a restart uses the stored arguments and options")
}

// registerChangeable registers the flags that can also change a task later.
func (s *sendFlags) registerChangeable(f *pflag.FlagSet) {
	f.StringVar(&s.args, "args", "", "arguments as JSON; @FILE reads them from a file, @- from stdin")
	f.StringVar(&s.at, "at", "", "start time, such as 2026-01-31T09:00:00Z; defaults to now")
	f.StringVar(&s.in, "in", "", "start after this delay, such as 5m")
	f.StringVar(&s.expiresAt, "expires-at", "", "cancel the task if no worker has started it by this time; defaults to never")
	f.StringVar(&s.expiresIn, "expires-in", "", "cancel the task if no worker has started it after this delay, such as 1h")
	f.IntVar(&s.priority, "priority", 5, "0 to 9; 9 runs first")
	f.StringVar(&s.limitKey, "limit-key", "", "tasks of the type with the same key run one at a time, or as many as the type allows")
	f.IntVar(&s.concurrentWorkers, "concurrent-workers", 1, "number of different workers that must each succeed")
	f.StringSliceVar(&s.workers, "workers", nil, "the only workers that may run it; defaults to every worker")
	f.StringVar(&s.pingInterval, "ping-interval", "", "how often the worker extends its lease; defaults to a third of --worker-timeout: 10s")
	f.StringVar(&s.workerTimeout, "worker-timeout", "", "lease: another worker takes over when no ping arrives for this long; defaults to 30s, or three times --ping-interval if that is longer")
	f.StringVar(&s.timeout, "timeout", "", "limit for one execution; none = no limit, even if its type sets one")
	f.StringVar(&s.retryStrategy, "retry-strategy", "", "none, fixed, sequence or exponential (default)")
	f.StringVar(&s.retryInterval, "retry-interval", "", "first delay before a retry; defaults to 1s")
	f.StringSliceVar(&s.retrySequence, "retry-sequence", nil, "the delays of the strategy sequence, such as 1s,10s,1m")
	f.Float64Var(&s.retryFactor, "retry-factor", 2, "growth of the delay (exponential)")
	f.StringVar(&s.retryMaxInterval, "retry-max-interval", "", "greatest delay (exponential); defaults to 1h")
	f.Float64Var(&s.retryJitter, "retry-jitter", 0.1, "share of the delay that is random (exponential); negative for none")
	f.IntVar(&s.maxErrors, "max-errors", 10, "number of retries of the task")
	f.IntVar(&s.localCount, "local-retries", 0, "retries inside one execution, before it counts as an error")
	f.StringVar(&s.localInterval, "local-retry-interval", "", "delay between local retries")
	f.IntVar(&s.maxLapses, "max-lapses", 3, "number of lapsed leases that the task survives")
	f.IntVar(&s.maxErrorsPerWorker, "max-errors-per-worker", 0, "a worker leaves the task alone after this many errors of its own; 0 = no limit")
	f.BoolVar(&s.needManual, "need-manual", false, "when all retries are spent: Pending, for a person to decide, instead of Failure")
	f.StringVar(&s.callback, "callback", "", "callback receivers as JSON; @FILE reads them from a file; none = no callback; defaults to those of its type")
	f.StringVar(&s.retention, "retention", "", "how long the ended task and its key are kept, at least a minute; defaults to 7d")
}

func (s *sendFlags) completions(cmd *cobra.Command) {
	names := make([]string, len(existingNames))
	for i, e := range existingNames {
		names[i] = e.name
	}
	_ = cmd.RegisterFlagCompletionFunc("existing", fixed(names...))
	_ = cmd.RegisterFlagCompletionFunc("retry-strategy", fixed("none", "fixed", "sequence", "exponential"))
}

// spec returns the values of the given flags.
func (a *app) spec(s *sendFlags, f *pflag.FlagSet) (*taskSpec, error) {
	out := &taskSpec{}
	var errs []error
	if f.Changed("args") {
		data, err := a.argument("args", s.args)
		if err != nil {
			errs = append(errs, err)
		}
		if err == nil && !json.Valid(data) {
			errs = append(errs, usage("--args is not JSON: %s", human.OneLine(string(data), 80)))
		}
		out.Args = data
	}
	if f.Changed("callback") {
		c, err := a.callback(s.callback)
		errs = append(errs, err)
		out.Options.Callback = c
	}
	set(f, "key", &out.Key, s.key)
	set(f, "tenant", &out.Tenant, s.tenant)
	set(f, "creator", &out.Creator, s.creator)
	set(f, "category", &out.Category, s.category)
	set(f, "priority", &out.Priority, s.priority)
	set(f, "held", &out.Held, s.held)
	if f.Changed("existing") {
		out.Existing = s.existing
	}
	if f.Changed("at") {
		at, err := parseTime("at", s.at, a.clock().Now())
		errs = append(errs, err)
		out.StartTime = &at
	}
	if f.Changed("expires-at") {
		at, err := parseTime("expires-at", s.expiresAt, a.clock().Now())
		errs = append(errs, err)
		out.Options.ExpiresAt = &at
	}
	d := durations{f: f, errs: errs}
	d.set("in", &out.In, s.in)
	d.set("expires-in", &out.ExpiresIn, s.expiresIn)
	if out.ExpiresIn != nil && out.Options.ExpiresAt != nil {
		d.errs = append(d.errs, usage("--expires-in and --expires-at are both given; want one"))
	}
	if out.In != nil && out.StartTime != nil {
		d.errs = append(d.errs, usage("--in and --at are both given; want one"))
	}
	o := &out.Options
	set(f, "concurrent-workers", &o.ConcurrentWorkers, s.concurrentWorkers)
	if f.Changed("workers") {
		o.Workers = s.workers
	}
	d.set("ping-interval", &o.PingInterval, s.pingInterval)
	d.set("worker-timeout", &o.WorkerTimeout, s.workerTimeout)
	if s.timeout == "none" {
		o.ExecutionTimeout = new(millis(model.NoTimeout))
	} else {
		d.set("timeout", &o.ExecutionTimeout, s.timeout)
	}
	d.set("retention", &o.Retention, s.retention)
	set(f, "limit-key", &o.LimitKey, s.limitKey)
	set(f, "max-lapses", &o.MaxLapses, s.maxLapses)
	set(f, "max-errors-per-worker", &o.MaxErrorsPerWorker, s.maxErrorsPerWorker)
	set(f, "need-manual", &o.NeedManual, s.needManual)
	r := &o.Retry
	set(f, "retry-strategy", &r.Strategy, s.retryStrategy)
	d.set("retry-interval", &r.Interval, s.retryInterval)
	d.set("retry-max-interval", &r.MaxInterval, s.retryMaxInterval)
	for _, text := range s.retrySequence {
		v, err := parseDuration("retry-sequence", text)
		d.errs = append(d.errs, err)
		r.Sequence = append(r.Sequence, millis(v))
	}
	set(f, "retry-factor", &r.Factor, s.retryFactor)
	set(f, "retry-jitter", &r.Jitter, s.retryJitter)
	set(f, "max-errors", &r.MaxErrors, s.maxErrors)
	set(f, "local-retries", &r.Local.Count, s.localCount)
	d.set("local-retry-interval", &r.Local.Interval, s.localInterval)
	if err := errors.Join(d.errs...); err != nil {
		return nil, &codedError{ExitUsage, err}
	}
	return out, nil
}

func set[T any](f *pflag.FlagSet, name string, dst **T, v T) {
	if f.Changed(name) {
		*dst = &v
	}
}

type durations struct {
	f    *pflag.FlagSet
	errs []error
}

func (d *durations) set(name string, dst **millis, text string) {
	if !d.f.Changed(name) {
		return
	}
	v, err := parseDuration(name, text)
	if err != nil {
		d.errs = append(d.errs, err)
		return
	}
	ms := millis(v)
	*dst = &ms
}

// callback reads what --callback says.
func (a *app) callback(v string) (*model.Callback, error) {
	if v == "none" {
		return &model.Callback{}, nil
	}
	data, err := a.argument("callback", v)
	if err != nil {
		return nil, err
	}
	c := &model.Callback{}
	if err := strictJSON(data, c, "a callback"); err != nil {
		return nil, usage("--callback: %w; want {\"success\": {\"url\": ...}, \"error\": ..., \"on_pending\": true, \"security\": ...}, or none", err)
	}
	return c, nil
}

// argument is a flag's value, or the content of the file it names with an @.
func (a *app) argument(flag, v string) ([]byte, error) {
	name, isFile := strings.CutPrefix(v, "@")
	if !isFile {
		return []byte(v), nil
	}
	data, err := a.readFile(name)
	if err != nil {
		return nil, usage("--%s: %w", flag, err)
	}
	return data, nil
}

// readFile is the content of a file; - is stdin.
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return readAll(a.Stdin, "stdin")
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage("there is no file %s", name)
	}
	if err != nil {
		return nil, usage("%w", err)
	}
	return data, nil
}
