package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
)

// Config of Flows. Only Database is needed.
type Config struct {
	// Database holds the flows and tasks. It is never closed. Required.
	Database *mongo.Database
	// Prefix of the collections' names. Defaults to "".
	Prefix string
	// EngineID names this process among the engines. Engines of one process that share their
	// queries use the name of the first one. Defaults to "engine-" and random letters.
	EngineID string
	// SecretKey encrypts the keys that sign the callbacks of flows and their nodes: 32 bytes as hex or base64, or
	// several separated by commas. The first encrypts, all decrypt. Defaults to none: flows with such
	// keys are refused.
	SecretKey string
	// Joins are the custom joins, by the ids that nodes use. An engine that lacks a join leaves the
	// node to other engines, and logs the id if none calls it. Defaults to none.
	Joins map[string]JoinFunc
	// OnPending is called when a node begins to wait for a person, after its status was stored. A node that
	// another one blocks causes no call. Any engine may call it, and it may be called twice for the same
	// node. Calls come one at a time; ctx ends after a minute. Defaults to none. A warning is logged in any
	// case.
	OnPending func(ctx context.Context, f *graph.Flow, node, reason string)
	// TracerProvider records spans of starts and appends, see docs/traces.md. Defaults to none.
	TracerProvider trace.TracerProvider
	// Clock is for tests. Defaults to the machine's.
	Clock model.Clock
	// Logger receives messages for operators. Defaults to the zero Logger, which is silent.
	Logger zerolog.Logger
}

// JoinFunc is a custom join (seed 002). It is called after each end of a parent until it has decided.
// It receives all parents and the value that it saved last, at first Join.Context. It returns WAIT
// (UNKNOWN in the seed), READY, PENDING or SKIPPED, and the value to save. It must not block. It must
// return the same result for the same input, because engines may call it twice. The value has 64 KiB at
// most. The joins of all nodes of a flow that wait may save 1 MiB together, beside what Join.Context has.
// After an error or a panic, or with another answer, engines call it again for a minute; then the node is
// PENDING. [Flows.Resolve] and [Flows.Answer] call it twice at most before that.
type JoinFunc func(parents []Parent, saved bson.RawValue) (verdict graph.NodeStatus, save bson.RawValue, err error)

// Parent is what a [JoinFunc] sees of a parent.
type Parent struct {
	Node   string
	Status graph.NodeStatus
	Output bson.RawValue // of a parent that succeeded; zero = none
}

// Flows starts and manages flows. While [Flows.Run] runs, it is also an engine. It is safe for
// concurrent use. Changes other than [Flows.Start] and [Flows.Append] are never part of a transaction.
type Flows struct {
	store   *store.Store
	id      string
	types   *tasktypes.Cache
	secrets *secret.Box // nil = none
	joins   map[string]flowplan.JoinFunc
	alerts  alerts
	tracer  tracing.Tracer
	log     zerolog.Logger
	decider *decision.Decider[*graph.Flow]
	streams streams
	memory  memory // of the engine
	failing patience

	gathered gathered
	lacking  clock.Seldom // by flow: the log has a join that this process lacks
}

// New makes Flows and checks the configuration. It does no I/O.
func New(cfg Config) (*Flows, error) {
	st, err := store.Open(store.Config{Database: cfg.Database, Prefix: cfg.Prefix, Clock: cfg.Clock, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	id, err := input.EngineID(cfg.EngineID)
	if err != nil {
		return nil, err
	}
	box, err := secret.Parse("secret_key", cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	f := &Flows{store: st, id: id, types: tasktypes.New(st), secrets: box, joins: map[string]flowplan.JoinFunc{}, memory: memory{flows: map[string]*memo{}}, failing: patience{}, gathered: gathered{of: map[string]*outputs{}}, alerts: alerts{call: cfg.OnPending}, tracer: tracing.New(cfg.TracerProvider), log: cfg.Logger.With().Str("engine_id", id).Logger()}
	for name, join := range cfg.Joins {
		f.joins[name] = func(parents []flowplan.Parent, saved bson.RawValue) (verdict graph.NodeStatus, save bson.RawValue, err error) {
			defer func() {
				if p := recover(); p != nil { // the other flows go on
					err = fmt.Errorf("it panics: %v", p)
				}
			}()
			seen := make([]Parent, len(parents))
			for i, p := range parents {
				seen[i] = Parent(p)
			}
			return join(seen, saved)
		}
	}
	f.decider = decision.New(decision.Config[*graph.Flow]{Store: f.store, Planner: planner{f}, Documents: f.store.Flows, Types: f.types, Log: f.log, Prompt: true, Size: sizeOf, Over: isOver, Large: true})
	f.streams = streams{groupcommit.New(perAppend, f.storeAppends), groupcommit.New(perAppend, f.linkAppended), groupcommit.New(perAppend, f.linkDried)}
	return f, nil
}

// Run is the engine: it starts nodes when their parents have ended. It returns nil when ctx ends. Any
// number of processes may run an engine. Run waits while the server is down. It returns an error only
// if waiting cannot help, for example if the schema is that of another release, or if another Run of f
// has not returned yet.
func (f *Flows) Run(ctx context.Context) error {
	defer f.alerts.wait()
	defer func() { // what it looks for in the background
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), linkPatience)
		defer cancel()
		_ = f.Flush(stop) // others find it
	}()
	return decision.Run(ctx, f.id, flowplan.EngineType, f.decider)
}

// Validate returns every mistake in a definition, joined, or nil. It does no I/O.
func Validate(s graph.Spec) error {
	_, err := flowspec.Build(&s, cmp.Or(s.Key, "key"), clock.System().Now())
	return err
}

// Start stores a flow, completely or not at all, and starts its first node. If a flow with the key
// exists, Start returns that flow, whose Created is false, and changes nothing. If a transaction runs on
// the session in ctx, the flow is part of it, and begins a few seconds after the commit.
func (f *Flows) Start(ctx context.Context, s graph.Spec) (started *graph.Flow, err error) {
	ctx = store.Inside(ctx)
	if err := f.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("starting a flow: %w", err)
	}
	now := f.store.Clock.Now()
	key := s.Key
	if key == "" {
		key = input.NewKey(now)
	}
	sealed, err := f.seal(s)
	if err != nil {
		return nil, fmt.Errorf("starting a flow: %w", err)
	}
	doc, err := flowspec.Build(&sealed, key, now)
	if err == nil {
		doc, err = flowplan.Begin(doc, now)
	}
	if err != nil {
		return nil, fmt.Errorf("starting a flow: %w", err)
	}
	from, end := f.tracer.Begin(ctx, "start flow", now, attribute.String("mscheduler.flow", doc.ID))
	defer func() { end(err) }()
	doc.Trace = from
	began := clock.Read(f.store.Local())
	if err := f.typed(ctx, doc); err != nil {
		return nil, fmt.Errorf("starting the flow %s: %w", doc.ID, err)
	}
	exists, err := f.store.Flows.Insert(ctx, doc)
	switch {
	case err != nil:
		return nil, fmt.Errorf("starting a flow: %w", err)
	case exists:
		found, err := f.Get(ctx, doc.ID)
		if err == nil && found.Kind != doc.Kind {
			return nil, fmt.Errorf("starting a flow: %w", &store.KindError{ID: doc.ID, Stream: true})
		}
		return found, err
	}
	if doc.Created = true; !store.InTransaction(ctx) {
		f.decider.Decided(ctx, began, doc)
	}
	return doc, nil
}

// seal makes the secrets of the callbacks unreadable; what is sealed stays so.
func (f *Flows) seal(s graph.Spec) (graph.Spec, error) {
	var errs []error
	var err error
	s.Callback, err = f.secrets.SealCallback("callback", s.Callback)
	errs = append(errs, err)
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		var err error
		n.Options.Callback, err = f.secrets.SealCallback(fmt.Sprintf("nodes[%d].options.callback", i), n.Options.Callback)
		errs = append(errs, err)
		if n.Flow != nil {
			inner, err := f.seal(*n.Flow)
			n.Flow, errs = &inner, append(errs, err)
		}
	}
	return s, errors.Join(errs...)
}

// typed gives the tasks of a new flow what a send of their types gives to its tasks.
func (f *Flows) typed(ctx context.Context, doc *graph.Flow) error {
	doc.Decision = input.Random()
	if err := f.types.Fresh(store.Outside(ctx), tasktypes.MaxAge); err != nil {
		return err
	}
	return f.complete(doc, nil)
}

// Get reads a flow. The error is [model.ErrNotFound] if there is none.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Get(ctx context.Context, id string) (*graph.Flow, error) {
	return f.store.Flows.Get(ctx, id)
}

// List returns at most limit flows (1 to 1,000), the last changed first, without their Nodes. tenant
// and status select flows ("" = all; the tenant [model.NoTenant] = those without one). The list begins
// behind the flow after (nil = at the beginning): List reads only its ID and UpdatedAt. If this release
// cannot read some flows, List returns the others and a [*model.UnreadableError] with their ids.
//
// The database reads flows of the status in the order of their changes until it has found limit of the tenant. For a
// tenant with few flows among many that may be all of them: bound the time by ctx.
func (f *Flows) List(ctx context.Context, tenant string, status graph.Status, after *graph.Flow, limit int) ([]*graph.Flow, error) {
	if limit < 1 || limit > 1000 {
		return nil, input.Invalid("limit", "is %d; want 1 to 1000", limit)
	}
	span := store.Span{Limit: limit}
	if after != nil {
		span.At, span.ID = after.UpdatedAt, after.ID
	}
	docs, unread, err := f.store.Flows.List(ctx, store.FlowFilter{Tenant: tenant, Status: status}, span)
	if err != nil {
		return nil, err
	}
	return docs, store.UnreadError("flow", unread)
}

// Await waits until the flow is FINISH or PENDING, and returns it. If it is PENDING, a person must
// resolve a node.
// id is tenant/key, with - for no tenant, such as -/order-7. That of a stream is scene/group.
func (f *Flows) Await(ctx context.Context, id string) (*graph.Flow, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		status, err := f.store.Flows.Status(ctx, id)
		if err != nil {
			return nil, err
		}
		if status == graph.StatusFinish || status == graph.StatusPending {
			doc, err := f.Get(ctx, id)
			if err != nil {
				return nil, err
			}
			if doc.Status == status { // a failover may undo what a majority does not have
				if stays, err := f.store.Flows.Stays(ctx, doc); err != nil {
					return nil, err
				} else if stays {
					return doc, nil
				}
			}
		}
		clock.Pause(ctx, pause)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("waiting for the flow %s: %w", id, err)
		}
	}
}
