package producer

import (
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Option is an option of a send or of [Producer.Update]. It prints as the Go code that creates
// it. If two options set the same field, the later one wins.
type Option interface {
	// String is the option as Go code, such as Priority(9).
	String() string
	apply(*settings)
}

// settings is what the options of one task add up to.
type settings struct {
	draft      Draft
	outside    bool
	args       any
	rev        int64    // of IfRev
	given      []string // names of the options, in their order
	complaints []error
}

func (s *settings) complain(field, format string, args ...any) {
	s.complaints = append(s.complaints, input.Invalid(field, format, args...))
}

// gather applies the options in their order to what base says.
func gather(base Draft, opts []Option) *settings {
	s := &settings{draft: base}
	for i, o := range opts {
		if o == nil {
			s.complain(fmt.Sprintf("options[%d]", i), "is nil")
			continue
		}
		o.apply(s)
	}
	return s
}

func (s *settings) has(name string) bool { return slices.Contains(s.given, name) }

type option struct {
	name   string
	values []any
	set    func(*settings)
}

func (o option) apply(s *settings) {
	s.given = append(s.given, o.name)
	o.set(s)
}

func newOption(name string, set func(*settings), values ...any) Option {
	return option{name: name, values: values, set: set}
}

// Key is the idempotency key: at most one task per key within a tenant and type. 1 to 400 bytes
// of UTF-8. Defaults to a generated key; generated keys sort by time.
func Key(key string) Option {
	return newOption("Key", func(s *settings) {
		s.draft.Key = key
		if key == "" { // in a draft that means "make one up", which is not what was asked
			s.complaints = append(s.complaints, input.Key(key))
		}
	}, key)
}

// At sets the start time; the zero time means now. With a time in the past, the task is due at
// once and runs before tasks of the same priority that became due later. Defaults to now.
func At(at time.Time) Option {
	return newOption("At", func(s *settings) { s.draft.Start, s.draft.In = at, 0 }, at)
}

// In sets the start time, measured from the send by the database's clock; 0 means now. A
// negative duration is refused.
func In(d time.Duration) Option {
	return newOption("In", func(s *settings) {
		s.draft.Start, s.draft.In = time.Time{}, d
	}, d)
}

// Priority sets the priority, 0 to 9; tasks with 9 run first. Defaults to 5.
func Priority(n int) Option {
	return newOption("Priority", func(s *settings) { s.draft.Priority = new(n) }, n)
}

// Tenant sets the owner of the task: 1 to 100 of a-z A-Z 0-9 . _ -, or "" for no tenant. Keys
// of different tenants do not collide. Defaults to the Config's tenant.
func Tenant(tenant string) Option {
	return newOption("Tenant", func(s *settings) { s.draft.Tenant = tenant }, tenant)
}

// Creator is a label for finding tasks, at most 200 bytes: the user or service that caused the
// task. Defaults to none.
func Creator(creator string) Option {
	return newOption("Creator", func(s *settings) { s.draft.Creator = creator }, creator)
}

// Category is a label for finding tasks, at most 200 bytes. Defaults to none.
func Category(category string) Option {
	return newOption("Category", func(s *settings) { s.draft.Category = category }, category)
}

// ConcurrentWorkers sets how many different workers must each succeed, 1 to 64. As many workers
// may run the task concurrently. Defaults to 1.
func ConcurrentWorkers(n int) Option {
	return newOption("ConcurrentWorkers", func(s *settings) {
		s.draft.Options.ConcurrentWorkerCount = n
		if n == 0 { // in a document that means "not said"
			s.complain("concurrent_worker_count", "is 0; want 1 to %d", input.MaxWorkers)
		}
	}, n)
}

// Workers names the only workers that may run the task, 1 to 64 different ones. Defaults to all workers.
func Workers(ids ...string) Option {
	ids = slices.Clone(ids)
	return newOption("Workers", func(s *settings) {
		s.draft.Options.SpecificWorkerIDs = slices.Clone(ids)
		if len(ids) == 0 { // an empty list by accident must not open the task to everybody
			s.complain("specific_worker_ids", "is empty; AnyWorker() lets everybody run the task")
		}
	}, anys(ids)...)
}

// AnyWorker removes the worker filter with [Producer.Update]: every worker may run the task, as
// by default.
func AnyWorker() Option {
	return newOption("AnyWorker", func(s *settings) { s.draft.Options.SpecificWorkerIDs = nil })
}

// Lease sets how often a worker pings while it runs the task, and the lease: after timeout
// without a ping, another worker takes over the task. timeout is at least a second, ping at
// most half of it. 0 leaves either of them to the type, the handler or the default. timeout
// defaults to 30 s, or three ping intervals if that is more; ping defaults to a third of the
// timeout.
func Lease(ping, timeout time.Duration) Option {
	return newOption("Lease", func(s *settings) {
		s.draft.Options.PingInterval, s.draft.Options.WorkerTimeout = ping, timeout
	}, ping, timeout)
}

// Timeout limits one execution, measured from its claim; an execution that exceeds it ends as
// an error. Defaults to the timeout of the type, or to no limit. 0 leaves it unset;
// model.NoTimeout removes the limit of the type.
func Timeout(d time.Duration) Option {
	return newOption("Timeout", func(s *settings) { s.draft.Options.ExecutionTimeout = d }, d)
}

// Retry sets what happens after an error. A zero field is left to the type, the handler or the
// default. Another strategy or a MaxErrors above 0 overrides the strategy none of the type.
// Defaults to 10 retries with delays that start at 1 s and double, up to about nine minutes.
func Retry(r model.Retry) Option {
	return newOption("Retry", func(s *settings) { s.draft.Options.Retry = new(r) }, r)
}

// MaxLapses sets how many lapsed leases the task survives. Defaults to 3.
func MaxLapses(n int) Option {
	return newOption("MaxLapses", func(s *settings) { s.draft.Options.MaxLapses = new(n) }, n)
}

// MaxErrorsPerWorker excludes a worker from the task after n errors of its own, at most 10.
// Defaults to 0: no limit.
func MaxErrorsPerWorker(n int) Option {
	return newOption("MaxErrorsPerWorker", func(s *settings) { s.draft.Options.MaxErrorsPerWorker = n }, n)
}

// NeedManual makes the task Pending instead of Failure when its budget is exhausted, so that a
// person decides. Defaults to false.
func NeedManual(yes bool) Option {
	return newOption("NeedManual", func(s *settings) { s.draft.Options.NeedManual = new(yes) }, yes)
}

// Retention sets how long the ended task stays in place and its key deduplicates. Then the task
// moves to the history. At least a minute; 0 means the default. Defaults to 7 days.
func Retention(d time.Duration) Option {
	return newOption("Retention", func(s *settings) { s.draft.Options.Retention = d }, d)
}

// Callback sets the receivers of HTTP calls when the task succeeds or ends as Failure, and with
// OnPending also when it becomes Pending. Package callback describes the requests. The producer
// encrypts secrets with the Config's SecretKey before anything is written; a callback with
// secrets is refused without a SecretKey. An empty Callback disables the callback of the task's
// type: the task becomes Success at once. Defaults to the callback of the type.
func Callback(c model.Callback) Option {
	return newOption("Callback", func(s *settings) { s.draft.Options.Callback = &c }, c)
}

// LimitKey groups tasks of a type under a limit, for example by customer. One task per key runs
// at a time on all workers together, or as many as the type's KeyLimit allows. The others wait
// without blocking tasks of other keys. "" = none.
func LimitKey(key string) Option {
	return newOption("LimitKey", func(s *settings) { s.draft.Options.LimitKey = key }, key)
}

// ExpiresAt sets the time by which a worker must have started the task. Otherwise the task is
// Cancelled, with a remark, even if no live worker handles its type: a live worker of any type does
// that within about a minute. Once started, the task may run past this time. The zero time means
// never. Defaults to never.
func ExpiresAt(at time.Time) Option {
	return newOption("ExpiresAt", func(s *settings) { s.draft.Options.ExpiresAt, s.draft.ExpiresIn = at, 0 }, at)
}

// ExpiresIn is [ExpiresAt], measured from the send by the database's clock; at least a
// millisecond.
func ExpiresIn(d time.Duration) Option {
	return newOption("ExpiresIn", func(s *settings) {
		s.draft.Options.ExpiresAt, s.draft.ExpiresIn = time.Time{}, d
		if d == 0 { // in a draft that means "not said"
			s.complain("expires_in", "is 0; want at least 1ms, because no worker could start the task in time")
		}
	}, d)
}

// OnExisting selects what the send does if the key exists. By default it changes nothing.
func OnExisting(flags ...model.Existing) Option {
	return newOption("OnExisting", func(s *settings) {
		s.draft.OnExisting = 0
		for _, f := range flags {
			s.draft.OnExisting |= f
		}
	}, anys(flags)...)
}

// Held stores the task as Wait: no worker runs it until [Producer.Release].
func Held() Option {
	return newOption("Held", func(s *settings) { s.draft.Held = true })
}

// OutsideTransaction sends the task at once even if ctx carries a transaction: the task stays
// stored if the caller's transaction aborts. In a SendMany, either all items have this option
// or none.
func OutsideTransaction() Option {
	return newOption("OutsideTransaction", func(s *settings) { s.outside = true })
}

// IfRev has [Producer.Update] change the task only while its Rev is still the one that the caller
// read. Otherwise the error is [model.ErrChanged], and nothing is changed. Every claim and every end of an
// execution changes the Rev; pings, checkpoints, steps and progress do not. A send refuses this option.
func IfRev(rev int64) Option {
	return newOption("IfRev", func(s *settings) {
		if s.rev = rev; rev < 1 {
			s.complain("rev", "is %d; want the rev of a task that was read", rev)
		}
	}, rev)
}

// Args sets new arguments with [Producer.Update]: any JSON value. A send takes its arguments as
// a parameter and refuses this option.
func Args(args any) Option {
	return newOption("Args", func(s *settings) { s.args = args }, args)
}

func anys[T any](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}
