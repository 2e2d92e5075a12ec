package rest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mscheduler/mscheduler/internal/audit"
)

// DescriptionJSON is the description of the API as JSON.
func (s *API) DescriptionJSON() ([]byte, error) { return json.Marshal(s.api.OpenAPI()) }

// Patterns are the paths that the handler answers.
func (s *API) Patterns() []string { return s.mux.patterns }

// Poll has the API watch as if the deployment had no change streams.
func (s *API) Poll(every time.Duration) { s.polls, s.pollEvery = true, every }

// AuditWritten waits for what the audit has to write.
func (s *API) AuditWritten(ctx context.Context) error { return s.audit.Wait(ctx) }

// HurryAudit has writes of the audit give up soon.
func (s *API) HurryAudit() {
	s.audit = audit.New(audit.Config{Store: s.store, Timeout: 200 * time.Millisecond})
}
