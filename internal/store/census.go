package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// A census counts what all processes together have: tasks, permits, flows. To count is expensive, so
// one process counts for all, and keeps the answer in one small document (package census). Each count
// walks keys of one index, at most [MostCounted] of them and for at most countTime. Behind a router
// the counts are right while chunks move, since they are aggregations.

const (
	// MostCounted is the greatest number that a count tells: there may be more.
	MostCounted = 100_000
	countTime   = time.Second
	// censusTime is how long a census begins new counts.
	censusTime = 5 * time.Second
	// forgetAfter is how long a type is listed after its last task, and a scene after its last stream. What
	// comes and goes should not lose its time series each time.
	forgetAfter = 24 * time.Hour
	// ClockSlack is by how much a time of the database may be ahead of what a process takes for the present. What is
	// further ahead was written before the database's clock was set back.
	ClockSlack = 5 * time.Second
	// lapseGrace is how long a lapsed lease may wait for a worker without being counted.
	lapseGrace = 10 * time.Second
)

// Census is what was counted. Where a count took too long, it has the number of the census before, and
// Complete is false. Types and scenes take turns: those that no census had time for the longest come first.
type Census struct {
	At       time.Time     `bson:"at"` // when it began
	Took     time.Duration `bson:"took_ms"`
	Complete bool          `bson:"complete"`
	Round    int64         `bson:"round"` // one more than that of the census before

	Types   []TypeCensus `bson:"types"`   // at most [measure.Most], and one more named [measure.Other]
	Lapsed  Backlog      `bson:"lapsed"`  // tasks whose lease lapsed a while ago
	Outbox  Backlog      `bson:"outbox"`  // ended tasks of which something must follow
	Archive Backlog      `bson:"archive"` // ended tasks that are to move to the history now
	Rules   Backlog      `bson:"rules"`   // periodic rules that are online, and the earliest next tick
	Planned []Planned    `bson:"planned"` // decided and not seen to be carried out

	FlowsRunning Backlog `bson:"flows_running"`
	FlowsPending Backlog `bson:"flows_pending"`
	NodesPending Backlog `bson:"nodes_pending"` // a person must decide
	PlansRunning Backlog `bson:"plans_running"`
	PlansError   Backlog `bson:"plans_error"`

	Scenes []SceneCensus `bson:"scenes"` // of streams: at most [measure.Most], and one more named [measure.Other]

	// Where the searches for other types and scenes go on: by due tasks, by open executions, by streams.
	DueFrom    string `bson:"due_from,omitempty"`
	LapseFrom  string `bson:"lapse_from,omitempty"`
	ScenesFrom string `bson:"scenes_from,omitempty"`

	Workers     []WorkerCensus `bson:"workers"`
	Seats       int            `bson:"seats"` // change streams of the workers
	PausedAll   bool           `bson:"paused_all"`
	PausedTypes int            `bson:"paused_types"`
}

// Backlog is a number of documents, and the earliest of their times; zero where there is none.
type Backlog struct {
	N      int64     `bson:"n"`
	Oldest time.Time `bson:"oldest,omitempty"`
}

// The numbers of a type, as [TypeCensus.Uncounted] names them.
const (
	CountDue     = "due"
	CountDelayed = "delayed"
	CountRunning = "running"
)

// TypeCensus is what was counted of the tasks of a type.
type TypeCensus struct {
	Type    string    `bson:"type"`
	Due     Backlog   `bson:"due"`     // may be claimed now
	Delayed int64     `bson:"delayed"` // may be claimed later: delays, retries
	Running int64     `bson:"running"` // have an open execution
	SeenAt  time.Time `bson:"seen_at"` // when there was one the last time
	Round   int64     `bson:"round"`   // of the last census that had time for it

	// Uncounted are the numbers that are 0 because no census has had the time to count them.
	Uncounted []string `bson:"uncounted,omitempty"`

	Permits    int64 `bson:"permits"`     // taken of the type as a whole
	MaxRunning int   `bson:"max_running"` // how many there are; 0 = the type has none
}

// Counted says whether the number of that name was counted, now or by a census before.
func (t *TypeCensus) Counted(name string) bool { return !slices.Contains(t.Uncounted, name) }

// Planned is what waits to be carried out, of one kind of document.
type Planned struct {
	Kind    string  `bson:"kind"`
	Backlog Backlog `bson:"backlog"`
}

// WorkerCensus is what live workers say of themselves that get their events in the same way.
type WorkerCensus struct {
	Stream  string `bson:"_id"` // off, watching, polling
	N       int64  `bson:"n"`
	Slots   int64  `bson:"slots"`
	Running int64  `bson:"running"`
}

const censusID = "census"

// ReadCensus reads the last census; the zero Census where there is none. Index: _id.
func (s *Store) ReadCensus(ctx context.Context) (Census, error) {
	c, _, err := readOne[Census](ctx, s.control, "reading the census", bson.D{d("_id", censusID)})
	return c, err
}

// KeepCensus stores a census, unless there is a later one. One of the future is none, see [ClockSlack]. Index: _id.
func (s *Store) KeepCensus(ctx context.Context, c Census) error {
	set, err := replaced(&c)
	if err != nil {
		return explain(err, "encoding the census")
	}
	later := bson.D{d("$gt", c.At), d("$lte", s.Clock.Now().Add(ClockSlack))}
	_, err = s.control.UpdateOne(ctx, append(bson.D{d("_id", censusID)}, isNot("at", later)...), set, options.UpdateOne().SetUpsert(true))
	if IsDuplicate(err) {
		return nil
	}
	return explain(err, "writing the census")
}

// census is one in the making.
type census struct {
	s     *Store
	last  Census
	until time.Duration // monotonic
	turns []turn
	cut   bool // something was not counted because no time was left
	Census
}

// TakeCensus counts. last is the census before.
func (s *Store) TakeCensus(ctx context.Context, last Census) (Census, error) {
	began := s.local.Monotonic()
	c := census{s: s, last: last, until: began + censusTime, Census: Census{At: s.Clock.Now(), Complete: true, Round: last.Round + 1}}
	// There may be many types and scenes: they come last, so that time is left for all else.
	for _, count := range []func(context.Context) error{c.backlogs, c.planners, c.fleet, c.ofTypes, c.ofScenes, c.takeTurns} {
		if err := count(ctx); err != nil {
			return Census{}, err
		}
	}
	c.Took = s.local.Monotonic() - began
	return c.Census, nil
}

// count is counted; what takes too long has the number of the last census.
func (c *census) count(ctx context.Context, coll *mongo.Collection, index, at string, filter bson.D, last Backlog, also ...bson.D) (Backlog, error) {
	b, ok, err := c.counted(ctx, coll, index, at, filter, also...)
	if err == nil && !ok {
		b = last
	}
	return b, err
}

// counted counts the documents that the filter finds by that index. at is the field with their time. Filters that the index
// cannot answer are in also: it examines at most [MostCounted] documents by them. ok is false if that takes too long.
func (c *census) counted(ctx context.Context, coll *mongo.Collection, index, at string, filter bson.D, also ...bson.D) (b Backlog, ok bool, err error) {
	stages := mongo.Pipeline{{d("$match", filter)}, {d("$limit", MostCounted)}}
	for _, f := range also {
		stages = append(stages, bson.D{d("$match", f)})
	}
	found, ok, err := inTime[Backlog](ctx, c, coll, index, append(stages,
		bson.D{d("$group", bson.D{d("_id", nil), d("n", bson.D{d("$sum", 1)}), d("oldest", bson.D{d("$min", "$"+at)})})}))
	if len(found) > 0 {
		b = found[0]
	}
	return b, ok, err
}

// inTime is what an aggregation by that index finds. ok is false if it takes too long; then the census is not
// complete.
func inTime[T any](ctx context.Context, c *census, coll *mongo.Collection, index string, pipeline mongo.Pipeline) (found []T, ok bool, err error) {
	if c.over() {
		return nil, false, nil
	}
	// The driver sends no time limit with an aggregation, and the server would go on with one that nobody awaits.
	call, cancel := context.WithTimeout(ctx, 2*countTime)
	defer cancel()
	limited := ownTimeLimit{call}
	cur, err := c.s.db.RunCommandCursor(limited, bson.D{
		d("aggregate", coll.Name()), d("pipeline", pipeline), d("hint", index), d("cursor", bson.D{}), d("maxTimeMS", ms(countTime)),
	})
	if err == nil {
		err = cur.All(limited, &found)
	}
	err = timeUp(limited, err)
	if ctx.Err() == nil && (isTimeLimit(err) || errors.Is(err, context.DeadlineExceeded)) {
		c.Complete = false
		return nil, false, nil
	}
	return found, err == nil, explain(err, "counting by the index "+index)
}

var sinceEver = bson.D{d("$gt", time.UnixMilli(0))}

// ofTypes has the tasks counted when their types have their turns. Indexes: due, lapse, of.
func (c *census) ofTypes(ctx context.Context) error {
	stored, _, err := c.s.Types.List(ctx)
	if err != nil {
		return err
	}
	names, err := c.names(ctx, stored)
	if err != nil {
		return err
	}
	all := len(names) < measure.Most
	if !all { // a type of that name is counted among the others
		names = slices.DeleteFunc(names, func(name string) bool { return name == measure.Other })
	}
	permits, err := c.permitsOf(ctx, stored, names)
	if err != nil {
		return err
	}
	c.Types = make([]TypeCensus, len(names), len(names)+1)
	for i, name := range names {
		t := c.lastOfType(name)
		t.Permits, t.MaxRunning = permits[name], 0
		if i := slices.IndexFunc(stored, func(t *model.TaskType) bool { return t.Code == name }); i >= 0 {
			t.MaxRunning = stored[i].MaxRunning
		}
		c.Types[i] = t
		c.typeInTurn(&c.Types[i], bson.D{d("type", name)})
	}
	if !all {
		c.Types = append(c.Types, c.lastOfType(measure.Other))
		c.typeInTurn(&c.Types[len(names)], bson.D{d("type", bson.D{d("$nin", append(names, sentinelID))})})
	}
	return nil
}

// lastOfType is a type as the last census has it.
func (c *census) lastOfType(name string) TypeCensus {
	if i := slices.IndexFunc(c.last.Types, func(t TypeCensus) bool { return t.Type == name }); i >= 0 {
		t := c.last.Types[i]
		t.Uncounted = slices.Clone(t.Uncounted)
		return t
	}
	return TypeCensus{Type: name, SeenAt: c.At, Uncounted: []string{CountDue, CountDelayed, CountRunning}}
}

func (c *census) typeInTurn(t *TypeCensus, filter bson.D) {
	c.turns = append(c.turns, turn{&t.Round, func(ctx context.Context) error { return c.ofType(ctx, t, filter) }})
}

// names are the types to count, sorted: those of the last census, and new ones while there is room. If there is no time
// to look for all types, the next census goes on there.
// Indexes: due, lapse.
func (c *census) names(ctx context.Context, stored []*model.TaskType) ([]string, error) {
	var names []string
	for _, t := range c.last.Types {
		if t.Type != measure.Other && c.At.Sub(t.SeenAt) < forgetAfter {
			names = append(names, t.Type)
		}
	}
	add := func(name string) {
		if len(names) < measure.Most && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	over := c.looking()
	for _, ix := range []struct {
		index, field, from string
		next               *string
	}{{IndexDue, "due_at", c.last.DueFrom, &c.DueFrom}, {IndexLapse, "lapse_at", c.last.LapseFrom, &c.LapseFrom}} {
		for from := ix.from; len(names) < measure.Most; {
			if over() {
				*ix.next = from
				break
			}
			name, err := c.s.Tasks.nextType(ctx, ix.index, ix.field, from)
			if err != nil {
				return nil, err
			}
			if name == "" {
				break
			}
			add(name)
			from = name + "\x00" // follows it, and no type
		}
	}
	for _, t := range stored {
		add(t.Code)
	}
	served, err := c.served(ctx)
	for _, name := range served {
		add(name)
	}
	slices.Sort(names)
	return names, err
}

// served are the types that live workers have handlers for. Index: heartbeat of workers.
func (c *census) served(ctx context.Context) (names []string, err error) {
	handling := append(c.alive(), d("concurrency", bson.D{d("$gt", 0)})) // engines are listed, too
	// The command distinct is no part of MongoDB's Stable API.
	type served struct {
		Type string `bson:"_id"`
	}
	found, _, err := inTime[served](ctx, c, c.s.workers, "heartbeat", mongo.Pipeline{
		{d("$match", handling)}, {d("$unwind", "$types")}, {d("$group", bson.D{d("_id", "$types")})}, {d("$sort", fields("_id"))},
	})
	for _, t := range found {
		names = append(names, t.Type)
	}
	return names, err
}

// alive selects the live workers.
func (c *census) alive() bson.D {
	return bson.D{d("heartbeat_at", bson.D{d("$gt", c.At.Add(-3*HeartbeatInterval))})}
}

// ofType counts the tasks of a type, or of all others. A number that takes too long to count stays that of the last
// census.
func (c *census) ofType(ctx context.Context, t *TypeCensus, filter bson.D) error {
	delayed, running := Backlog{N: t.Delayed}, Backlog{N: t.Running}
	for _, n := range []struct {
		name      string
		to        *Backlog
		index, at string
		is        bson.D
	}{
		{CountDue, &t.Due, IndexDue, "due_at", bson.D{d("$lte", c.At)}},
		{CountDelayed, &delayed, IndexDue, "due_at", bson.D{d("$gt", c.At)}},
		{CountRunning, &running, IndexLapse, "lapse_at", sinceEver},
	} {
		b, ok, err := c.counted(ctx, c.s.tasks, n.index, n.at, append(slices.Clone(filter), d(n.at, n.is)))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if *n.to = b; n.to == &t.Due && b.N == MostCounted {
			if err := c.oldestDue(ctx, t); err != nil {
				return err
			}
		}
		t.Uncounted = slices.DeleteFunc(t.Uncounted, func(name string) bool { return name == n.name })
	}
	t.Delayed, t.Running = delayed.N, running.N
	if t.Due.N+t.Delayed+t.Running > 0 {
		t.SeenAt = c.At
	}
	return nil
}

// oldestDue finds the oldest due task of a type that has too many: they were not counted in the order of their times.
func (c *census) oldestDue(ctx context.Context, t *TypeCensus) error {
	oldest, there, err := readOne[Next](ctx, c.s.tasks, "finding the oldest due task", dueOfType(t.Type, c.At),
		options.FindOne().SetSort(fields("due_at")).SetHint(IndexDue).SetProjection(bson.D{d("_id", 0), d("due_at", 1)}))
	if there && oldest.DueAt.Before(t.Due.Oldest) {
		t.Due.Oldest = oldest.DueAt
	}
	return err
}

// permitsOf counts the permits that are taken of types as a whole. Index: of.
func (c *census) permitsOf(ctx context.Context, stored []*model.TaskType, names []string) (map[string]int64, error) {
	var limited []string
	for _, t := range stored {
		if t.MaxRunning > 0 && slices.Contains(names, t.Code) {
			limited = append(limited, t.Code)
		}
	}
	if len(limited) == 0 {
		return nil, nil
	}
	type taken struct {
		Type string `bson:"_id"`
		N    int64  `bson:"n"`
	}
	found, err := grouped[taken](ctx, c.s.permits, "counting permits", bson.D{d("type", in(limited)), d("key", "")}, "$type", bson.D{d("n", bson.D{d("$sum", 1)})})
	out := map[string]int64{}
	for _, t := range found {
		out[t.Type] = t.N
	}
	return out, err
}

// grouped reads one document for each value of an expression.
func grouped[T any](ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, by string, sums bson.D) ([]T, error) {
	return aggregated[T](ctx, coll, doing, mongo.Pipeline{{d("$match", filter)}, {d("$group", append(bson.D{d("_id", by)}, sums...))}, {d("$sort", fields("_id"))}})
}

// backlogs counts what waits for upkeep. Indexes: lapse, outbox of both collections, archive.
func (c *census) backlogs(ctx context.Context) (err error) {
	until := bson.D{d("$lte", c.At)}
	if c.Lapsed, err = c.count(ctx, c.s.tasks, IndexLapse, "lapse_at", bson.D{present, d("lapse_at", bson.D{d("$lte", c.At.Add(-lapseGrace))})}, c.last.Lapsed); err != nil {
		return err
	}
	if c.Archive, err = c.count(ctx, c.s.tasks, IndexArchive, "archive_at", bson.D{d("archive_at", until)}, c.last.Archive); err != nil {
		return err
	}
	for _, coll := range []*mongo.Collection{c.s.tasks, c.s.history} {
		b, ok, err := c.counted(ctx, coll, IndexOutbox, "outbox_at", bson.D{d("outbox_at", until)})
		if err != nil {
			return err
		}
		if !ok { // what one of them has is not known apart
			c.Outbox = c.last.Outbox
			return nil
		}
		c.Outbox.N += b.N
		if c.Outbox.Oldest.IsZero() || !b.Oldest.IsZero() && b.Oldest.Before(c.Outbox.Oldest) {
			c.Outbox.Oldest = b.Oldest
		}
	}
	return nil
}

// planners counts rules, flows, plans, and the nodes that a person must decide: it reads the records of PENDING ones.
// Indexes: fire, planned, state.
func (c *census) planners(ctx context.Context) (err error) {
	of := func(status string) bson.D { return bson.D{d("status", status)} }
	people := bson.D{d("reason", bson.D{d("$not", bson.Regex{Pattern: "^" + lifecycle.BlockedBy})})}
	for _, n := range []struct {
		to, last  *Backlog
		coll      *mongo.Collection
		index, at string
		filter    bson.D
		also      []bson.D
	}{
		{&c.Rules, &c.last.Rules, c.s.rules, indexFire, "next_fire_at", bson.D{d("next_fire_at", sinceEver)}, nil},
		{&c.FlowsRunning, &c.last.FlowsRunning, c.s.flows, indexState, "updated_at", of(string(graph.StatusRunning)), nil},
		{&c.FlowsPending, &c.last.FlowsPending, c.s.flows, indexState, "updated_at", of(string(graph.StatusPending)), nil},
		{&c.NodesPending, &c.last.NodesPending, c.s.flowNodes, indexState, "at", of(string(graph.NodePending)), []bson.D{people}},
		{&c.PlansRunning, &c.last.PlansRunning, c.s.plans, indexState, "updated_at", of(string(repeat.StatusRunning)), nil},
		{&c.PlansError, &c.last.PlansError, c.s.plans, indexState, "updated_at", of(string(repeat.StatusError)), nil},
	} {
		if *n.to, err = c.count(ctx, n.coll, n.index, n.at, n.filter, *n.last, n.also...); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		kind string
		coll *mongo.Collection
	}{{"periodic", c.s.rules}, {"flow", c.s.flows}, {"plan", c.s.plans}} {
		var last Backlog
		if i := slices.IndexFunc(c.last.Planned, func(l Planned) bool { return l.Kind == p.kind }); i >= 0 {
			last = c.last.Planned[i].Backlog
		}
		b, err := c.count(ctx, p.coll, indexPlanned, "planned_at", bson.D{d("planned_at", sinceEver)}, last)
		if err != nil {
			return err
		}
		c.Planned = append(c.Planned, Planned{p.kind, b})
	}
	return nil
}

// fleet counts workers, seats and pauses. Indexes: heartbeat of workers, _id of seats and control.
func (c *census) fleet(ctx context.Context) (err error) {
	sum := func(field string) bson.D { return bson.D{d("$sum", field)} }
	if c.Workers, err = grouped[WorkerCensus](ctx, c.s.workers, "counting workers", c.alive(), "$stream", bson.D{d("n", bson.D{d("$sum", 1)}), d("slots", sum("$concurrency")), d("running", sum("$running"))}); err != nil {
		return err
	}
	if c.Seats, err = c.s.Seats.taken(ctx); err != nil {
		return err
	}
	control, err := c.s.Control.Read(ctx)
	c.PausedAll, c.PausedTypes = control.PausedAll, len(control.PausedTypes)
	return err
}
