package producer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Workers that are not written in Go fetch their tasks: [Producer.Fetch] claims a batch, by
// the same rules and queries as a consumer, and gives out a handle for each execution, by
// which it is pinged ([Producer.Ping]), completed, failed or given back ([Producer.GiveBack]).

// FetchRequest says who fetches what.
type FetchRequest struct {
	// WorkerID names the worker in task documents and worker filters: 1 to 200 bytes. It is
	// the worker that holds what is fetched, whichever process asks for it.
	WorkerID string
	// Types to fetch, at most 100. Empty = all that have tasks, where there are Categories.
	Types []string
	// Tenants, Categories and Creators: of each list a task must have one. model.NoTenant
	// stands for tasks without a tenant. Empty takes any.
	Tenants, Categories, Creators []string
	// Max is how many tasks to fetch at most, 1 to 1,000. Defaults to 1.
	Max int
	// Lease is how long the worker has until its first ping, a second to a day. Later pings
	// extend by the task's own worker timeout. Defaults to that.
	Lease time.Duration
}

// Fetched is an execution that the worker now holds.
type Fetched struct {
	// Handle names the execution in Ping, Complete, Fail and GiveBack.
	Handle string
	// Task as it is after the claim; Task.ID, Type, Key, Tenant, Attempt, Checkpoint.
	Task *model.Task
	// Args as JSON; nil where there are none.
	Args json.RawMessage
	// Checkpoint that an earlier execution saved, as JSON; nil where there is none.
	Checkpoint json.RawMessage
	// Until is the end of the lease, in the database's time: ping well before.
	Until time.Time
	// PingInterval is how often to ping.
	PingInterval time.Duration
	// Deadline is when the execution is void although it is pinged; zero = never.
	Deadline time.Time
	// Token is to be handed on to outside systems: of two executions of a task the later
	// has the greater one.
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
	errs = append(errs, input.Conditions(only))
	if r.Max < 0 || r.Max > maxFetch {
		errs = append(errs, input.Invalid("max", "is %d; want 1 to %d, or 0 for 1", r.Max, maxFetch))
	}
	if r.Lease != 0 && (r.Lease < input.MinWorkerTimeout || r.Lease > 24*time.Hour) {
		errs = append(errs, input.Invalid("lease", "is %v; want %v to a day, or 0 for the task's own", r.Lease, input.MinWorkerTimeout))
	}
	return errors.Join(errs...)
}

func (r *FetchRequest) conditions() *model.Conditions {
	return &model.Conditions{Tenants: r.Tenants, Categories: r.Categories, Creators: r.Creators}
}

// Fetch claims tasks for a worker and returns its executions, none when nothing is due for
// it. It honours pauses, limits, worker filters and conditions, and takes over what has
// lapsed. After an error of the database executions may be held that nobody knows of:
// their leases lapse. It is never part of a transaction.
//
// Where a type has a rate it waits for the starts, mostly some milliseconds. What has not
// come to its start when ctx ends is given back, and the error is that of ctx where nothing
// else was fetched.
func (p *Producer) Fetch(ctx context.Context, r FetchRequest) ([]Fetched, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("fetching tasks: %w", err)
	}
	done, err := p.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	f := &fetch{p: p, FetchRequest: r, exec: newExecID(), left: max(r.Max, 1)}
	if err := f.run(store.Outside(ctx)); err != nil {
		p.pull.failed(err)
		if len(f.out) == 0 {
			return nil, fmt.Errorf("fetching tasks for worker %s: %w", r.WorkerID, err)
		}
	}
	return f.out, nil // what is held is not lost because there could have been more
}

// fetch is one call of [Producer.Fetch].
type fetch struct {
	p *Producer
	FetchRequest
	exec    string
	types   []string
	control store.Control
	finder  claim.Finder
	left    int // how many may still be claimed
	out     []Fetched
}

func (f *fetch) run(ctx context.Context) (err error) {
	if err := f.p.prepare(ctx); err != nil {
		return err
	}
	if f.control, err = f.p.store.Control(ctx); err != nil {
		return err
	}
	if _, err := f.p.types.Refresh(ctx, f.control.Types); err != nil {
		return err
	}
	f.finder = claim.Finder{Store: f.p.store, Types: f.p.types, WorkerID: f.WorkerID}
	if only := f.conditions(); !lifecycle.Unconditional(only) {
		f.finder.Only = only
	}
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
		if f.types, _, err = f.p.pull.types.Look(ctx, nil); err != nil {
			return err
		}
	}
	f.types = slices.DeleteFunc(f.types, func(typ string) bool {
		return f.control.Paused(typ) || f.p.types.Unread(typ) != nil || strings.HasPrefix(typ, ownTypes) || f.p.limits.Waiting(typ)
	})
	if len(f.types) > store.MaxTypes { // a random choice is fair
		rand.Shuffle(len(f.types), func(i, j int) { f.types[i], f.types[j] = f.types[j], f.types[i] })
		f.types = f.types[:store.MaxTypes]
	}
	return nil
}

// ownTypes begin the names of types that the scheduler itself runs.
const ownTypes = "mscheduler."

// terms are what applies to a claim of the task, and the claimant.
func (f *fetch) terms(t *model.Task) (lifecycle.Effective, lifecycle.Claimant) {
	said := f.p.types.Options(t.Type)
	eff := lifecycle.ResolveOptions(t.Options, said)
	by := lifecycle.Claimant{WorkerID: f.WorkerID, ExecID: f.exec, Only: f.finder.Only}
	if !said.IsZero() {
		by.Applied = &said
	}
	if f.Lease > 0 {
		eff.Lease = f.Lease
	}
	return eff, by
}

// tries is how often a fetch looks again, further down the queue, when others were quicker.
const tries = 4

// claimDue claims what is due.
func (f *fetch) claimDue(ctx context.Context) error {
	crowd := 0 // tries in which others were quicker
	for try := 0; try < tries && f.left > 0; try++ {
		found, err := f.find(ctx, crowd)
		if err != nil || len(found) == 0 {
			return err
		}
		// A permit names the one try that it is for: what an earlier one gives back, a moment
		// later perhaps, must not be what this one has taken since.
		f.exec = newExecID()
		grants, err := f.admit(ctx, found)
		if err != nil {
			return err
		}
		now := f.p.store.Clock.Now() // after the starts were reserved
		var claims, repairs []store.Write
		for _, t := range found {
			if f.p.limits.Limited(t) && !grants.usable(t, now) {
				continue
			}
			eff, by := f.terms(t)
			by.From = grants[t].From
			after, no := lifecycle.Claim(t, by, eff, now)
			if no == "" {
				claims = append(claims, store.Write{Before: t, After: after})
			} else if fixed := lifecycle.Repair(t, eff, now); no.Stale() && fixed != nil {
				repairs = append(repairs, store.Write{Before: t, After: fixed})
			}
		}
		repaired, err := f.p.store.Writes(ctx, repairs, store.Patience)
		if err != nil {
			return err
		}
		for i, w := range repaired {
			if w.Applied && repairs[i].After.Status.Ended() { // expired
				f.p.follow.Ended(repairs[i].After)
			}
		}
		won, used, held, err := f.write(ctx, claims, grants)
		if err != nil {
			return err // what was won of limited tasks the sweeper finds out
		}
		if len(won)+held < len(claims) {
			crowd++
		}
		for t := range grants {
			f.p.limits.Return(grants[t])
		}
		if err := f.begin(ctx, won, used); err != nil {
			return err
		}
		if len(won) == len(claims) {
			return nil // all that there is for this worker
		}
	}
	return nil
}

// find reads candidates: the head of the queue first, later somewhere behind it, where
// others that fetch at the same time do not look.
func (f *fetch) find(ctx context.Context, crowd int) ([]*model.Task, error) {
	now := f.p.store.Local().Monotonic()
	q := store.DueQuery{Types: f.types, Limit: f.left, Exclude: f.p.pull.leftOut(now)}
	if crowd > 0 {
		q.Skip = rand.IntN(f.left * 4 << crowd)
	}
	wide := f.finder.Labelled(f.types) && f.p.pull.wide(now, f.WorkerID)
	found, _, err := f.finder.Due(ctx, q, wide)
	if err != nil {
		return nil, err
	}
	q.Skip = 0
	many, err := f.finder.DueMany(ctx, q)
	if err != nil {
		return nil, err
	}
	return claim.Best(append(found, many...), f.left), nil
}

// grants are what limited tasks need for their claims.
type grants map[*model.Task]limits.Grant

// usable says whether the task has a grant that counts at the time.
func (g grants) usable(t *model.Task, now time.Time) bool {
	grant, ok := g[t]
	return ok && (grant.Until.IsZero() || !now.After(grant.Until))
}

// admit asks for what the claims of limited tasks need.
func (f *fetch) admit(ctx context.Context, found []*model.Task) (grants, error) {
	now := f.p.store.Clock.Now()
	var ask []*model.Task
	for _, t := range found {
		if eff, by := f.terms(t); f.p.limits.Limited(t) && lifecycle.ConditionsMet(by.Only, t) && lifecycle.Claimable(t, f.WorkerID, eff, now) == "" {
			ask = append(ask, t)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	got, err := f.p.limits.Admit(ctx, ask, f.exec)
	return got.Granted, err
}

// write carries the claims out. It takes the grants of what was won out of the others. held
// are held by other clients; the next fetches leave them out.
func (f *fetch) write(ctx context.Context, claims []store.Write, grants grants) (won []*model.Task, used []limits.Grant, held int, err error) {
	if len(claims) == 0 {
		return nil, nil, 0, nil
	}
	eff, _ := f.terms(claims[0].After)
	written, err := f.p.store.Writes(ctx, claims, store.Patience)
	if err != nil {
		written, err = f.settle(ctx, claims, eff.Lease, err)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	f.p.limits.Claimed(grants)
	for i, w := range written {
		if w.Applied {
			won, used = append(won, claims[i].After), append(used, grants[claims[i].Before])
			delete(grants, claims[i].Before)
		} else if w.Held {
			held++
			f.p.pull.leaveOut(f.p.store.Local().Monotonic(), claims[i].Before.ID)
			delete(grants, claims[i].Before) // the sweeper frees its permits, once it is sure
		}
	}
	return won, used, held, nil
}

// settle asks, until the server answers, which of the claims were won whose answer was lost
// with the error.
func (f *fetch) settle(ctx context.Context, claims []store.Write, lease time.Duration, err error) (written []store.Written, _ error) {
	for wait := 50 * time.Millisecond; err != nil && store.Classify(err) != store.Fatal && ctx.Err() == nil; wait = min(2*wait, time.Second) {
		f.p.pull.failed(err)
		if !clock.Pause(ctx, wait) {
			break
		}
		written, err = f.p.store.SettleClaim(ctx, claims, f.exec, lease)
	}
	return written, err
}

// begin takes what was won into the result when it may begin: where the type has a rate, in
// the time of its start. What came too late for that is given back, and what the caller does
// not wait for, also where that has ended ctx.
func (f *fetch) begin(ctx context.Context, won []*model.Task, used []limits.Grant) error {
	var last time.Time
	for _, g := range used {
		if g.From.After(last) {
			last = g.From
		}
	}
	now := f.p.store.Clock.Now()
	var errs []error
	if last.After(now) {
		if !clock.Pause(ctx, last.Sub(now)+time.Millisecond) { // now is cut to milliseconds
			errs = append(errs, ctx.Err())
		}
		now = f.p.store.Clock.Now()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), givingBack)
	defer cancel()
	for i, t := range won {
		early, reason := used[i].From.After(now), ""
		switch {
		case early:
			reason = "its start by the rate limit was not waited for"
		case used[i].Late(now):
			reason = "its start by the rate limit had passed"
		default:
			f.take(t)
			continue
		}
		_, err := f.p.finish(ctx, "giving back", t.HandleOf(f.exec), lifecycle.NotStarted(reason))
		if err == nil && early { // its permits went with its end
			used[i].Permits = nil
			f.p.limits.Return(used[i])
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// givingBack is how long a fetch tries to give back what is not to begin; what it cannot
// lapses.
const givingBack = 5 * time.Second

// take puts an execution into the result.
func (f *fetch) take(t *model.Task) {
	_, w := t.Execution(f.exec)
	eff, _ := f.terms(t)
	x := Fetched{
		Handle: t.HandleOf(f.exec).String(), Task: t, Until: w.PingExpireTime, Deadline: w.Deadline,
		PingInterval: min(eff.PingInterval, w.PingExpireTime.Sub(w.ClaimedAt)/2),
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

// GiveBack ends an execution without cost, as a worker does that stops: the task is due
// again at once. reason is kept with the execution. A repetition is no error. Where nobody
// else has begun the task, and nothing was saved of this execution (progress, a checkpoint, a
// step), its expires_at holds again: it counts as never started.
func (p *Producer) GiveBack(ctx context.Context, handle, reason string) (*model.Task, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("giving an execution back: %w", err)
	}
	if err := validText("reason", reason); err != nil {
		return nil, fmt.Errorf("giving an execution of task %s back: %w", h.TaskID, err)
	}
	return p.finish(ctx, "giving back", h, lifecycle.NotStarted(reason))
}
