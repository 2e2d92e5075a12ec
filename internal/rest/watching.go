package rest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/follow"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// atOnce is how many changes are looked up and told together.
const atOnce = 500

// streamed tells of changes from one change stream of the database. The events of tasks and results come from their writes.
// For everything else it reads the documents, once for all changes that have arrived.
func (s *API) streamed(ctx context.Context, begun func(token string), tell func([]happened)) error {
	if err := s.store.Prepare(ctx); err != nil {
		return err
	}
	first := true
	f := follow.Follower[*store.ChangeStream]{
		Store: s.store, Of: []string{"/changes"},
		Open: func(ctx context.Context, token bson.Raw) (*store.ChangeStream, error) {
			cs, err := s.store.Changes(ctx, token)
			if err == nil && first {
				first = false
				begun(store.TokenText(cs.Token()))
			}
			return cs, err
		},
		Take: func(ctx context.Context, cs *store.ChangeStream) error {
			changes, err := cs.Next(ctx, atOnce)
			if err != nil || len(changes) == 0 {
				return err
			}
			events, err := s.eventsOf(ctx, changes)
			if err != nil {
				return fmt.Errorf("%w: %w", errUnread, err)
			}
			tell(events)
			return nil
		},
		// An error before anything was told is the answer of the request that waits for it.
		Ends: func(err error) bool { return first || errors.Is(err, errUnread) },
	}
	return f.Run(ctx, nil)
}

// errUnread ends a subscription: the stream has gone on, and what it said cannot be told.
var errUnread = errors.New("the documents that have changed cannot be read")

// now is the database's time, from which durations in requests count.
func (s *API) now(ctx context.Context) (time.Time, error) {
	err := s.store.Prepare(ctx)
	return s.store.Clock.Now(), err
}

// eventsOf reads what changes are about.
func (s *API) eventsOf(ctx context.Context, changes []store.Change) ([]happened, error) {
	ids := map[store.ChangeOf][]string{}
	for _, c := range changes {
		if !c.Gone && c.Task == nil && c.Result == nil {
			ids[c.Of] = append(ids[c.Of], c.ID)
		}
	}
	found := map[string]happened{}
	keep := func(id string, e happened) { found[string(e.of)+" "+id] = e }
	if some := ids[store.OfRuns]; len(some) > 0 {
		runs, err := s.store.Runs.ByIDs(ctx, some)
		if err != nil {
			return nil, err
		}
		for i := range runs {
			keep(runs[i].ID, runEvent(&runs[i]))
		}
	}
	if some := ids[store.OfFlows]; len(some) > 0 {
		flows, err := s.store.Flows.Heads(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			keep(f.ID, flowEvent(f))
		}
	}
	if some := ids[store.OfWorkers]; len(some) > 0 {
		if err := s.store.FreshClock(ctx); err != nil {
			return nil, err
		}
		workers, err := s.store.Workers.ByIDs(ctx, some)
		if err != nil {
			return nil, err
		}
		for i := range workers {
			keep(workers[i].ID, s.workerEvent(&workers[i]))
		}
	}
	var out []happened
	for _, c := range changes {
		e, there := found[string(c.Of)+" "+c.ID]
		switch {
		case c.Task != nil:
			e = happened{of: c.Of, name: string(c.Task.Kind), tenant: c.Task.Tenant, task: c.Task, data: jsonOf(view.Event(*c.Task))}
		case c.Result != nil:
			var err error
			if e, err = resultEvent(c.Result); err != nil {
				return nil, err
			}
		case c.Gone:
			e = gone(c.ID)
		case !there:
			continue // it was deleted meanwhile
		}
		e.token = c.Token
		out = append(out, e)
	}
	return out, nil
}

func runEvent(r *schedule.Run) happened {
	r.Call = nil // requests and answers may be long: get-run has them
	return happened{of: store.OfRuns, name: "run", tenant: r.Tenant, data: jsonOf(view.RunOf(r))}
}

func flowEvent(f *graph.Flow) happened {
	return happened{of: store.OfFlows, name: "flow", tenant: f.Tenant, key: f.Key, ownerless: f.Kind != "", data: jsonOf(view.FlowOf(f))}
}

// longestResult is how long what a participant returned may be, as BSON, to be part of the event: the hub remembers
// many of them.
const longestResult = 1 << 10

func resultEvent(r *repeat.Result) (happened, error) {
	var computed []bson.E
	if len(r.Result.Value) > longestResult {
		r.Result, computed = bson.RawValue{}, []bson.E{{Key: "result_omitted", Value: true}}
	}
	data, err := view.Stored(r, "id", computed...)
	return happened{of: store.OfResults, name: "result", tenant: r.Tenant, topic: topic{r.Description, r.PlanID}, data: data}, err
}

func (s *API) workerEvent(w *store.Worker) happened {
	return happened{of: store.OfWorkers, name: "worker", ownerless: true, data: jsonOf(view.WorkerOf(w, s.store.Clock.Now()))}
}

// gone is the event of a worker that has stopped.
func gone(id string) happened {
	return happened{of: store.OfWorkers, name: "worker_gone", ownerless: true, data: jsonOf(map[string]string{"id": id})}
}

func jsonOf(v any) []byte {
	data, _ := json.Marshal(v) // nothing in it refuses that
	return data
}

const (
	// pollEvery is how often a server without change streams is asked.
	pollEvery = 2 * time.Second
	// polled is how many runs and flows a poll reads: those of the newest ticks, and those changed last.
	polled = 500
)

// events is the source of events of this deployment.
func (s *API) events(ctx context.Context, begun func(token string), tell func([]happened)) error {
	switch streams, err := s.hasStreams(ctx); {
	case err != nil:
		return err
	case streams:
		return s.streamed(ctx, begun, tell)
	default:
		return s.polledSource(ctx, begun, tell)
	}
}

// hasStreams says whether the deployment has change streams.
func (s *API) hasStreams(ctx context.Context) (bool, error) {
	t, err := s.store.Topology(ctx)
	return t.Subscriptions() && !s.polls, err
}

// polledSource tells of runs, flows and workers where there are no change streams: it reads the newest of
// them again and again, and tells of those that have changed. Tasks and results of plans have no index by the time of
// their write, since it would cost each of these; so they are not told of.
func (s *API) polledSource(ctx context.Context, begun func(token string), tell func([]happened)) error {
	prefix := "poll-" + rand.Text()
	token := func(n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
	n, told := 0, map[string]string{} // what was told of last, by kind and id
	for first := true; ; first = false {
		now, err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (first || !store.Unreachable(err)):
			return err
		case err == nil:
			var events []happened
			seen := make(map[string]string, len(now))
			for _, l := range now {
				if seen[l.key] = l.state; !first && told[l.key] != l.state {
					events = append(events, l.event)
				}
			}
			for key := range told {
				if id, worker := workerKey(key); worker && seen[key] == "" {
					events = append(events, gone(id))
				}
			}
			for i := range events {
				n++
				events[i].token = token(n)
			}
			if told = seen; first {
				begun(token(0))
			}
			tell(events)
		}
		if !clock.Pause(ctx, s.pollEvery) {
			return context.Cause(ctx)
		}
	}
}

// looked is something that a poll has found.
type looked struct {
	key, state string // who it is, and what must differ for an event
	event      happened
}

const workerPrefix = "worker "

func workerKey(key string) (id string, worker bool) {
	if len(key) > len(workerPrefix) && key[:len(workerPrefix)] == workerPrefix {
		return key[len(workerPrefix):], true
	}
	return "", false
}

// look reads what a poll compares, the oldest first. Indexes: status of runs, state of flows, the
// collection of workers.
func (s *API) look(ctx context.Context) (out []looked, err error) {
	if err := s.store.Prepare(ctx); err != nil {
		return nil, err
	}
	runs, _, err := s.store.Runs.List(ctx, store.RunFilter{}, store.Span{Limit: polled})
	if err != nil {
		return nil, err
	}
	flows, _, err := s.store.Flows.List(ctx, store.FlowFilter{}, store.Span{Limit: polled})
	if err != nil {
		return nil, err
	}
	workers, err := s.store.Workers.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(runs) - 1; i >= 0; i-- {
		out = append(out, looked{"run " + runs[i].ID, fmt.Sprint(runs[i].Rev, runs[i].Status, runs[i].Count), runEvent(runs[i])})
	}
	for i := len(flows) - 1; i >= 0; i-- {
		f := flows[i]
		out = append(out, looked{"flow " + f.ID, fmt.Sprint(f.Rev), flowEvent(f)})
	}
	for i := range workers {
		w := workers[i]
		e := s.workerEvent(&w)
		w.HeartbeatAt, w.ClockError = time.Time{}, nil // which each heartbeat changes
		out = append(out, looked{workerPrefix + w.ID, fmt.Sprintf("%s %v", jsonOf(w), workers[i].Alive(s.store.Clock.Now())), e})
	}
	return out, nil
}
