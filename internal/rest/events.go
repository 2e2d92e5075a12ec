package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/follow"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// heartbeat is how often a silent stream says that it is there: proxies close those that do not.
	heartbeat = 15 * time.Second
	// eventTimeout is how long a client may take to accept an event.
	eventTimeout = 30 * time.Second
)

// watchable is what clients may watch.
var watchable = []store.ChangeOf{store.OfTasks, store.OfRuns, store.OfFlows, store.OfResults, store.OfWorkers}

func (s *API) addEvents() {
	stream := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "Server-Sent Events: the id of an event is a token. Of tasks, its name is its kind and its data a TaskEvent. " +
		"Others are named run, flow, result, worker and worker_gone; their data is the document as it is, or the id of the worker that is gone."}}
	documentSchema(s.api.OpenAPI().Components.Schemas, reflect.TypeFor[model.TaskEvent](), "id")
	add(s, rule{access.Viewer, tenantOfFilter}, huma.Operation{
		OperationID: "watch-events", Method: http.MethodGet, Path: "/events", Tags: []string{"events"}, Summary: "Watch tasks, runs, flows, results of plans and workers as they change",
		Description: "Server-Sent Events. A client that was cut off goes on behind the event that it names in Last-Event-ID. An event `missed` says that some are not known any more: read what you watch again. " +
			"All listeners of a server share one change stream. On a deployment without change streams, tasks and results cannot be watched (503), and the others are polled every two seconds. " +
			"A result whose value has more than 1 KiB comes with `result_omitted` instead: list-results has the value. " +
			"Workers and streams belong to no tenant: only tokens without tenants watch them.",
		Responses: map[string]*huma.Response{"200": {Description: "The events, until the client leaves.", Content: map[string]*huma.MediaType{"text/event-stream": stream}}},
	}, s.watch)
}

// Watched selects events.
type Watched struct {
	Of          []string `query:"of" enum:"tasks,runs,flows,results,workers" default:"tasks" doc:"what to watch; results are those of plans"`
	Tenant      string   `query:"tenant" doc:"tenant; - for what has none"`
	Type        []string `query:"type" doc:"of tasks: any of these types"`
	Key         string   `query:"key" doc:"of tasks and flows: the key"`
	Kind        []string `query:"kind" doc:"of tasks: any of these kinds of events"`
	Description string   `query:"description" doc:"of results: the description of the plan, which is their topic"`
	PlanID      string   `query:"plan_id" doc:"of results: the plan_id"`
	After       string   `header:"Last-Event-ID" doc:"id of the last event that the client got"`
}

// wants checks what somebody wants to watch, and says whether an event is that.
func (in *Watched) wants(ctx context.Context) (func(*happened) bool, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	for _, kind := range in.Kind {
		if !slices.Contains(codec.EventKinds, model.EventKind(kind)) {
			return nil, input.Invalid("query.kind", "has %q; want some of %s", kind, input.Names(codec.EventKinds))
		}
	}
	of := map[store.ChangeOf]bool{}
	for _, o := range in.Of {
		if of[store.ChangeOf(o)] = true; !slices.Contains(watchable, store.ChangeOf(o)) {
			return nil, input.Invalid("query.of", "has %q; want some of %s", o, input.Names(watchable))
		}
	}
	if of[store.OfWorkers] && tenant != "" {
		if grantOf(ctx).Tenants != nil {
			return nil, huma.Error403Forbidden("workers belong to no tenant; the token has tenants")
		}
		return nil, input.Invalid("query.tenant", "is %q, but workers belong to no tenant", tenant)
	}
	limited := grantOf(ctx).Tenants != nil
	return func(e *happened) bool {
		switch t := e.task; {
		case !of[e.of], tenant != "" && e.ownerless:
			return false
		case limited && t != nil && t.Type == bulk.TaskType && e.tenant == "": // it may go over all tenants
			return false
		case tenant != "" && tenant != e.tenant && (tenant != model.NoTenant || e.tenant != ""):
			return false
		case e.of == store.OfResults:
			return (in.Description == "" || in.Description == e.topic.description) && (in.PlanID == "" || in.PlanID == e.topic.planID)
		case t == nil:
			return in.Key == "" || e.of != store.OfFlows || in.Key == e.key
		default:
			return (len(in.Type) == 0 || slices.Contains(in.Type, t.Type)) && (in.Key == "" || in.Key == t.Key) &&
				(len(in.Kind) == 0 || slices.Contains(in.Kind, string(t.Kind)))
		}
	}, nil
}

func (s *API) watch(ctx context.Context, in *struct{ Watched }) (*huma.StreamResponse, error) {
	wants, err := in.wants(ctx)
	if err != nil {
		return nil, err
	}
	later := http.Header{"Retry-After": {"10"}}
	for _, of := range []store.ChangeOf{store.OfTasks, store.OfResults} { // which are not polled
		if !slices.Contains(in.Of, string(of)) {
			continue
		}
		if streams, err := s.hasStreams(ctx); err != nil {
			return nil, err
		} else if !streams {
			return nil, huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(string(of)+" cannot be watched: "+follow.ErrNoStreams.Reason), later)
		}
	}
	l, err := s.hub.listen(ctx, in.After, wants)
	if errors.As(err, new(*model.NoStreamError)) {
		return nil, huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(err.Error()), later)
	}
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer s.hub.leave(l)
		_, w := humago.Unwrap(c)
		s.stream(c.Context(), w, l, func() bool { return s.mayStill(c.Context()) == nil })
	}}, nil
}

// stream writes the events of a listener until one of them leaves, the token is refused, or the server stops.
func (s *API) stream(ctx context.Context, w http.ResponseWriter, l *listener, allowed func() bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(w)
	write := func(text string) bool {
		_ = c.SetWriteDeadline(s.store.Local().Now().Add(eventTimeout)) // a server that cannot has a limit of its own
		if _, err := w.Write([]byte(text)); err != nil {
			return false
		}
		return c.Flush() == nil
	}
	// An id alone is no event, and is what the client comes back with if it gets none.
	greeting := "id: " + l.at + "\n\n"
	if l.missed {
		greeting = "id: " + l.at + "\nevent: missed\ndata: {}\n\n"
	}
	if !write(greeting) {
		return
	}
	for _, e := range l.backlog {
		if !write(eventText(e)) {
			return
		}
	}
	l.backlog = nil // the client may stay for days
	beats, checks := time.NewTicker(heartbeat), time.NewTicker(access.Window)
	defer beats.Stop()
	defer checks.Stop()
	for {
		text := ""
		select {
		case <-ctx.Done():
			return
		case <-s.stopping.Done():
			return
		case <-checks.C:
			if !allowed() {
				return
			}
			continue
		case <-beats.C:
			text = ": still here\n\n"
		case e, ok := <-l.events:
			if !ok { // the client comes back with the last event that it got
				return
			}
			text = eventText(e)
		}
		if !write(text) {
			return
		}
	}
}

// eventText is an event as the stream has it.
func eventText(e happened) string {
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", e.token, e.name, e.data)
}
