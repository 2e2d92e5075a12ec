package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// SchemaVersion is the version this release writes; it can work on any database whose
// min_reader is at most that.
const (
	SchemaVersion = 10
	minReader     = 4 // an older release would keep permits in another collection
)

// Index names: every query of the package names the one that serves it.
const (
	IndexDue     = "due"     // {type, audience, priority: -1, due_at} where due_at exists
	IndexLapse   = "lapse"   // {type, lapse_at} where lapse_at exists
	IndexArchive = "archive" // {archive_at} where it exists
	IndexOutbox  = "outbox"  // {outbox_at} where it exists; of the history, too
	IndexExpire  = "expire"  // {expire_at} where it exists
	indexTask    = "task"    // {task_id, generation} of the history
	indexLook    = "look"    // {look_at} of permits
	indexOf      = "of"      // {type, key} of permits
	indexRule    = "rule"    // {rule_id, nominal: -1, _id: -1} of periodic_runs
	indexStatus  = "status"  // {status, nominal: -1, _id: -1} of periodic_runs

	indexCreated = "created" // {created_at, _id} of tokens

	// Of the tasks that have ended without success: {status, _id} and {status, type, _id}, of those
	// with the one status.
	indexPending     = "pending"
	indexPendingType = "pending_type"
	indexFailure     = "failure"
	indexFailureType = "failure_type"

	// Of audit, by the field of that name and _id: -1.
	indexWho       = "who"
	indexOperation = "operation"
	indexResource  = "resource" // where it exists
	indexTenant    = "tenant"   // where it exists
)

type indexSpec struct {
	coll string // without prefix
	name string
	keys bson.D
	// only: the field whose existence makes a document part of the index.
	only string
	// status: the status that makes a task part of the index; "" = any.
	status model.Status
	ttl    time.Duration // documents go that long after the time of the key
	gone   bool          // documents go at the time of the key

	unique bool
}

// indexes are all of them. Waiting and executing tasks lie in different ones on
// purpose: one index over both makes every fetch walk the deleted keys of the last
// leases (measured, see docs/decisions.md).
var indexes = []indexSpec{
	{coll: "tasks", name: IndexDue, keys: bson.D{d("type", 1), d("audience", 1), d("priority", -1), d("due_at", 1)}, only: "due_at"},
	{coll: "tasks", name: IndexLapse, keys: fields("type", "lapse_at"), only: "lapse_at"},
	{coll: "tasks", name: IndexArchive, keys: fields("archive_at"), only: "archive_at"},
	{coll: "tasks", name: IndexOutbox, keys: fields("outbox_at"), only: "outbox_at"},
	{coll: "tasks", name: IndexExpire, keys: fields("expire_at"), only: "expire_at"},
	// Up to MongoDB 4.4 a collection has one index for a pattern of keys, so those of the one status ascend
	// and those of the other descend: both are read either way.
	{coll: "tasks", name: indexPending, keys: fields("status", "_id"), status: model.StatusPending},
	{coll: "tasks", name: indexPendingType, keys: fields("status", "type", "_id"), status: model.StatusPending},
	{coll: "tasks", name: indexFailure, keys: bson.D{d("status", 1), d("_id", -1)}, status: model.StatusFailure},
	{coll: "tasks", name: indexFailureType, keys: bson.D{d("status", 1), d("type", 1), d("_id", -1)}, status: model.StatusFailure},
	{coll: "task_history", name: indexTask, keys: fields("task_id", "generation")},
	{coll: "task_history", name: IndexOutbox, keys: fields("outbox_at"), only: "outbox_at"},
	{coll: "task_history", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "periodic_rules", name: indexLiving, keys: fields("living"), only: "living", unique: true},
	{coll: "periodic_rules", name: indexFire, keys: fields("next_fire_at"), only: "next_fire_at"},
	{coll: "periodic_rules", name: indexPlanned, keys: fields("planned_at"), only: "planned_at"},
	{coll: "periodic_rules", name: IndexQueue, keys: fields("queued_at"), only: "queued_at"},
	{coll: "periodic_runs", name: indexRule, keys: bson.D{d("rule_id", 1), d("nominal", -1), d("_id", -1)}},
	{coll: "periodic_runs", name: indexStatus, keys: bson.D{d("status", 1), d("nominal", -1), d("_id", -1)}},
	{coll: "periodic_runs", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "flows", name: indexPlanned, keys: fields("planned_at"), only: "planned_at"},
	{coll: "flows", name: indexRunning, keys: fields("running_at"), only: "running_at"},
	{coll: "flows", name: indexState, keys: bson.D{d("status", 1), d("updated_at", -1), d("_id", -1)}},
	{coll: "flows", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "flows", name: indexDueFlow, keys: fields("due_at"), only: "due_at"},
	{coll: "flows", name: indexKind, keys: fields("kind", "_id"), only: "kind"},
	{coll: "flow_nodes", name: indexFlow, keys: fields("flow_id")},
	{coll: "flow_nodes", name: indexLink, keys: fields("flow_id", "no"), only: "no"},
	{coll: "flow_nodes", name: indexChain, keys: fields("flow_id", "position"), only: "position"},
	{coll: "flow_nodes", name: indexState, keys: bson.D{d("status", 1), d("at", -1), d("_id", -1)}},
	{coll: "flow_nodes", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "plans", name: indexPlanned, keys: fields("planned_at"), only: "planned_at"},
	{coll: "plans", name: indexLookPlan, keys: fields("look_at"), only: "look_at"},
	{coll: "plans", name: indexLate, keys: fields("status", "plan_time", "_id")},
	{coll: "plans", name: indexState, keys: bson.D{d("status", 1), d("updated_at", -1), d("_id", -1)}},
	{coll: "plans", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "plan_history", name: indexState, keys: bson.D{d("status", 1), d("updated_at", -1), d("_id", -1)}},
	{coll: "plan_history", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "plan_results", name: indexPlan, keys: fields("plan", "at", "_id")},
	{coll: "plan_results", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "tokens", name: indexCreated, keys: fields("created_at", "_id")},
	{coll: "tokens", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "answers", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "audit", name: indexWho, keys: bson.D{d("who", 1), d("_id", -1)}},
	{coll: "audit", name: indexOperation, keys: bson.D{d("operation", 1), d("_id", -1)}},
	{coll: "audit", name: indexResource, keys: bson.D{d("resource", 1), d("_id", -1)}, only: "resource"},
	{coll: "audit", name: indexTenant, keys: bson.D{d("tenant", 1), d("_id", -1)}, only: "tenant"},
	{coll: "audit", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "series", name: "delete", keys: fields("delete_at"), gone: true},
	{coll: "permits", name: indexOf, keys: fields("type", "key"), only: "type"},
	{coll: "permits", name: indexLook, keys: fields("look_at"), only: "look_at"},
	{coll: "permits", name: "task", keys: fields("task"), only: "task"},
	{coll: "permits", name: "next", keys: fields("next.task"), only: "next.task"},
	{coll: "rates", name: "at", keys: fields("at"), ttl: rateKept},
	{coll: "workers", name: "heartbeat", keys: fields("heartbeat_at"), ttl: 24 * time.Hour},
	{coll: "signals", name: "at", keys: fields("at"), ttl: 10 * time.Minute},
}

// IndexDef describes one index of the schema.
type IndexDef struct {
	Name string
	Keys bson.D
	// Holds reports whether a document is part of the index.
	Holds func(doc bson.Raw) bool
}

// Indexes describes the indexes of a collection, without prefix, that of _id first.
func Indexes(collection string) []IndexDef {
	all := []IndexDef{{Name: "_id", Keys: fields("_id"), Holds: func(bson.Raw) bool { return true }}}
	for _, ix := range indexes {
		if ix.coll != collection {
			continue
		}
		all = append(all, IndexDef{ix.name, ix.keys, func(doc bson.Raw) bool {
			_, err := doc.LookupErr(ix.only)
			status, _ := doc.Lookup("status").StringValueOK()
			return (ix.only == "" || err == nil) && (ix.status == "" || status == string(ix.status))
		}})
	}
	return all
}

type schemaDoc struct {
	ID        string    `bson:"_id"`
	Version   int       `bson:"version"`
	MinReader int       `bson:"min_reader"`
	UpdatedAt time.Time `bson:"updated_at"`
}

// SchemaStatus says how far a database is from this release.
type SchemaStatus struct {
	Version   int      // 0 = not set up
	MinReader int      // releases with a lower schema version must not touch the database
	Wanted    int      // of this release
	Missing   []string // indexes, as collection.name; tasks.~ is the sentinel document
	Foreign   string   // a collection with a document that mscheduler did not write; "" = there is none
}

// State says in words what a schema is good for, and whether this release can work.
func (st SchemaStatus) State() (state string, ready bool) {
	switch {
	case st.Foreign != "":
		return "mscheduler did not create its collection " + st.Foreign + ": use another database or --prefix", false
	case st.Version == 0:
		return "not set up; the first send or worker sets it up, or run: mscheduler db migrate", false
	case st.MinReader > st.Wanted:
		return fmt.Sprintf("too new: it requires a release with schema version %d or later", st.MinReader), false
	case st.Version < st.Wanted:
		return "older than this release; run: mscheduler db migrate", false
	case len(st.Missing) > 0:
		state = "indexes are missing; run: mscheduler db migrate"
		if len(st.Missing) == 1 && st.Missing[0] == SentinelName {
			state = "the sentinel document of the tasks is missing; run: mscheduler db migrate"
		}
		if st.Version > st.Wanted {
			state += ", with the newer release"
		}
		return state, false
	case st.Version > st.Wanted:
		return "newer than this release, but compatible", true
	default:
		return "up to date", true
	}
}

func (s *core) schema(ctx context.Context) (doc schemaDoc, there bool, err error) {
	return readOne[schemaDoc](ctx, s.meta, "reading the schema version", bson.D{d("_id", "schema")})
}

// Schema reads the state of the schema.
func (s *Store) Schema(ctx context.Context) (SchemaStatus, error) {
	st := SchemaStatus{Wanted: SchemaVersion}
	doc, there, err := s.schema(ctx)
	if err == nil && !there {
		st.Foreign, err = s.foreign(ctx, func(string) bool { return true })
	}
	if err == nil && st.Foreign != "" { // or another process has set the database up since, and used it
		if doc, there, err = s.schema(ctx); there {
			st.Foreign = ""
		}
	}
	if err != nil {
		return st, err
	}
	st.Version, st.MinReader = doc.Version, doc.MinReader
	have := map[string]bool{}
	colls := map[string]bool{}
	for _, ix := range indexes {
		colls[ix.coll] = true
	}
	for coll := range colls {
		specs, err := s.db.Collection(s.prefix + coll).Indexes().ListSpecifications(ctx)
		if err != nil {
			return st, explain(err, "listing the indexes of "+coll)
		}
		for _, spec := range specs {
			have[coll+"."+spec.Name] = true
		}
	}
	added := maps.Clone(colls) // without an index of ours: to this release they are new
	for _, ix := range indexes {
		if have[ix.coll+"."+ix.name] {
			delete(added, ix.coll)
		} else {
			st.Missing = append(st.Missing, ix.coll+"."+ix.name)
		}
	}
	if 0 < st.Version && st.Version < st.Wanted {
		delete(added, "tasks") // each schema has it; a restore may have made no indexes
		if st.Foreign, err = s.foreign(ctx, func(coll string) bool { return added[coll] }); err != nil {
			return st, err
		}
	}
	if there, err := s.hasSentinel(ctx); err != nil {
		return st, err
	} else if !there {
		st.Missing = append(st.Missing, SentinelName)
	}
	return st, nil
}

// Migrate brings the schema to this release's version. It may run any number of times
// and in several processes at once; a newer schema is left alone.
func (s *Store) Migrate(ctx context.Context) (SchemaStatus, error) {
	if _, err := s.Topology(ctx); err != nil {
		return SchemaStatus{}, err
	}
	st, err := s.Schema(ctx)
	if err != nil {
		return st, err
	}
	switch {
	case st.Foreign != "":
		return st, &FatalError{Reason: fmt.Sprintf("the collection %s.%s contains documents that mscheduler did not write; use another database or a prefix",
			s.db.Name(), st.Foreign)}
	case st.Version > SchemaVersion:
		return st, s.compatible(st)
	}
	if st.Version > 0 && st.Version < 4 {
		if err := s.movePermits(ctx); err != nil {
			return st, err
		}
	}
	for _, of := range byCollection(indexes) {
		coll := s.db.Collection(s.prefix + of[0].coll)
		if err := s.createIndexes(ctx, coll, models(of)...); err != nil {
			return st, explain(err, "creating the indexes of "+of[0].coll)
		}
	}
	if slices.Contains(st.Missing, SentinelName) {
		if err := s.putSentinel(ctx); err != nil {
			return st, err
		}
	}
	// Last: who sees the version may rely on the indexes. $max, so that a release that
	// migrates further at the same moment wins.
	err = upsert(ctx, s.meta, "writing the schema version", "schema", bson.D{
		d("$max", bson.D{d("version", SchemaVersion), d("min_reader", minReader)}), d("$currentDate", bson.D{d("updated_at", true)}),
	})
	if err != nil {
		return st, err
	}
	return s.Schema(ctx)
}

// byCollection groups the specs, which lie together by collection: a collection with documents is then
// read once for all of its new indexes.
func byCollection(specs []indexSpec) (out [][]indexSpec) {
	for _, ix := range specs {
		if n := len(out); n > 0 && out[n-1][0].coll == ix.coll {
			out[n-1] = append(out[n-1], ix)
			continue
		}
		out = append(out, []indexSpec{ix})
	}
	return out
}

func models(specs []indexSpec) (out []mongo.IndexModel) {
	for _, ix := range specs {
		o := options.Index().SetName(ix.name)
		if ix.unique {
			o.SetUnique(true)
		}
		if ix.only != "" {
			o.SetPartialFilterExpression(bson.D{d(ix.only, exists)})
		}
		if ix.status != "" {
			o.SetPartialFilterExpression(bson.D{d("status", ix.status)})
		}
		if ix.ttl > 0 || ix.gone {
			o.SetExpireAfterSeconds(int32(ix.ttl.Seconds()))
		}
		out = append(out, mongo.IndexModel{Keys: ix.keys, Options: o})
	}
	return out
}

// createIndexes creates indexes, of which those that exist stay. A majority of the members decides when
// an index is ready, as it does for each write. By default all members that have data would have to agree,
// so one that is down would stop the build.
func (s *core) createIndexes(ctx context.Context, coll *mongo.Collection, models ...mongo.IndexModel) error {
	topology, err := s.Topology(ctx)
	if err != nil {
		return err
	}
	o := options.CreateIndexes()
	if topology.ReplicaSet || topology.Sharded { // a standalone server refuses a quorum
		o.SetCommitQuorumMajority()
	}
	_, err = coll.Indexes().CreateMany(ctx, models, o)
	return err
}

// movePermits brings the permits of schema 3 to their place: they were in a collection named
// slots, while permits held what is in seats and turns now. Those are leases of at most two
// minutes, which their holders take anew. A migration that was interrupted goes on here.
func (s *core) movePermits(ctx context.Context) error {
	old := s.db.Collection(s.prefix + "slots")
	docs, err := readAll[bson.Raw](ctx, old, "reading the permits of schema 3", bson.D{})
	if err != nil {
		return err
	}
	if _, err := insertNew(ctx, s, s.permits, "moving schema 3 permit", docs); err != nil {
		return err
	}
	leases := bson.D{d("_id", bson.Regex{Pattern: "^(stream|job/)"})}
	if _, err := s.permits.DeleteMany(ctx, leases); err != nil {
		return explain(err, "deleting the seats and turns of schema 3")
	}
	return explain(old.Drop(ctx), "dropping the collection slots of schema 3")
}

// foreign returns the name of a collection that has a document which mscheduler did not write; "" = there is none. It
// looks at those that are new to the database, which are given without prefix: all without the document of the schema, and
// for an older schema those that have no index. What is an application's own would get indexes that delete old documents.
func (s *core) foreign(ctx context.Context, added func(coll string) bool) (name string, err error) {
	// Of ours some come before the schema: a reading of the clock, the record of a command, a worker that starts
	// while another process sets the database up. Our ids are strings, but those of signals. The condition is a
	// range, so that it reads an index.
	others := bson.D{d("_id", bson.D{d("$not", bson.D{d("$gte", "")})})}
	filters := map[*mongo.Collection]bson.D{s.tasks: {present}}
	// Others may have ids that are strings, too. Where documents are deleted by the time in a field of a common name, a
	// field that each of ours has identifies them.
	for coll, field := range map[*mongo.Collection]string{
		s.signals: "task_ids", s.rates: "next", s.workers: "types", s.runs: "rule_id", s.flows: "rev", s.flowNodes: "flow_id",
		s.plans: "rev", s.planHistory: "rev", s.planResults: "plan", s.tokens: "hash", s.answers: "request", s.audit: "operation",
		s.series: "type", s.history: "generation",
	} {
		filters[coll] = bson.D{d(field, absent)}
	}
	for _, coll := range []*mongo.Collection{
		s.tasks, s.history, s.types, s.workers, s.control, s.signals, s.turns, s.seats, s.permits, s.rates, s.rules, s.runs,
		s.flows, s.flowNodes, s.plans, s.planHistory, s.planResults, s.tokens, s.answers, s.audit, s.series, s.meta,
	} {
		if !added(strings.TrimPrefix(coll.Name(), s.prefix)) {
			continue
		}
		filter, given := filters[coll]
		if !given {
			filter = others
		}
		some, err := finds(ctx, coll, "looking for documents of others in "+coll.Name(), filter, options.FindOne())
		if some || err != nil {
			return coll.Name(), err
		}
	}
	return "", nil
}

// compatible says whether this release may work on the database.
func (s *core) compatible(st SchemaStatus) error {
	switch {
	case st.MinReader > SchemaVersion:
		return &FatalError{Reason: fmt.Sprintf("the schema of database %s is too new: it has version %d and requires a release with schema version %d or later, but this release has %d; use a newer release of mscheduler",
			s.db.Name(), st.Version, st.MinReader, SchemaVersion)}
	case st.Version < SchemaVersion:
		return &FatalError{Reason: fmt.Sprintf("the schema of database %s has version %d, but this release requires %d; run: mscheduler db migrate",
			s.db.Name(), st.Version, SchemaVersion)}
	default:
		return nil
	}
}

// Ready checks once that the server and the schema fit this release. An empty database
// is set up; an older schema is refused with the command that migrates it.
func (s *Store) Ready(ctx context.Context) error {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	ctx = Outside(ctx)
	if _, err := s.Topology(ctx); err != nil {
		return err
	}
	doc, there, err := s.schema(ctx)
	switch {
	case err != nil:
		return err
	case there:
		err = s.compatible(SchemaStatus{Version: doc.Version, MinReader: doc.MinReader})
	default:
		_, err = s.Migrate(ctx)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	return nil
}
