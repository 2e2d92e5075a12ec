package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// DescriptionJSON is the description of the API as JSON.
func (s *API) DescriptionJSON() ([]byte, error) { return json.Marshal(s.api.OpenAPI()) }

// Described is the operation that answers a request, as the description has it; nil = none does.
func (s *API) Described(r *http.Request) *huma.Operation {
	stripped := r.Clone(r.Context())
	stripped.URL.Path, stripped.URL.RawPath = strings.TrimPrefix(r.URL.Path, s.config.Mount), strings.TrimPrefix(r.URL.RawPath, s.config.Mount)
	_, pattern := s.mux.Handler(stripped)
	method, path, _ := strings.Cut(pattern, " ")
	if at := s.api.OpenAPI().Paths[path]; at != nil {
		return map[string]*huma.Operation{http.MethodGet: at.Get, http.MethodPost: at.Post, http.MethodPut: at.Put, http.MethodPatch: at.Patch, http.MethodDelete: at.Delete}[method]
	}
	return nil
}

// Patterns are the paths that the handler answers.
func (s *API) Patterns() []string { return s.mux.patterns }

// Poll has the API watch as if the deployment had no change streams.
func (s *API) Poll(every time.Duration) { s.polls, s.pollEvery = true, every }

// Patient has writes of the audit wait that long for the database.
func (s *API) Patient(patience time.Duration) { s.audit.Timeout = patience }

// AuditWritten waits for what the audit has to write.
func (s *API) AuditWritten(ctx context.Context) error { return s.audit.Wait(ctx) }
