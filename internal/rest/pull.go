package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/pull"
)

// fetching is the body of a fetch.
type fetching struct {
	WorkerID   string         `json:"worker_id,omitzero" doc:"name of the worker, in task documents and worker filters"`
	Types      []string       `json:"types,omitzero" doc:"types to fetch, at most 100; absent = all types of the categories"`
	Tenants    []string       `json:"tenants,omitzero" doc:"only tasks of these tenants; - for tasks without one"`
	Categories []string       `json:"categories,omitzero" doc:"only tasks of these categories"`
	Creators   []string       `json:"creators,omitzero" doc:"only tasks of these creators"`
	Max        int            `json:"max,omitzero" doc:"how many tasks to fetch at most, 1 to 1,000; defaults to 1"`
	Lease      *form.Duration `json:"lease,omitzero" doc:"time until the first ping is due; defaults to the worker timeout of the task"`
	Wait       *form.Duration `json:"wait,omitzero" doc:"how long to wait for a task, at most 50s; defaults to not at all"`
}

// maxWait is the longest wait of a fetch: below what proxies allow.
const maxWait = 50 * time.Second

// fetched is a claimed execution.
type fetched struct {
	Handle         string          `json:"handle" doc:"names the execution in all other operations"`
	ID             string          `json:"id"`
	Type           string          `json:"type"`
	Key            string          `json:"key"`
	Tenant         string          `json:"tenant,omitempty"`
	Attempt        int             `json:"attempt"`
	Args           json.RawMessage `json:"args,omitempty"`
	Checkpoint     json.RawMessage `json:"checkpoint,omitempty" doc:"what an earlier execution saved"`
	Rule           string          `json:"rule,omitempty" doc:"of a run: the rule's name"`
	Nominal        string          `json:"nominal,omitempty" format:"date-time" doc:"of a run: the scheduled time"`
	RunAttempt     int             `json:"run_attempt,omitempty" doc:"of a run: its attempt, as counted by the rule's failure policy"`
	Ext            json.RawMessage `json:"ext,omitempty" doc:"of a run: the rule's ext when the tick was decided"`
	Until          string          `json:"until" format:"date-time" doc:"end of the lease: ping well before it"`
	PingIntervalMS int64           `json:"ping_interval_ms" doc:"how often to ping"`
	Deadline       string          `json:"deadline,omitempty" format:"date-time" doc:"when the execution times out, even if it is pinged"`
	Token          string          `json:"token" doc:"fencing token for other systems: a later execution of the task has a greater one"`
	Traceparent    string          `json:"traceparent,omitempty" doc:"the span that sent the task, as the W3C's header"`
	Tracestate     string          `json:"tracestate,omitempty" doc:"belongs to traceparent"`
}

type fetchAnswer struct {
	Body struct {
		Tasks []fetched `json:"tasks"`
	}
}

type pingAnswer struct {
	Body struct {
		Executions []pinged `json:"executions" doc:"one for each handle, in their order"`
	}
}

// pinged is what became of one ping.
type pinged struct {
	Handle          string `json:"handle"`
	Until           string `json:"until,omitempty" format:"date-time" doc:"end of the lease"`
	PingIntervalMS  int64  `json:"ping_interval_ms,omitempty" doc:"how often to ping from now on; it may have changed since the fetch"`
	CancelRequested bool   `json:"cancel_requested,omitempty" doc:"the task is being cancelled, or its worker filter no longer names this worker: stop, and end the execution with complete or fail. The fail of an excluded worker counts no error"`
	Lost            bool   `json:"lost,omitempty" doc:"the execution no longer holds the task: stop without ending it"`
	Error           string `json:"error,omitempty" doc:"the ping failed for now; repeat it"`
}

// pings is the body of a ping.
type pings struct {
	Handles []string `json:"handles,omitzero" doc:"of the fetches, 1 to 1,000"`
}

func (s *API) addPull() {
	work := rule{access.Worker, tenantOfHandle}
	add(s, rule{access.Worker, tenantOfBody}, op("fetch", http.MethodPost, "/pull/fetch", "Fetch due tasks for a worker",
		"Each task is held until its lease ends. A worker pings it before, and ends it with complete, fail or give-back."), s.fetch)
	add(s, work, op("ping", http.MethodPost, "/pull/ping", "Extend the leases of executions", ""), s.ping)
	s.addEnds()
	s.addKeeps()
}

func (s *API) ping(ctx context.Context, in *struct{ Body body[pings] }) (*pingAnswer, error) {
	handles := in.Body.form.Handles
	if n := len(handles); n < 1 || n > maxBatch {
		return nil, input.Invalid("body.handles", "has %d handles; want 1 to %d", n, maxBatch)
	}
	out := &pingAnswer{}
	out.Body.Executions = make([]pinged, len(handles))
	mine := make([]bool, len(handles))
	for i, handle := range handles { // all of them before the first ping
		h, err := input.ParseHandle(handle)
		if err != nil {
			return nil, input.Invalid(fmt.Sprintf("body.handles[%d]", i), "is not an execution handle")
		}
		mine[i] = ofTenant(ctx, h.TaskID)
	}
	var all errgroup.Group
	all.SetLimit(pingsAtOnce)
	for i, handle := range handles {
		all.Go(func() error {
			if out.Body.Executions[i] = (pinged{Handle: handle, Lost: true}); mine[i] {
				out.Body.Executions[i] = s.pingOne(ctx, handle)
			}
			return nil
		})
	}
	return out, all.Wait()
}

// pingsAtOnce bounds the pings of one request that are on their way.
const pingsAtOnce = 16

func (s *API) pingOne(ctx context.Context, handle string) pinged {
	got, err := s.puller.Ping(ctx, handle)
	switch failure.Of(err) {
	case failure.None:
		return pinged{Handle: handle, Until: view.Time(got.Until), PingIntervalMS: got.PingInterval.Milliseconds(), CancelRequested: got.CancelRequested}
	case failure.Refused, failure.NotFound:
		return pinged{Handle: handle, Lost: true}
	default:
		return pinged{Handle: handle, Error: s.problem(err).Error()}
	}
}

func (s *API) fetch(ctx context.Context, in *struct{ Body body[fetching] }) (*fetchAnswer, error) {
	f := in.Body.form
	r := pull.FetchRequest{WorkerID: f.WorkerID, Types: f.Types, Tenants: f.Tenants, Categories: f.Categories, Creators: f.Creators, Max: f.Max}
	wait := time.Duration(0)
	if f.Lease != nil {
		r.Lease = time.Duration(*f.Lease)
	}
	if f.Wait != nil {
		wait = time.Duration(*f.Wait)
	}
	if wait < 0 || wait > maxWait {
		return nil, input.Invalid("body.wait", "is %v; want 0s to %v", wait, maxWait)
	}
	if g := grantOf(ctx); g.Tenants != nil {
		for i, tenant := range r.Tenants {
			if !g.Sees(tenant) {
				return nil, huma.Error403Forbidden(fmt.Sprintf("body.tenants[%d] is %q; the token has other tenants", i, tenant))
			}
		}
		if len(r.Tenants) == 0 {
			r.Tenants = g.Tenants
		}
	}
	patient, cancel := s.patient(ctx, wait)
	defer cancel()
	tasks, err := s.waiting.fetch(ctx, patient, r, s.mayStill, s.claim)
	if err != nil {
		return nil, input.Under("body", err)
	}
	if ctx.Err() != nil {
		s.giveBack(ctx, tasks)
		return nil, ctx.Err()
	}
	out := &fetchAnswer{}
	out.Body.Tasks = []fetched{}
	for _, t := range tasks {
		from := cmp.Or(t.Task.Trace, new(model.Trace))
		x := fetched{
			Handle: t.Handle, ID: t.Task.ID, Type: t.Task.Type, Key: t.Task.Key, Tenant: t.Task.Tenant, Attempt: t.Task.Attempt,
			Args: t.Args, Checkpoint: t.Checkpoint, Until: view.Time(t.Until), PingIntervalMS: t.PingInterval.Milliseconds(),
			Deadline: view.Time(t.Deadline), Token: t.Token.String(),
			Traceparent: from.Parent, Tracestate: from.State,
		}
		if o := t.Task.Origin; o != nil && o.Tick != nil {
			x.Rule, x.Nominal, x.RunAttempt = o.Tick.Rule, view.Time(o.Tick.Nominal), o.Tick.Attempt
			if o.Tick.Ext.Type != 0 {
				x.Ext = codec.ValueJSON(o.Tick.Ext)
			}
		}
		out.Body.Tasks = append(out.Body.Tasks, x)
	}
	return out, nil
}

// claim fetches, also for a worker that goes away meanwhile: a claim that is cut off would hold tasks that
// nobody works on until their leases lapse.
func (s *API) claim(ctx context.Context, r pull.FetchRequest) ([]pull.Fetched, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	return s.puller.Fetch(ctx, r)
}

// giveBack gives back what was fetched for a worker that is gone.
func (s *API) giveBack(ctx context.Context, tasks []pull.Fetched) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	for _, t := range tasks {
		if _, err := s.puller.GiveBack(ctx, t.Handle, "the worker closed the connection before the answer"); err != nil {
			s.config.Logger.Warn().Err(err).Str("task", t.Task.ID).Msg("could not give a task back; its lease will lapse")
		}
	}
}

const claimTimeout = 20 * time.Second
