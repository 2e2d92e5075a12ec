package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/census"
	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/probe"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// Config of a [API]. Database is required.
type Config struct {
	// Database is the caller's. The server never closes it.
	Database *mongo.Database
	// Prefix of the collections' names; defaults to "".
	Prefix string
	// Mount is the path under which the handler is mounted, such as /scheduler; defaults to "", the root.
	// Requests arrive with it.
	Mount string
	// SecretKey encrypts the secrets of callbacks and of calls; see producer.Config.
	SecretKey string
	// NoTokens lets everybody do everything as long as no token exists, and answers only to requests for a
	// name of the machine itself. Otherwise each request needs a token, but those for health, for the page at
	// /docs/, which has no data, and for callbacks.
	NoTokens bool
	// NoAPI leaves only callbacks and health.
	NoAPI bool
	// NoCallbacks accepts no completions at /api/v1/callbacks/.
	NoCallbacks bool
	// Issuer is an identity provider whose tokens are accepted, too; nil = none. It excludes NoTokens.
	Issuer *access.Issuer
	// Version of the program, for the description of the API.
	Version string
	// TracerProvider records spans; nil = none are recorded.
	TracerProvider trace.TracerProvider
	// Logger defaults to none.
	Logger zerolog.Logger
}

// API is the REST API as an [http.Handler]. It is safe for concurrent use.
type API struct {
	config      Config
	tracer      tracing.Tracer
	store       *store.Store
	producer    *producer.Producer
	admin       *admin.Admin
	puller      *pull.Puller
	room        *command.Room
	rules       *periodic.Periodic
	plans       *plan.Plans
	secrets     *secret.Box // nil = none
	flows       *flow.Flows
	guard       *access.Guard
	audit       *audit.Log
	api         huma.API
	jobs        *bulk.Jobs
	census      *census.Taker
	mux         *routes
	waiting     waiting
	hub         hub
	examined    examined
	counts      turns // of tasks
	forecasts   turns // of rules
	polls       bool  // for tests: as if the deployment had no change streams
	pollEvery   time.Duration
	crossOrigin *http.CrossOriginProtection
	stopping    context.Context // of requests that wait
	stop        context.CancelFunc
	draining    context.Context // of /readyz
	drain       context.CancelFunc
}

// New checks the Config and makes a server. It does no I/O. A field that is wrong is a model.ErrInvalid.
func New(c Config) (*API, error) {
	if c.Mount != "" && (!strings.HasPrefix(c.Mount, "/") || strings.HasSuffix(c.Mount, "/")) {
		return nil, input.Invalid("mount", "is %q; want a path such as /scheduler", c.Mount)
	}
	if c.Issuer != nil {
		if err := c.Issuer.Check(); err != nil {
			return nil, err
		}
		if c.NoTokens {
			return nil, input.Invalid("no_tokens", "excludes an issuer: with one, each request needs a token")
		}
	}
	p, err := producer.New(producer.Config{Database: c.Database, Prefix: c.Prefix, SecretKey: c.SecretKey, TracerProvider: c.TracerProvider, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	st, err := store.Open(store.Config{Database: c.Database, Prefix: c.Prefix, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	rules, err := periodic.New(periodic.Config{Database: c.Database, Prefix: c.Prefix, SecretKey: c.SecretKey, TracerProvider: c.TracerProvider, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	plans, err := plan.New(plan.Config{Database: c.Database, Prefix: c.Prefix, SecretKey: c.SecretKey, TracerProvider: c.TracerProvider, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	box, err := secret.Parse("secret_key", c.SecretKey)
	if err != nil {
		return nil, err
	}
	flows, err := flow.New(flow.Config{Database: c.Database, Prefix: c.Prefix, SecretKey: c.SecretKey, TracerProvider: c.TracerProvider, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	s := &API{config: c, tracer: tracing.New(c.TracerProvider), store: st, rules: rules, plans: plans, secrets: box, producer: p, admin: admin.New(p), puller: pull.New(p), room: command.Of(p), flows: flows, guard: access.New(access.Config{Store: st, Issuer: c.Issuer, Log: c.Logger}), audit: audit.New(audit.Config{Store: st, Log: c.Logger}), mux: &routes{}, crossOrigin: http.NewCrossOriginProtection()}
	s.jobs, s.census = bulk.New(p, s.admin, st), census.New(st)
	s.hub = hub{source: s.events, log: c.Logger, listeners: map[*listener]bool{}}
	s.pollEvery = pollEvery
	s.counts, s.forecasts, s.examined.turn = make(turns, countsAtOnce), make(turns, forecastsAtOnce), make(turns, 1)
	s.draining, s.drain = context.WithCancel(context.Background())
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.api = humago.New(s.mux, s.description())
	if !c.NoAPI {
		s.addOperations()
		s.addPage()
	}
	if !c.NoCallbacks {
		s.addCallbacks()
	}
	s.addExamples()
	probe.Add(s.mux, st, c.Logger, s.draining.Done())
	s.mux.HandleFunc("/", s.nowhere)
	return s, nil
}

// addOperations adds the operations of the API. All but the completions of runs need a token.
func (s *API) addOperations() {
	s.addTasks()
	s.addSends()
	s.addChanges()
	s.addExplain()
	s.addStats()
	s.addSeries()
	s.addBulk()
	s.addTypes()
	s.addFlows()
	s.addStreams()
	s.addWorkers()
	s.addExecutions()
	s.addPull()
	s.addEvents()
	s.addPeriodics()
	s.addPeriodicCommands()
	s.addPeriodicPreviews()
	s.addRuns()
	s.addPlans()
	s.addPlanCommands()
	s.addAudit()
	s.addTokens()
	s.addMe()
	s.addDoctor()
	s.addDescription()
}

// routes are the paths that the handler answers. They remember their patterns, so that a test can ask each of
// them without a token.
type routes struct {
	http.ServeMux
	patterns []string
}

// HandleFunc adds a path.
func (r *routes) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.HandleFunc(pattern, handle)
}

// description is what the OpenAPI document says of the API as a whole.
func (s *API) description() huma.Config {
	c := huma.DefaultConfig("mscheduler", s.config.Version)
	c.CreateHooks = nil                                   // no links to schemas in answers
	c.DocsPath, c.SchemasPath, c.OpenAPIPath = "", "", "" // see addDescription
	c.RejectUnknownQueryParameters = true
	c.Formats = map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat}
	c.Info.Description = "Tasks, types, periodic rules, plans, flows, streams and workers of mscheduler. Each document has the fields that files and `-o json` of the command line have."
	c.Servers = []*huma.Server{{URL: s.config.Mount + "/"}}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "a token of `mscheduler token create`, or of the identity provider"},
	}
	return c
}

// answerPolicy is for answers that are no page: a browser that shows one loads nothing for it.
const answerPolicy = "default-src 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (s *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", answerPolicy)
	if r.TLS != nil && !probe.LocalName(r.Host) { // on localhost it would be for the programs of all ports
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	switch {
	case s.config.NoTokens && !probe.LocalName(r.Host):
		refuse(w, http.StatusForbidden, "this server answers only to its own machine")
	case s.crossOrigin.Check(r) != nil:
		refuse(w, http.StatusForbidden, "requests from pages of other origins are refused")
	default:
		http.StripPrefix(s.config.Mount, s.mux).ServeHTTP(w, r)
	}
}

// Drain makes /readyz fail; all other requests are answered as before.
func (s *API) Drain() { s.drain() }

// Stop drains, and ends the waits of requests, so that the caller's [http.Server.Shutdown] need not wait for them. Later
// requests do not wait at all. It is for [http.Server.RegisterOnShutdown].
func (s *API) Stop() {
	s.drain()
	s.stop()
	s.hub.stop()
}

// Close waits for what the server is writing. It comes after the last request.
func (s *API) Close(ctx context.Context) error {
	s.stop()
	return errors.Join(s.guard.Wait(ctx), s.audit.Wait(ctx), s.flows.Flush(ctx), s.producer.Close(ctx))
}

// patient is a context of a request that waits for at most that long, or until the server stops. What came
// meanwhile is answered if the token still allows it, see mayStill.
func (s *API) patient(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	unlink := context.AfterFunc(s.stopping, cancel)
	return ctx, func() {
		unlink()
		cancel()
	}
}

// OpenAPI is the description of the API, OpenAPI 3.1 as YAML.
func (s *API) OpenAPI() ([]byte, error) {
	text, err := s.api.OpenAPI().YAML()
	return text, errors.Join(err)
}
