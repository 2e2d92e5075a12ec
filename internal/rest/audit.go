package rest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// AuditFilter selects entries of the audit.
type AuditFilter struct {
	Tenant    string    `query:"tenant" doc:"tenant of the things; - for things without one"`
	Who       string    `query:"who" doc:"token/ID, oidc/SUBJECT, os/USER@HOST or anybody"`
	Operation string    `query:"operation" doc:"operationId, or the command, such as task cancel"`
	Kind      string    `query:"kind" enum:"task,type,periodic,plan,flow,stream,run,bulk,worker,pauses,token"`
	Resource  string    `query:"resource" doc:"id of the thing, such as -/mail/k"`
	Outcome   string    `query:"outcome" enum:"unknown,ok,refused,failed"`
	After     time.Time `query:"after" doc:"at this time or later"`
	Before    time.Time `query:"before" doc:"before this time"`
}

type auditList struct {
	Body struct {
		Entries []view.AuditEntry `json:"entries" doc:"the newest first"`
		Next    string            `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

func (s *API) addAudit() {
	add(s, rule{access.Admin, tenantOfFilter}, op("list-audit", http.MethodGet, "/audit", "List who changed what, the newest first",
		"Every change by this API and by the command line has an entry. What workers do with tasks has none: the tasks say it. "+
			"A page may have fewer entries than its limit and still have a next one."), s.listAudit)
}

func (s *API) listAudit(ctx context.Context, in *struct {
	AuditFilter
	Page
}) (*auditList, error) {
	tenant, err := tenantIn(ctx, "tenant", in.Tenant)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"who": in.Who, "operation": in.Operation, "kind": in.Kind, "resource": in.Resource, "page_token": in.Token} {
		if !safetext.IsText(text) {
			return nil, input.Invalid(name, "is no text")
		}
	}
	from, err := placeOf(in.Token)
	if err != nil {
		return nil, err
	}
	entries, next, err := s.store.Audit.List(ctx, store.AuditFilter{
		Who: in.Who, Operation: in.Operation, Kind: in.Kind, Resource: in.Resource, Tenant: tenant, Outcome: store.AuditOutcome(in.Outcome), After: in.After, Before: in.Before,
	}, from.id, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &auditList{}
	out.Body.Entries = slices.Grow([]view.AuditEntry{}, len(entries))
	for _, e := range entries {
		out.Body.Entries = append(out.Body.Entries, view.AuditEntryOf(e))
	}
	if next != "" {
		out.Body.Next = place{id: next}.token()
	}
	return out, nil
}
