package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// FetchRequest describes a fetch.
type FetchRequest struct {
	// WorkerID names the worker in task documents and worker filters: 1 to 200 bytes. This
	// worker holds the fetched executions, whichever process calls Fetch.
	WorkerID string
	// Types to fetch, at most 100. Empty = all types that have tasks; this requires Categories.
	Types []string
	// Tenants, Categories and Creators restrict the tasks: a task must match an entry of each
	// list that is not empty. model.NoTenant selects tasks without a tenant.
	Tenants, Categories, Creators []string
	// Max is how many tasks to fetch at most, 1 to 1,000. Defaults to 1.
	Max int
	// Lease is the time until the first ping is due, a second to a day. Later pings extend the
	// lease by the task's worker timeout. Defaults to the worker timeout.
	Lease time.Duration
}

// Fetched is a claimed execution.
type Fetched struct {
	// Handle identifies the execution in Ping, Complete, Fail and GiveBack.
	Handle string
	// Task as it is after the claim; Task.ID, Type, Key, Tenant, Attempt, Checkpoint.
	Task *model.Task
	// Args as JSON; nil if there are none.
	Args json.RawMessage
	// Checkpoint that an earlier execution saved, as JSON; nil if there is none.
	Checkpoint json.RawMessage
	// Until is the end of the lease, in the database's time. Ping well before it.
	Until time.Time
	// PingInterval is how often to ping.
	PingInterval time.Duration
	// Deadline is when the execution times out, even if it is pinged; zero = never.
	Deadline time.Time
	// Token is the fencing token for other systems: a later execution of a task has a greater
	// token.
	Token model.Token
}

// maxFetch is how many tasks one fetch claims at most.
const maxFetch = 1000

func (r *FetchRequest) validate() error {
	errs := []error{input.WorkerID("worker_id", r.WorkerID)}
	if len(r.Types) == 0 && len(r.Categories) == 0 {
		errs = append(errs, input.Invalid("types", "are empty; give types or categories"))
	}
	if len(r.Types) > store.MaxTypes {
		errs = append(errs, input.Invalid("types", "are %d; at most %d are allowed", len(r.Types), store.MaxTypes))
	}
	for i, typ := range r.Types {
		errs = append(errs, input.Name(fmt.Sprintf("types[%d]", i), typ))
	}
	only := r.conditions()
	errs = append(errs, lifecycle.CheckConditions(only))
	if r.Max < 0 || r.Max > maxFetch {
		errs = append(errs, input.Invalid("max", "is %d; want 1 to %d, or 0 for 1", r.Max, maxFetch))
	}
	if r.Lease != 0 && (r.Lease < input.MinWorkerTimeout || r.Lease > 24*time.Hour) {
		errs = append(errs, input.Invalid("lease", "is %v; want %v to a day, or 0 for the task's own", r.Lease, input.MinWorkerTimeout))
	}
	return errors.Join(errs...)
}

func (r *FetchRequest) conditions() *lifecycle.Conditions {
	return &lifecycle.Conditions{Tenants: r.Tenants, Categories: r.Categories, Creators: r.Creators}
}

// Fetch claims due tasks for a worker and returns the executions, possibly none. It honours
// pauses, limits, worker filters and conditions, and takes over tasks whose leases have lapsed.
// After a database error, the worker may hold executions that Fetch did not return; their
// leases lapse. If ctx ends while Fetch claims, it returns at once, and releases what it claims in the background.
// Fetch is never part of a transaction. If a fetch found no task and took the
// time d, later fetches of workers that want the same may return nothing for 20 d, at most two seconds.
//
// If a type has a rate limit, Fetch waits for the permitted start times, usually some
// milliseconds. If ctx ends first, Fetch releases the tasks that have not reached their start
// time, and returns the error of ctx if no other task was fetched.
func (p *Puller) Fetch(ctx context.Context, r FetchRequest) ([]Fetched, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("fetching tasks: %w", err)
	}
	done, err := p.room.Begin()
	if err != nil {
		return nil, err
	}
	defer done()
	f := &fetch{p: p, FetchRequest: r, exec: claim.NewExecID(), left: max(r.Max, 1), full: map[store.LimitOf]bool{}}
	if err := f.run(store.Outside(ctx)); err != nil {
		p.memory.failed(err)
		if len(f.out) == 0 {
			return nil, fmt.Errorf("fetching tasks for worker %s: %w", r.WorkerID, err)
		}
	}
	return f.out, nil // what is held is not lost because there could have been more
}

// fetch is one call of [Puller.Fetch].
type fetch struct {
	p *Puller
	FetchRequest
	exec    string
	types   []string
	control store.ControlDoc
	only    *lifecycle.Conditions // nil = everything
	seeker  *seeker
	claimer *claim.Claimer
	left    int                    // how many may still be claimed
	full    map[store.LimitOf]bool // keys that had no room
	wider   int                    // looks that met such a key
	out     []Fetched
}

func (f *fetch) run(ctx context.Context) (err error) {
	if err := f.p.room.Prepare(ctx); err != nil {
		return err
	}
	if f.control, err = f.p.gathered.control(ctx); err != nil {
		return err
	}
	if _, err := f.p.room.Types.Refresh(ctx, f.control.Types); err != nil {
		return err
	}
	if only := f.conditions(); !lifecycle.Unconditional(only) {
		f.only = only
	}
	if types := slices.DeleteFunc(slices.Clone(f.Types), input.OwnType); len(types) == len(f.Types) || len(types) > 0 {
		f.p.known.fetches(ctx, f.WorkerID, types, f.conditions())
	}
	f.seeker = f.p.memory.seeker(claim.Finder{Store: f.p.room.Store, Types: f.p.room.Types, WorkerID: f.WorkerID, Only: f.only})
	f.claimer = f.newClaimer(ctx)
	if err := f.chooseTypes(ctx); err != nil || len(f.types) == 0 {
		return err
	}
	if err := f.takeOver(ctx); err != nil {
		return err
	}
	return f.claimDue(ctx)
}

// chooseTypes are those to ask for: the request's, or those that have tasks at all; less
// the paused, and those of the scheduler itself.
func (f *fetch) chooseTypes(ctx context.Context) (err error) {
	f.types = slices.Clone(f.Types)
	if len(f.types) == 0 {
		if f.types, _, err = f.p.memory.types.Look(ctx, nil); err != nil {
			return err
		}
	}
	f.types = slices.DeleteFunc(f.types, func(typ string) bool {
		return f.control.Paused(typ) || f.p.room.Types.Unread(typ) != nil || input.OwnType(typ) || f.p.room.Limits.Waiting(typ)
	})
	if len(f.types) > store.MaxTypes { // a random choice is fair
		rand.Shuffle(len(f.types), func(i, j int) { f.types[i], f.types[j] = f.types[j], f.types[i] })
		f.types = f.types[:store.MaxTypes]
	}
	return nil
}

// terms are what applies to a claim of the task.
func (f *fetch) terms(t *model.Task) (*lifecycle.Effective, *model.Options) {
	said := f.p.room.Types.Options(t.Type)
	eff := lifecycle.ResolveOptions(t.Options, said)
	if f.Lease > 0 {
		eff.Lease = f.Lease
	}
	if said.IsZero() {
		return &eff, nil
	}
	return &eff, &said
}

// newClaimer makes the room in which the claims of the fetch are decided, written and settled.
func (f *fetch) newClaimer(ctx context.Context) *claim.Claimer {
	return &claim.Claimer{
		Store: f.p.room.Store, Gate: f.p.room.Limits, Log: f.p.log, WorkerID: f.WorkerID, Pulled: true, Only: f.only, Terms: f.terms,
		Send:    f.claim,
		Refused: &f.seeker.Refused, Ended: f.p.room.Follow.Ended, Unsure: ctx, Report: f.p.memory.failed,
		BackOff: func() func(context.Context) {
			wait := 50 * time.Millisecond
			return func(ctx context.Context) {
				clock.Pause(ctx, wait)
				wait = min(2*wait, time.Second)
			}
		},
	}
}

// claim carries claims out together with those of other fetches. If the caller waits no longer, what they win is given
// back. After a time limit of this call alone, the claimer asks what became of them.
func (f *fetch) claim(ctx context.Context, writes []store.Write, search time.Duration) ([]store.Written, error) {
	c, err := f.p.gathered.claim(ctx, writes, search)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.written, c.err
	case <-ctx.Done():
		if f.claimer.Unsure.Err() != nil {
			f.giveBack(ctx, f.exec, c.won)
		}
		return nil, context.Cause(ctx)
	}
}

// giveBack gives back, beside the fetch, what is won in the end. Otherwise the tasks would be held for nobody until their
// leases lapse.
func (f *fetch) giveBack(ctx context.Context, exec string, won func() []*model.Task) {
	ctx = context.WithoutCancel(ctx)
	done, err := f.p.room.Begin() // or it closes, and does not wait
	go func() {
		if err == nil {
			defer done()
		}
		tasks := won()
		ctx, cancel := context.WithTimeout(ctx, sharedTime)
		defer cancel()
		var all sync.WaitGroup // they share commands
		for _, t := range tasks {
			all.Go(func() {
				_, err := f.p.room.GiveBack(ctx, input.HandleOf(t, exec), "the caller of the fetch no longer waited for it")
				if err != nil {
					f.p.log.Warn().Err(err).Str("task_id", t.ID).Msg("could not give a task back; its lease will lapse")
				}
			})
		}
		all.Wait()
	}()
}

// take puts an execution into the result, which was due at that time.
func (f *fetch) take(t *model.Task, due time.Time) {
	f.p.room.Started(t.Type, due)
	_, w := lifecycle.ExecutionOf(t, f.exec)
	eff, _ := f.terms(t)
	x := Fetched{
		Handle: input.HandleOf(t, f.exec).String(), Task: t, Until: w.PingExpireTime, Deadline: w.Deadline,
		PingInterval: lifecycle.PingEvery(eff.PingInterval, w.PingExpireTime.Sub(w.ClaimedAt)),
		Token:        model.Token{Generation: t.Generation, Rev: t.Rev},
	}
	if t.Args.Type != 0 {
		x.Args = codec.ValueJSON(t.Args)
	}
	if c := lifecycle.CheckpointOf(t, f.WorkerID); c.Type != 0 {
		x.Checkpoint = codec.ValueJSON(c)
	}
	f.out = append(f.out, x)
	f.left--
}
