package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/measure"
)

// Store is mscheduler's view of one database. It is safe for concurrent use.
type Store struct {
	*core
	Tasks   *Tasks
	History *History
	Types   *Types
	Control *Control
	Turns   *Turns
	Seats   *Seats
	Permits *Permits
	Rates   *Rates
	Rules   *Rules
	Runs    *Runs
	Flows   *Flows
	Nodes   *Nodes
	Plans   *Plans
	Results *Results
	Workers *Workers
	Tokens  *Tokens
	Answers *Answers
	Audit   *Audit
	Series  *Series
}

// core is what the types of all collections share: the connection, the clock, and what
// was learned about the server.
type core struct {
	db     *mongo.Database
	prefix string
	local  clock.Clock
	log    zerolog.Logger

	tasks, history, types, workers, control, signals, turns, seats, permits, rates, rules, runs, flows, flowNodes, plans, planHistory, planResults, tokens, answers, audit, series, meta *mongo.Collection

	Clock *Clock
	// Measure is what this process measures of the database.
	Measure *measure.Set

	held  held
	pace  pace
	heads heads
	sizes sizes // of due tasks

	mu       sync.Mutex
	topology *Topology
	ready    bool               // the schema was checked
	peeks    *bool              // whether a [Tasks.Peek] is one query; nil = not asked yet
	kept     map[string]keptFor // retentions, by the id of their documents

	complained clock.Seldom // about which documents
}

// Config of a store.
type Config struct {
	Database *mongo.Database // the caller's; concerns, preference and codecs of ours are laid over it
	Prefix   string          // of the collections' names
	Clock    clock.Clock     // nil = the machine's
	Logger   zerolog.Logger
}

// Open makes a store. It does no I/O.
func Open(c Config) (*Store, error) {
	if c.Database == nil {
		return nil, input.Invalid("database", "is nil")
	}
	if name := c.Database.Name(); input.SystemDatabase(name) {
		return nil, input.Invalid("database", "is %s, where MongoDB keeps its own data: it allows no transactions and no change streams there", name)
	}
	if err := validPrefix(c.Prefix); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	db := c.Database.Client().Database(c.Database.Name(), options.Database().
		SetRegistry(codec.Registry()).
		SetBSONOptions(&options.BSONOptions{}).
		SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Local()).
		SetWriteConcern(writeconcern.Majority()))
	s := &core{db: db, prefix: c.Prefix, local: c.Clock, log: c.Logger, Clock: newClock(c.Clock)}
	s.tasks = db.Collection(c.Prefix + "tasks")
	s.history = db.Collection(c.Prefix + "task_history")
	s.types = db.Collection(c.Prefix + "task_types")
	s.workers = db.Collection(c.Prefix + "workers")
	s.control = db.Collection(c.Prefix + "control")
	s.signals = db.Collection(c.Prefix + "signals")
	s.turns = db.Collection(c.Prefix + "turns")
	s.seats = db.Collection(c.Prefix + "seats")
	s.permits = db.Collection(c.Prefix + "permits")
	s.rates = db.Collection(c.Prefix + "rates")
	s.rules = db.Collection(c.Prefix + "periodic_rules")
	s.runs = db.Collection(c.Prefix + "periodic_runs")
	s.flows = db.Collection(c.Prefix + "flows")
	s.flowNodes = db.Collection(c.Prefix + "flow_nodes")
	s.plans = db.Collection(c.Prefix + "plans")
	s.planHistory = db.Collection(c.Prefix + "plan_history")
	s.planResults = db.Collection(c.Prefix + "plan_results")
	s.tokens = db.Collection(c.Prefix + "tokens")
	s.answers = db.Collection(c.Prefix + "answers")
	s.audit = db.Collection(c.Prefix + "audit")
	s.series = db.Collection(c.Prefix + "series")
	s.meta = db.Collection(c.Prefix + "meta")
	s.Measure = measure.Of(s.Namespace())
	return furnish(s), nil
}

// durable is the collection as reads see it that a failover cannot undo.
func (s *core) durable(coll *mongo.Collection) *mongo.Collection {
	return s.db.Collection(coll.Name(), options.Collection().SetReadConcern(readconcern.Majority()))
}

// durableDatabase is the database as durable shows a collection.
func (s *core) durableDatabase() *mongo.Database {
	return s.db.Client().Database(s.db.Name(), options.Database().SetRegistry(codec.Registry()).SetBSONOptions(&options.BSONOptions{}).
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()))
}

func validPrefix(p string) error {
	if len(p) > 40 {
		return input.Invalid("prefix", "has %d bytes; at most 40 are allowed", len(p))
	}
	for _, r := range p {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-' {
			return input.Invalid("prefix", "is %q; want only a-z A-Z 0-9 . _ -", p)
		}
	}
	return nil
}

// Namespace is where a store's collections are, as one client sees them.
type Namespace struct {
	client           *mongo.Client
	database, prefix string
}

// Namespace returns the store's.
func (s *core) Namespace() Namespace { return Namespace{s.db.Client(), s.db.Name(), s.prefix} }

// Local is the clock the store was opened with: this machine's, not the database's.
func (s *Store) Local() clock.Clock { return s.local }

// InTransaction says whether a transaction runs on the session that the context carries: what is
// done with it is done or undone with that. A session without one, such as for causal consistency or
// after the commit, undoes nothing.
func InTransaction(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

// InRunningTransaction is [InTransaction] for a session of the store's own client, as others are refused.
func (s *Store) InRunningTransaction(ctx context.Context) bool {
	return InTransaction(ctx) && mongo.SessionFromContext(ctx).Client() == s.db.Client()
}

// Inside returns ctx as a call uses it that is part of the caller's transaction if there is one. Without
// one the session stays outside: such a call writes from several goroutines, and a session is for one.
func Inside(ctx context.Context) context.Context {
	if InTransaction(ctx) {
		return ctx
	}
	return Outside(ctx)
}

// Outside returns ctx without the session it may carry: for what must not be part of
// the caller's transaction, such as reading the clock.
func Outside(ctx context.Context) context.Context {
	if mongo.SessionFromContext(ctx) == nil {
		return ctx
	}
	return mongo.NewSessionContext(ctx, nil)
}

// Topology is what kind of deployment answers, as far as the product cares.
type Topology struct {
	Sharded    bool
	ReplicaSet bool
	Primary    string // address of the primary; empty when sharded
	Version    string // "7.0.1"; "" when buildInfo is not allowed
	Embedded   bool   // our own embedded server

	withData, arbiters int // members of the replica set
}

// Fragile reports whether one lost member with data ends all writes although a primary stays: the
// arbiters count for a majority, but store nothing.
func (t Topology) Fragile() bool {
	majority := (t.withData+t.arbiters)/2 + 1
	return t.arbiters > 0 && t.withData-1 < majority
}

// Streams reports whether workers use change streams here. Behind a router they poll
// instead: every stream costs every shard, and a fleet holds several.
func (t Topology) Streams() bool { return t.ReplicaSet }

// Subscriptions reports whether the deployment has change streams at all, which a
// subscription needs. Behind a router each one reads the oplog of every shard.
func (t Topology) Subscriptions() bool { return t.ReplicaSet || t.Sharded }

// Topology asks the server what it is; the answer is remembered until [Store.Forget].
func (s *core) Topology(ctx context.Context) (Topology, error) {
	s.mu.Lock()
	known := s.topology
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	ctx = Outside(ctx)
	var hello struct {
		SetName  string   `bson:"setName"`
		Msg      string   `bson:"msg"`
		Primary  string   `bson:"primary"`
		Hosts    []string `bson:"hosts"`
		Passives []string `bson:"passives"`
		Arbiters []string `bson:"arbiters"`
	}
	if err := Hello(ctx, s.db, &hello); err != nil {
		if TooOld(err) {
			return Topology{}, &FatalError{Reason: "the server is too old; mscheduler requires MongoDB 4.4 or later", Err: err}
		}
		return Topology{}, explain(err, "reading the server's topology")
	}
	t := Topology{
		Sharded: hello.Msg == router, ReplicaSet: hello.SetName != "", Primary: hello.Primary,
		withData: len(hello.Hosts) + len(hello.Passives), arbiters: len(hello.Arbiters),
	}
	var build struct {
		Version  string `bson:"version"`
		Embedded bool   `bson:"mschedulerEmbedded"`
	}
	if err := s.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err == nil {
		t.Version, t.Embedded = build.Version, build.Embedded
	}
	s.mu.Lock()
	s.topology = &t
	s.mu.Unlock()
	return t, nil
}

// router is the value of the field msg in the answer of mongos.
const router = "isdbgrid"

// Primary names the reign of the server that takes writes: another name means another
// primary, or the same one elected again, or restarted. It asks each time. The name is
// empty where the server tells nothing of that, as a router, which hides the elections of
// its shards.
func (s *Store) Primary(ctx context.Context) (string, error) {
	var hello struct {
		Msg      string        `bson:"msg"`
		Primary  string        `bson:"primary"`
		Election bson.ObjectID `bson:"electionId"`
		Topology struct {
			Process bson.ObjectID `bson:"processId"`
		} `bson:"topologyVersion"`
	}
	if err := Hello(Outside(ctx), s.db, &hello); err != nil {
		return "", explain(err, "finding the primary")
	}
	if hello.Msg == router || hello.Primary == "" && hello.Election.IsZero() && hello.Topology.Process.IsZero() {
		return "", nil
	}
	term := hello.Primary
	if !hello.Election.IsZero() { // the same for all clients, which may reach the server by different addresses
		term = hello.Election.Hex()
	}
	return term + " " + hello.Topology.Process.Hex(), nil
}

// Hello decodes into answer what the server says of itself. MongoDB 4.4.0 and 4.4.1 do not
// know the command by that name yet.
func Hello(ctx context.Context, db *mongo.Database, answer any) error {
	return hello(func(command string) *mongo.SingleResult {
		return db.RunCommand(ctx, bson.D{{Key: command, Value: 1}})
	}, answer)
}

// ServerTime asks the server that takes writes for its time, without writing. A router would tell its
// own. There a write asks for the time, unless one has a moment ago; if writes are refused, or the database is not set
// up, it is the router's after all.
func (s *Store) ServerTime(ctx context.Context) (time.Time, error) {
	if t, err := s.Topology(ctx); err == nil && t.Sharded {
		if _, ours, err := s.schema(ctx); err == nil && ours && s.FreshClock(ctx) == nil {
			return s.Clock.Now(), nil
		}
	}
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	if err := Hello(ctx, s.db, &hello); err != nil {
		return time.Time{}, explain(err, "reading the database's time")
	}
	if hello.LocalTime.IsZero() {
		return s.local.Now(), nil
	}
	return hello.LocalTime, nil
}

func hello(run func(command string) *mongo.SingleResult, answer any) error {
	res := run("hello")
	var unknown mongo.CommandError
	if errors.As(res.Err(), &unknown) && unknown.Code == commandNotFound {
		res = run("isMaster")
	}
	return res.Decode(answer)
}

// Forget drops what was learned about the deployment: after an outage it may have a
// new primary, or be another one.
func (s *Store) Forget() {
	s.mu.Lock()
	s.topology = nil
	s.mu.Unlock()
}

// TooOld says whether the error is the driver's refusal of a server older than MongoDB
// 4.4. It has no type for that, so its words have to do.
func TooOld(err error) bool { return strings.Contains(err.Error(), "reports wire version") }

// ms is a duration in whole milliseconds, at least one, as maxTimeMS wants it.
func ms(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
