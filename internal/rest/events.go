package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const (
	// heartbeat is how often a silent stream says that it is there: proxies close those that do not.
	heartbeat = 15 * time.Second
	// eventTimeout is how long a client may take to accept an event.
	eventTimeout = 30 * time.Second
)

func (s *API) addEvents() {
	stream := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "Server-Sent Events: the name of an event is its kind, its id is a token, and its data is a TaskEvent"}}
	documentSchema(s.api.OpenAPI().Components.Schemas, reflect.TypeFor[model.TaskEvent](), "id")
	add(s, rule{access.Viewer, tenantOfFilter}, huma.Operation{
		OperationID: "watch-tasks", Method: http.MethodGet, Path: "/events", Tags: []string{"tasks"}, Summary: "Watch the events of tasks as they happen",
		Description: "Server-Sent Events. A client that was cut off goes on behind the event that it names in Last-Event-ID. An event `missed` says that some are not known any more: read what you watch again. " +
			"All listeners of a server share one change stream. A deployment without change streams answers 503.",
		Responses: map[string]*huma.Response{"200": {Description: "The events, until the client leaves.", Content: map[string]*huma.MediaType{"text/event-stream": stream}}},
	}, s.watch)
}

func (s *API) watch(ctx context.Context, in *struct {
	Tenant string   `query:"tenant" doc:"tenant; - for tasks without one"`
	Type   []string `query:"type" doc:"any of these types"`
	Key    string   `query:"key"`
	Kind   []string `query:"kind" doc:"any of these kinds of events"`
	After  string   `header:"Last-Event-ID" doc:"id of the last event that the client got"`
}) (*huma.StreamResponse, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	for _, kind := range in.Kind {
		if !slices.Contains(codec.EventKinds, model.EventKind(kind)) {
			return nil, input.Invalid("query.kind", "has %q; want some of %v", kind, codec.EventKinds)
		}
	}
	wants := func(e *model.TaskEvent) bool {
		return (tenant == "" || tenant == e.Tenant || tenant == model.NoTenant && e.Tenant == "") && (len(in.Type) == 0 || slices.Contains(in.Type, e.Type)) &&
			(in.Key == "" || in.Key == e.Key) && (len(in.Kind) == 0 || slices.Contains(in.Kind, string(e.Kind)))
	}
	l, err := s.hub.listen(ctx, in.After, wants)
	var none *producer.NoStreamError
	if errors.As(err, &none) {
		return nil, huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(none.Error()), http.Header{"Retry-After": {"10"}})
	}
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer s.hub.leave(l)
		_, w := humago.Unwrap(c)
		s.stream(c.Context(), w, l, func() bool { return s.stillMay(c) })
	}}, nil
}

// stillMay says whether the token of a request that goes on still allows what it did.
func (s *API) stillMay(c huma.Context) bool {
	grant, err := s.authenticate(c)
	before := grantOf(c.Context())
	return err == nil && grant.Role.Includes(before.Role) && slices.Equal(grant.Tenants, before.Tenants)
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
func eventText(e model.TaskEvent) string {
	id := e.Token
	e.Token = ""
	data, _ := json.Marshal(e) // nothing in it refuses that
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, e.Kind, data)
}
