package view

import (
	"encoding/json"

	"github.com/mscheduler/mscheduler/internal/store"
)

// AuditEntry is an entry of the audit as JSON.
type AuditEntry struct {
	ID        string             `json:"id"`
	At        string             `json:"at" format:"date-time" doc:"when the change began"`
	Who       string             `json:"who" doc:"token/ID, oidc/SUBJECT, os/USER@HOST of the command line, or anybody where no token was required"`
	Name      string             `json:"name,omitempty" doc:"name of the token"`
	From      string             `json:"from" doc:"the address that the request came from, or host and process of the command line"`
	Door      string             `json:"door" enum:"api,cli"`
	Operation string             `json:"operation" doc:"operationId, or the command"`
	Kind      string             `json:"kind,omitempty" doc:"what it is about: task, type, periodic, plan, flow, stream, run, bulk, worker, pauses, token"`
	Resource  string             `json:"resource,omitempty" doc:"id of the thing that it is about; absent where it is about several"`
	Tenant    string             `json:"tenant,omitempty" doc:"whose thing it is; - for none"`
	Request   json.RawMessage    `json:"request,omitempty" doc:"what the caller said, without secrets and without the payloads of tasks"`
	Before    json.RawMessage    `json:"before,omitempty" doc:"the fields that the change has changed, as they were; all of them where the thing was deleted"`
	After     json.RawMessage    `json:"after,omitempty" doc:"and as they became; all of them where the thing was created"`
	Count     int64              `json:"count,omitempty" doc:"of things, where it is about several"`
	Outcome   store.AuditOutcome `json:"outcome" enum:"unknown,ok,refused,failed" doc:"unknown: it began, and its end is not written; failed: an error cut it off, it may be done in part"`
	Status    int                `json:"status,omitempty" doc:"of the answer, or the exit code"`
	Reason    string             `json:"reason,omitempty" doc:"why it was refused, or failed"`
	EndedAt   string             `json:"ended_at,omitempty" format:"date-time"`
}

// AuditEntryOf is an entry as it was read.
func AuditEntryOf(e *store.AuditEntry) AuditEntry {
	return AuditEntry{
		e.ID, Time(e.At), e.Who, e.Name, e.From, e.Door, e.Operation, e.Kind, e.Resource, e.Tenant,
		json.RawMessage(e.Request), json.RawMessage(e.Before), json.RawMessage(e.After), e.Count, e.Outcome, e.Status, e.Reason, Time(e.EndedAt),
	}
}
