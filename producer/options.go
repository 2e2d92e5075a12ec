package producer

import (
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Option says something about a task that is sent, or about a change ([Producer.Update]).
// It prints as it is written. Where two say something about the same, the later wins.
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

// Key is the caller's idempotency key inside tenant and type: 1 to 400 bytes of UTF-8.
// Of one key one task is stored. Defaults to a fresh one whose order is that of time.
func Key(key string) Option {
	return newOption("Key", func(s *settings) {
		s.draft.Key = key
		if key == "" { // in a draft that means "make one up", which is not what was asked
			s.complaints = append(s.complaints, input.Key(key))
		}
	}, key)
}

// At is when the task may start; the zero time means now. A time in the past lets it
// run at once, before tasks of its priority that became due later. Defaults to now.
func At(at time.Time) Option {
	return newOption("At", func(s *settings) { s.draft.Start, s.draft.In = at, 0 }, at)
}

// In is when the task may start, counted from the send by the database's clock; 0 means
// now, and a negative duration is refused.
func In(d time.Duration) Option {
	return newOption("In", func(s *settings) {
		s.draft.Start, s.draft.In = time.Time{}, d
	}, d)
}

// Priority is 0 to 9; tasks of 9 run first. Defaults to 5.
func Priority(n int) Option {
	return newOption("Priority", func(s *settings) { s.draft.Priority = new(n) }, n)
}

// Tenant owns the task: 1 to 100 of a-z A-Z 0-9 . _ -, or "" for no tenant. Keys of
// different tenants do not collide. Defaults to the Config's.
func Tenant(tenant string) Option {
	return newOption("Tenant", func(s *settings) { s.draft.Tenant = tenant }, tenant)
}

// Creator is a label that tasks can be found by, at most 200 bytes: who caused it.
// Defaults to none.
func Creator(creator string) Option {
	return newOption("Creator", func(s *settings) { s.draft.Creator = creator }, creator)
}

// Category is a label that tasks can be found by, at most 200 bytes. Defaults to none.
func Category(category string) Option {
	return newOption("Category", func(s *settings) { s.draft.Category = category }, category)
}

// ConcurrentWorkers is how many different workers must each succeed, 1 to 64; so many
// may run the task at once. Defaults to 1.
func ConcurrentWorkers(n int) Option {
	return newOption("ConcurrentWorkers", func(s *settings) {
		s.draft.Options.ConcurrentWorkerCount = n
		if n == 0 { // in a document that means "not said"
			s.complain("concurrent_worker_count", "is 0; want 1 to %d", input.MaxWorkers)
		}
	}, n)
}

// Workers names the only workers that may run the task, 1 to 64. Defaults to everybody.
func Workers(ids ...string) Option {
	ids = slices.Clone(ids)
	return newOption("Workers", func(s *settings) {
		s.draft.Options.SpecificWorkerIDs = slices.Clone(ids)
		if len(ids) == 0 { // an empty list by accident must not open the task to everybody
			s.complain("specific_worker_ids", "is empty; AnyWorker() lets everybody run the task")
		}
	}, anys(ids)...)
}

// AnyWorker lets every worker run the task: the default, for [Producer.Update].
func AnyWorker() Option {
	return newOption("AnyWorker", func(s *settings) { s.draft.Options.SpecificWorkerIDs = nil })
}

// Lease is how often a worker pings while it runs the task, and after how long without
// a ping another worker takes the task over. timeout is at least a second, ping at most
// half of it; 0 leaves one of them to the type, the handler or the default. timeout defaults to
// 30 s, or three pings where that is more; ping to a third of the timeout, 10 s.
func Lease(ping, timeout time.Duration) Option {
	return newOption("Lease", func(s *settings) {
		s.draft.Options.PingInterval, s.draft.Options.WorkerTimeout = ping, timeout
	}, ping, timeout)
}

// Timeout is how long one execution may take, from its claim; then it is void and
// counts as an error. Defaults to what the type says, else to no limit. 0 says nothing;
// model.NoTimeout is no limit whatever the type says.
func Timeout(d time.Duration) Option {
	return newOption("Timeout", func(s *settings) { s.draft.Options.ExecutionTimeout = d }, d)
}

// Retry says what follows an error; a zero field is left to the type, the handler or
// the default, and the type's strategy none is undone by another strategy or a MaxErrors
// above 0. Defaults to 10 retries with delays that double from 1 s to 1 h.
func Retry(r model.Retry) Option {
	return newOption("Retry", func(s *settings) { s.draft.Options.Retry = new(r) }, r)
}

// MaxLapses is how many lapsed leases the task survives. Defaults to 3.
func MaxLapses(n int) Option {
	return newOption("MaxLapses", func(s *settings) { s.draft.Options.MaxLapses = new(n) }, n)
}

// MaxErrorsPerWorker keeps a worker away from the task after so many errors of its own,
// at most 10. Defaults to 0: no limit.
func MaxErrorsPerWorker(n int) Option {
	return newOption("MaxErrorsPerWorker", func(s *settings) { s.draft.Options.MaxErrorsPerWorker = n }, n)
}

// NeedManual makes a task whose budget is spent Pending, for a person to decide,
// instead of Failure. Defaults to false.
func NeedManual(yes bool) Option {
	return newOption("NeedManual", func(s *settings) { s.draft.Options.NeedManual = new(yes) }, yes)
}

// Retention is how long the ended task stays where it is and its key deduplicates; then
// it moves to the history. Defaults to 7 days, which is also what 0 means; a minute is
// the least.
func Retention(d time.Duration) Option {
	return newOption("Retention", func(s *settings) { s.draft.Options.Retention = d }, d)
}

// Callback sets the receivers that are called over HTTP when the task has succeeded or failed
// for good, and with OnPending also when a person must decide. Package callback describes the
// requests. Secrets are sealed with the Config's
// SecretKey before anything is written, and the option is refused without one where it has
// any. An empty Callback tells nobody, whatever the task's type says: the task is Success at
// once. Defaults to what the type says.
func Callback(c model.Callback) Option {
	return newOption("Callback", func(s *settings) { s.draft.Options.Callback = &c }, c)
}

// LimitKey names what the task is one of many of, such as its customer: of the tasks of a type
// with the same key one runs at a time over all workers, or as many as the type's KeyLimit
// says. The others wait, and do not stand before tasks of other keys. "" = none.
func LimitKey(key string) Option {
	return newOption("LimitKey", func(s *settings) { s.draft.Options.LimitKey = key }, key)
}

// ExpiresAt is the time by which somebody must have started the task: else it is Cancelled,
// and its remark says so, also when no worker of its type lives. One that was started in
// time may take as long as it likes. The zero time means never. Defaults to never.
func ExpiresAt(at time.Time) Option {
	return newOption("ExpiresAt", func(s *settings) { s.draft.Options.ExpiresAt, s.draft.ExpiresIn = at, 0 }, at)
}

// ExpiresIn is [ExpiresAt], counted from the send by the database's clock; at least a
// millisecond.
func ExpiresIn(d time.Duration) Option {
	return newOption("ExpiresIn", func(s *settings) {
		s.draft.Options.ExpiresAt, s.draft.ExpiresIn = time.Time{}, d
		if d == 0 { // in a draft that means "not said"
			s.complain("expires_in", "is 0; want at least 1ms, because no worker could start the task in time")
		}
	}, d)
}

// OnExisting says what the send does when the key exists. Defaults to leaving the task
// alone.
func OnExisting(flags ...model.Existing) Option {
	return newOption("OnExisting", func(s *settings) {
		s.draft.OnExisting = 0
		for _, f := range flags {
			s.draft.OnExisting |= f
		}
	}, anys(flags)...)
}

// Held stores the task as Wait: nobody runs it until [Producer.Release].
func Held() Option {
	return newOption("Held", func(s *settings) { s.draft.Held = true })
}

// OutsideTransaction sends the task at once although ctx carries a session: it is
// there even when the caller's transaction is rolled back. In a SendMany all items
// have it, or none.
func OutsideTransaction() Option {
	return newOption("OutsideTransaction", func(s *settings) { s.outside = true })
}

// Args are new arguments for [Producer.Update]: any JSON value. A send takes its
// arguments as a parameter and refuses this option.
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
