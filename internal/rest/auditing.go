package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// changes says whether an operation is recorded in the audit: one that changes something, for people. What
// workers do with tasks is in the documents of the tasks.
func (need rule) changes(op huma.Operation) bool {
	return op.Method != http.MethodGet && op.Metadata[dryRun] == nil && (need.role == access.Operator || need.role == access.Admin)
}

// dryRun marks, in the metadata of an operation, that it changes nothing although its role could.
const dryRun = "dry-run"

// maybeDry is the input of an operation that changes something, unless the input asks for a dry run.
type maybeDry interface{ dry() bool }

// things are the paths of single things, by their kinds.
var things = []struct{ kind, path string }{
	{audit.Task, taskAt}, {audit.Type, "/types/{type}"}, {audit.Rule, ruleAt}, {audit.Plan, planAt}, {audit.Flow, flowAt}, {audit.Stream, streamAt}, {audit.Bulk, jobAt}, {audit.Token, tokenAt},
	{audit.Run, runAt}, {audit.Pauses, "/pauses"}, {audit.Worker, workerAt},
}

// collections are the paths of all things of a kind, under which new ones are made.
var collections = map[string]string{
	"/tasks": audit.Task, "/periodics": audit.Rule, "/plans": audit.Plan, "/flows": audit.Flow, "/bulk": audit.Bulk, "/tokens": audit.Token,
}

// recording is what the audit knows of an operation before any request.
type recording struct {
	operation, kind string
	fields          []string // of the path, which make the id of the thing; none = it is about no single one
}

// recordingOf is that of an operation on a path below /api/v1.
func recordingOf(op huma.Operation) recording {
	path := strings.TrimPrefix(op.Path, "/api/v1")
	for _, t := range things {
		if path != t.path && !strings.HasPrefix(path, t.path+"/") {
			continue
		}
		r := recording{operation: op.OperationID, kind: t.kind}
		for _, part := range strings.Split(t.path, "/") {
			if field, is := strings.CutPrefix(part, "{"); is {
				r.fields = append(r.fields, strings.TrimSuffix(field, "}"))
			}
		}
		return r
	}
	return recording{operation: op.OperationID, kind: collections[path]}
}

// entry is the entry of a request that asks for the operation.
func (r recording) entry(c huma.Context, g access.Grant) *store.AuditEntry {
	e := &store.AuditEntry{Who: g.Who(), Name: g.Name, From: c.RemoteAddr(), Door: "api", Operation: r.operation, Kind: r.kind}
	ids := make([]string, len(r.fields))
	for i, field := range r.fields {
		ids[i] = c.Param(field)
	}
	e.Resource = strings.Join(ids, "/")
	if r.kind == audit.Token { // also of what is nearly a token's text, the secret stays out of the audit
		e.Resource, _ = access.ParseID("", e.Resource)
	}
	if e.Tenant = (audit.Thing{Kind: r.kind, ID: e.Resource}).Tenant(); len(r.fields) == 0 {
		e.Tenant = c.Param("tenant")
	}
	if e.Tenant == "" && len(g.Tenants) == 1 {
		e.Tenant = g.Tenants[0]
	}
	return e
}

// recorded is a handler whose requests are recorded: before it, since what cannot be recorded must not be
// done, and after it.
func recorded[I, O any](s *API, r recording, handle func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		if m, is := any(in).(maybeDry); is && m.dry() {
			return handle(ctx, in)
		}
		c, _ := ctx.Value(callKey{}).(huma.Context)
		e := r.entry(c, grantOf(ctx))
		e.Request = requestOf(c, in)
		before := s.snapshot(ctx, e, len(r.fields) > 0 || r.kind == audit.Pauses)
		e.Before, _ = audit.Changed(before, nil) // replaced by what has changed, when that is known
		if err := s.audit.Begin(ctx, e); err != nil {
			return nil, s.problem(err)
		}
		part := false
		out, err := handle(context.WithValue(ctx, partKey{}, &part), in)
		s.settle(context.WithoutCancel(ctx), e, before, out, err)
		if part && e.Outcome == store.AuditRefused {
			e.Outcome = store.AuditFailed
			e.Before, e.After = audit.Changed(before, s.snapshot(context.WithoutCancel(ctx), e, len(r.fields) > 0))
		}
		s.audit.End(context.WithoutCancel(ctx), e)
		return out, err
	}
}

type partKey struct{}

// donePart says that a part of a request is done: whatever becomes of the rest, the request is not refused.
func donePart(ctx context.Context) {
	if part, is := ctx.Value(partKey{}).(*bool); is {
		*part = true
	}
}

// snapshot is the thing that an entry is about, if it is about one. Without it the change goes on.
func (s *API) snapshot(ctx context.Context, e *store.AuditEntry, single bool) *audit.Snapshot {
	if !single {
		return nil
	}
	doc, err := audit.Take(ctx, s.store, audit.Thing{Kind: e.Kind, ID: e.Resource})
	if err != nil {
		s.config.Logger.Warn().Err(err).Str("kind", e.Kind).Str("id", e.Resource).Msg("the audit could not read what a change is about")
	}
	return doc
}

// settle notes what became of a change.
func (s *API) settle(ctx context.Context, e *store.AuditEntry, before *audit.Snapshot, out any, err error) {
	e.Outcome, e.Status, e.Reason = store.AuditOK, 0, ""
	var told huma.StatusError
	switch {
	case err == nil && e.Resource == "" && e.Kind != audit.Pauses:
		created(e, out)
	case err == nil:
		e.Before, e.After = audit.Changed(before, s.snapshot(ctx, e, true))
	case errors.As(err, &told):
		e.Outcome, e.Status, e.Reason = store.AuditFailed, told.GetStatus(), reasonOf(told)
		if told.GetStatus() < http.StatusInternalServerError {
			e.Outcome, e.Before = store.AuditRefused, ""
		}
		if told.GetStatus() == http.StatusForbidden { // its body named things of others
			e.Tenant = ""
		}
	default:
		e.Outcome = store.AuditFailed
	}
}

// reasonOf is why a request was not done, with the first field that is wrong.
func reasonOf(err huma.StatusError) string {
	var m *huma.ErrorModel
	if errors.As(err, &m) && len(m.Errors) > 0 {
		return m.Detail + ": " + m.Errors[0].Message
	}
	return err.Error()
}

// created reads from the answer what a request has made: one thing, or several.
func created(e *store.AuditEntry, out any) {
	v := reflect.Indirect(reflect.ValueOf(out))
	if v.Kind() != reflect.Struct || !v.FieldByName("Body").IsValid() {
		return
	}
	data, err := json.Marshal(v.FieldByName("Body").Interface())
	if err != nil {
		return
	}
	var said struct {
		ID     string `json:"id"`
		Tenant string `json:"tenant"`
		Name   string `json:"name"`
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(data, &said) != nil || json.Unmarshal(data, &all) != nil {
		return
	}
	if said.ID == "" { // a list of several
		for _, list := range all {
			var items []json.RawMessage
			if json.Unmarshal(list, &items) == nil {
				e.Count += int64(len(items))
			}
		}
		return
	}
	switch e.Resource = said.ID; e.Kind {
	case audit.Rule: // whose id is not its name
		e.Resource = input.RuleName(said.Tenant, said.Name)
	case audit.Bulk: // whose id has no tenant
		e.Resource = input.RuleName(said.Tenant, said.ID)
	}
	e.After = audit.Request(data)
	if tenant := (audit.Thing{Kind: e.Kind, ID: e.Resource}).Tenant(); tenant != "" {
		e.Tenant = tenant
	}
}

// requestOf is what a request says beside the thing that it is about.
func requestOf(c huma.Context, in any) string {
	said := map[string]any{}
	if v := reflect.ValueOf(in).Elem().FieldByName("Body"); v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		if v.Kind() != reflect.Pointer {
			v = v.Addr()
		}
		var body map[string]any
		if b, is := v.Interface().(interface{ text() []byte }); is && json.Unmarshal(b.text(), &body) == nil {
			said = body
		}
	}
	u := c.URL()
	for name, values := range u.Query() {
		said[name] = strings.Join(values, ",")
	}
	if node := c.Param("node"); node != "" {
		said["node"] = node
	}
	if len(said) == 0 {
		return ""
	}
	return audit.Request(said)
}

// refusedByRule records that somebody who is known asked for a change that the token does not allow. The
// entry is for tokens without tenants.
func (s *API) refusedByRule(c huma.Context, r recording, g access.Grant, err huma.StatusError) {
	e := r.entry(c, g)
	e.Status, e.Reason = err.GetStatus(), err.Error()
	e.Tenant = "" // it may be about things of others
	s.audit.Refused(c.Context(), e)
}
