package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// What an open execution writes that decides nothing: pings, checkpoints, progress.

// Ping extends one execution's lease.
type Ping struct {
	ID     string
	ExecID string
	Index  int  // of the execution in worker_states
	Many   bool // the task wants several workers
	Until  time.Time
	// Missed is set by [Tasks.Extend]: the lease is not known to be extended, because
	// somebody else holds the document, or because of the error.
	Missed bool
	held   bool // no command has waited until a majority has the lease: somebody else holds the document, or there was an error
}

// Pings is [Tasks.Extend] and [Tasks.Lost]. A final error, of one of several commands perhaps, does
// not hide what became of the others.
func (s *Tasks) Pings(ctx context.Context, pings []Ping, search time.Duration) (lost []Ping, err error) {
	unsure, err := s.Extend(ctx, pings, search)
	if err != nil && !Final(err) {
		return nil, err
	}
	lost, unread := s.Lost(ctx, unsure)
	return lost, cmp.Or(err, unread)
}

// Extend extends leases, one statement for all executions with the same new lease, and
// returns those of which it does not know whether they are extended or lost; [Tasks.Lost] tells.
// A lease is never shortened. With several workers lapse_at stays: another's lease may end before
// ours, and who finds lapse_at early repairs it. What is answered counts also where an error or
// the end of ctx came between: the others are missed. search is that of [Tasks.Writes].
// Index: _id.
func (s *Tasks) Extend(ctx context.Context, pings []Ping, search time.Duration) (unsure []*Ping, err error) {
	if len(pings) == 0 {
		return nil, nil
	}
	type key struct {
		index int
		many  bool
		until int64
	}
	groups := map[key][]Ping{}
	for _, p := range pings {
		k := key{p.Index, p.Many, p.Until.UnixMilli()}
		groups[k] = append(groups[k], p)
	}
	var statements []statement
	for _, g := range groups {
		statements = append(statements, pingStatement(g))
	}
	x, err := s.execute(ctx, statements, search)
	if x.clean && err == nil {
		return nil, nil
	}
	nothing := x.unsure == nil
	for i := range pings {
		p := &pings[i]
		p.held = x.held[p.ID] || err != nil
		if p.Missed = nothing || x.unsure[p.ID]; p.Missed {
			unsure = append(unsure, p)
		}
	}
	return unsure, err
}

// pingStatement is the statement of pings with the same index and lease.
func pingStatement(pings []Ping) statement {
	path := "worker_states." + strconv.Itoa(pings[0].Index)
	until := pings[0].Until.UnixMilli()
	var st statement
	start, u := bsoncore.AppendDocumentStart(nil)
	set, u := bsoncore.AppendDocumentElementStart(u, "$max")
	u = bsoncore.AppendDateTimeElement(u, path+".ping_expire_time", until)
	if !pings[0].Many {
		u = bsoncore.AppendDateTimeElement(u, "lapse_at", until)
	}
	u, _ = bsoncore.AppendDocumentEnd(u, set)
	st.update, _ = bsoncore.AppendDocumentEnd(u, start)
	seen := map[string]bool{}
	var execs []string
	for _, p := range pings {
		st.ids = append(st.ids, p.ID)
		if !seen[p.ExecID] {
			seen[p.ExecID] = true
			execs = append(execs, p.ExecID)
		}
	}
	// A parked execution was promised a fixed time, and the ping of its handler may arrive late.
	st.guard = func(dst []byte) []byte { return appendAbsent(appendOpen(dst, path, execs), path+".parked") }
	st.undone = func(dst []byte) []byte {
		return bsoncore.AppendDocumentElement(dst, path+".ping_expire_time", bsoncore.BuildDocument(nil, bsoncore.AppendDateTimeElement(nil, "$lt", until)))
	}
	return st
}

// appendOpen adds the condition that the execution at the path is one of ours and open.
// Not by comparing with null: worker_states.0.fail_time is also the field "0" of every
// element, which is missing and so equal to null, whatever element 0 says.
func appendOpen(dst []byte, path string, execs []string) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, path+".exec_id")
	arr, dst := bsoncore.AppendArrayElementStart(dst, "$in")
	for i, e := range execs {
		dst = bsoncore.AppendStringElement(dst, strconv.Itoa(i), e)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, arr)
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return appendAbsent(appendAbsent(dst, path+".success_time"), path+".fail_time")
}

// appendAbsent adds the condition that the document does not have the field.
func appendAbsent(dst []byte, field string) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, field)
	dst = bsoncore.AppendBooleanElement(dst, "$exists", false)
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

// Lost reads which of the executions that [Tasks.Extend] returned no longer hold their tasks, and
// takes the mark from those whose leases were extended. A task whose write was merely delayed is
// not lost: only an ended or absent execution is. Index: _id.
func (s *Tasks) Lost(ctx context.Context, missed []*Ping) ([]Ping, error) {
	if len(missed) == 0 {
		return nil, nil
	}
	var free, held []string
	for _, p := range missed {
		if p.held {
			held = append(held, p.ID)
		} else {
			free = append(free, p.ID)
		}
	}
	tasks, err := s.pinged(ctx, free)
	if err != nil {
		return nil, err
	}
	// Behind a router they may be on a shard without a primary, which must not cost the others their leases.
	short, cancel := context.WithTimeout(ctx, beforeEnd(ctx, executionTry, partShare))
	defer cancel()
	apart, err := s.pinged(short, held)
	if err != nil && len(free) == 0 {
		return nil, err
	}
	maps.Copy(tasks, apart)
	var lost []Ping
	for _, p := range missed {
		var st *model.WorkerState
		t, there := tasks[p.ID]
		if p.held && err != nil {
			continue
		}
		if there && t == nil { // it cannot be read: nothing is known
			continue
		}
		if t != nil {
			_, st = lifecycle.ExecutionOf(t, p.ExecID)
		}
		if st == nil || !lifecycle.Open(st) {
			p.Missed = false
			lost = append(lost, *p)
			continue
		}
		p.Missed = st.PingExpireTime.Before(clock.Millis(p.Until))
	}
	for _, p := range missed { // no command has waited until a majority has these leases
		p.Missed = p.Missed || p.held
	}
	return lost, nil
}

// pinged reads the executions of tasks. Index: _id.
func (s *Tasks) pinged(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	if len(ids) == 0 {
		return map[string]*model.Task{}, nil
	}
	return s.byIDs(ctx, s.tasks, "looking at pinged executions", ids, options.Find().SetProjection(fields("worker_states")))
}

// openGuard is the filter of a write by an open execution that decides nothing.
func openGuard(id string, index int, execID string) bson.D {
	path := "worker_states." + strconv.Itoa(index)
	return bson.D{d("_id", id), d(path+".exec_id", execID), d(path+".success_time", absent), d(path+".fail_time", absent)} // see appendOpen
}

// SaveCheckpoint keeps a value for whoever runs the task next; with several workers,
// for the same worker. [model.ErrFenced] when the execution is no longer open.
func (s *Tasks) SaveCheckpoint(ctx context.Context, id string, index int, execID string, many bool, v bson.RawValue) error {
	path := "checkpoint"
	if many {
		path = "worker_states." + strconv.Itoa(index) + ".checkpoint"
	}
	return s.byExecution(ctx, "saving the checkpoint of task "+id, openGuard(id, index, execID), bson.D{d("$set", bson.D{d(path, v)})})
}

// SaveProgress stores what a handler says of itself, as [Tasks.SaveCheckpoint] does.
func (s *Tasks) SaveProgress(ctx context.Context, id string, index int, execID string, p model.Progress) error {
	return s.byExecution(ctx, "saving the progress of task "+id, openGuard(id, index, execID), bson.D{d("$set", bson.D{d("progress", p)})})
}

// SaveLocalRetries stores that the n-th retry inside an execution begins, as
// [Tasks.SaveCheckpoint] does. The count never falls.
func (s *Tasks) SaveLocalRetries(ctx context.Context, id string, index int, execID string, n int) error {
	path := "worker_states." + strconv.Itoa(index) + ".local_retries"
	return s.byExecution(ctx, "counting the local retries of task "+id, openGuard(id, index, execID), bson.D{d("$max", bson.D{d(path, n)})})
}

const (
	// executionPatience is how long a handler's own write is tried again while the database
	// does not answer. The handler's context, which ends with its lease, may cut it short.
	executionPatience = 10 * time.Second
	// executionTry is how long one try may take: its connection may never answer.
	executionTry = 5 * time.Second
)

// byExecution sets what the execution says of itself. To say it twice does no harm.
func (s *Tasks) byExecution(ctx context.Context, doing string, filter, update bson.D) error {
	began := s.local.Monotonic()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		res, err := s.updateWithin(ctx, executionTry, filter, update)
		switch {
		case err == nil && res.MatchedCount == 0:
			return fmt.Errorf("%s: %w", doing, model.ErrFenced)
		case err == nil:
			return nil
		case !Unreachable(err) || ctx.Err() != nil || InTransaction(ctx) || s.local.Monotonic()-began > executionPatience:
			return explain(err, doing)
		}
		if !clock.Pause(ctx, pause) {
			return explain(err, doing)
		}
	}
}

// updateWithin updates one task within the limit. In a transaction it has no limit, because a second try could not
// repeat the transaction.
func (s *Tasks) updateWithin(ctx context.Context, limit time.Duration, filter, update bson.D) (*mongo.UpdateResult, error) {
	if InTransaction(ctx) {
		return s.tasks.UpdateOne(ctx, filter, update)
	}
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.tasks.UpdateOne(call, filter, update)
}
