// Package server is the REST API and the dashboard of mscheduler as an [http.Handler]. The command `mscheduler serve` runs it. A
// service can mount it beside its own pages.
//
// The API describes itself at /api/v1/openapi.json. docs/api.md is its guide. The dashboard is at /ui/.
package server

import (
	"context"
	"net/http"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/dashboard"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/rest"
)

// Issuer is an identity provider (OpenID Connect) whose signed tokens (JWT) are accepted beside those of
// `mscheduler token create`. All fields but the last two are required.
type Issuer struct {
	// URL is the claim iss of its tokens.
	URL string
	// JWKS is where its public keys are: an https URL, http for a loopback address, or a file.
	JWKS string
	// Audience is what the claim aud of a token must contain, such as the client id of this deployment.
	Audience string
	// Roles maps values of the role claim to viewer, operator, admin and worker. A token with several roles
	// has the first of admin, operator, viewer and worker. A token without any is refused.
	Roles map[string]string
	// RoleClaim is a string or a list of strings. Its name may be a path such as realm_access.roles.
	// Defaults to roles.
	RoleClaim string
	// TenantsClaim lists the tenants that the token covers: * is all of them, - is what has no tenant. A
	// token without it is refused. Defaults to none: each token covers all tenants.
	TenantsClaim string
}

// Config of a [Server]. Database is required.
type Config struct {
	// Database is the caller's. The server never closes it.
	Database *mongo.Database
	// Prefix of the collections' names; defaults to "".
	Prefix string
	// Mount is the path under which the handler is mounted, such as /scheduler. Requests arrive with it.
	// Defaults to "", the root.
	Mount string
	// SecretKey encrypts the secrets of callbacks, see producer.Config.
	SecretKey string
	// NoTokens lets everybody do everything as long as no token exists. The server then answers only to
	// requests for a name of the machine itself: localhost or a loopback address. It learns of the first
	// token within five seconds. Otherwise each request needs a token (mscheduler token create), but those
	// to /livez, to /readyz, to the page at /docs/ and the sign-in at /ui/sign-in, which have no data, and to
	// /api/v1/callbacks/, whose path has a token of its own.
	NoTokens bool
	// NoAPI leaves only callbacks and health, at an address that others may reach, say.
	NoAPI bool
	// NoDashboard leaves out the pages at /ui/.
	NoDashboard bool
	// TraceURL is where people see a trace, such as https://jaeger.example.org/trace/{trace_id}. Pages of tasks
	// link to it. {trace_id} stands for the id of the trace. Defaults to none: pages show the id.
	TraceURL string
	// NoCallbacks accepts no completions of runs at /api/v1/callbacks/.
	NoCallbacks bool
	// Issuer is an identity provider whose tokens are accepted, too; nil = none. It excludes NoTokens.
	Issuer *Issuer
	// Version of the program, for the description of the API.
	Version string
	// TracerProvider records spans of requests and of what they send, see docs/traces.md. With or without
	// it, what a request sends stores the trace of its header traceparent. Defaults to none.
	TracerProvider trace.TracerProvider
	// Logger receives messages for operators, such as errors whose reason the API does not tell. Defaults to none.
	Logger zerolog.Logger
}

// Server serves the API and the dashboard. It is safe for concurrent use.
type Server struct {
	api   *rest.API
	pages *dashboard.Dashboard // nil = there is none
}

// New checks the Config and makes a server. It does no I/O. If a field is wrong, the error is a
// *model.InvalidError.
func New(c Config) (*Server, error) {
	if err := input.TraceURL("TraceURL", c.TraceURL); err != nil {
		return nil, err
	}
	api, err := rest.New(rest.Config{
		Database: c.Database, Prefix: c.Prefix, Mount: c.Mount, SecretKey: c.SecretKey, NoTokens: c.NoTokens, NoAPI: c.NoAPI, NoCallbacks: c.NoCallbacks,
		Issuer: (*access.Issuer)(c.Issuer), Version: c.Version, TracerProvider: c.TracerProvider, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{api: api}
	if !c.NoAPI && !c.NoDashboard {
		s.pages = dashboard.New(dashboard.Config{API: api, Mount: c.Mount, Version: c.Version, TraceURL: c.TraceURL, Logger: c.Logger})
	}
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.pages != nil && s.pages.Serves(r) {
		s.pages.ServeHTTP(w, r)
		return
	}
	s.api.ServeHTTP(w, r)
}

// Drain makes /readyz fail, so that load balancers send no new requests here; all others are answered as
// before. Call it a few seconds before the shutdown.
func (s *Server) Drain() { s.api.Drain() }

// Stop drains, and ends the waits of requests for tasks, and later requests do not wait at all. Give it to
// [http.Server.RegisterOnShutdown], so that a shutdown need not wait for them.
func (s *Server) Stop() { s.api.Stop() }

// Close waits for what the server is writing, at most until ctx ends. Call it after the last request.
func (s *Server) Close(ctx context.Context) error { return s.api.Close(ctx) }
