package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// HeartbeatInterval is how often a process writes its workers document.
const HeartbeatInterval = 30 * time.Second

// Worker is what a process says of itself in the collection workers.
type Worker struct {
	ID          string                `bson:"_id"`
	Host        string                `bson:"host"`
	PID         int                   `bson:"pid"`
	Version     string                `bson:"version"`
	Types       []string              `bson:"types"`
	Only        *lifecycle.Conditions `bson:"only,omitempty"` // what it takes of them; nil = everything
	Concurrency int                   `bson:"concurrency"`
	Running     int                   `bson:"running"`
	Stream      string                `bson:"stream"` // off, watching, polling, pulling
	StartedAt   time.Time             `bson:"started_at"`
	HeartbeatAt time.Time             `bson:"heartbeat_at,omitempty"` // the database's clock
	// ClockError is by how many milliseconds the clock of the worker's machine was ahead of the database's at the
	// heartbeat before; negative = behind, nil = not known yet.
	ClockError *int64 `bson:"clock_error_ms,omitempty"`

	// Process tells apart the processes that write documents of one id; "" = the writer is not noted.
	Process string   `bson:"-"`
	Writers []Writer `bson:"writers,omitempty"` // of the last two heartbeats, the later one last

	Drain    *Drain `bson:"drain,omitempty"`    // what an operator has asked it for; nil = nothing
	Draining bool   `bson:"draining,omitempty"` // it has heard of that, and claims nothing
	NoDrain  bool   `bson:"no_drain,omitempty"` // it takes no such requests
}

// Writer is the process that wrote a heartbeat.
type Writer struct {
	Process string `bson:"process"`
	Host    string `bson:"host"`
	PID     int    `bson:"pid"`
}

// SharedBy returns another process that uses the id of the worker: it wrote the heartbeat before the last one.
// nil = none is known. A process that has replaced another shares its id with nobody.
func (w *Worker) SharedBy() *Writer {
	if n := len(w.Writers); n > 1 && w.Writers[n-2].Process != w.Writers[n-1].Process {
		return &w.Writers[n-2]
	}
	return nil
}

// Drain asks a worker to claim nothing more and to finish what it holds. It is for one process: it ends with that, and
// one that starts under the same id works.
type Drain struct {
	Stop bool      `bson:"stop,omitempty"` // and then to stop
	Note string    `bson:"note,omitempty"` // why
	By   string    `bson:"by,omitempty"`
	At   time.Time `bson:"at"`
}

// ErrNoWorker says that no worker of an id was heard of within a day.
var ErrNoWorker = missing("no such worker")

// WorkerRefusedError says why a worker cannot be drained.
type WorkerRefusedError struct{ ID, Reason string }

func (e *WorkerRefusedError) Error() string { return "the worker " + e.ID + " " + e.Reason }

// Alive says whether the worker was heard of lately: within three heartbeats.
func (w *Worker) Alive(now time.Time) bool {
	return now.Sub(w.HeartbeatAt) < silence
}

// silence is how long nothing is heard of a worker until it counts as dead.
const silence = 3 * HeartbeatInterval

// Pulling is the Stream of a worker that fetches by package pull. The process that answers it writes its
// document, with what it fetches. If it fetches all types of its categories, it has no Types.
const Pulling = "pulling"

// Serves reports whether the worker claims tasks of the type.
func (w *Worker) Serves(typ string) bool {
	if w.Stream == Pulling && len(w.Types) == 0 {
		return !input.OwnType(typ)
	}
	return slices.Contains(w.Types, typ)
}

// Takes reports whether the worker claims tasks like that one, if it is alive.
func (w *Worker) Takes(t *model.Task) bool {
	return !w.Draining && w.Serves(t.Type) && lifecycle.ConditionsMet(w.Only, t) && !lifecycle.MustStop(t, w.ID)
}

// Pulls writes the document of a worker that pulls: what it fetches, and that it is alive. If a live worker of
// another kind has the id, its document stays as it is. Index: _id.
func (s *Workers) Pulls(ctx context.Context, id string, types []string, only *lifecycle.Conditions) error {
	set := bson.D{d("types", append([]string{}, types...)), d("concurrency", 0), d("running", 0), d("stream", Pulling), d("no_drain", true)}
	var unset bson.D
	for _, field := range []string{"host", "pid", "version", "started_at", "clock_error_ms", "writers", "drain", "draining"} {
		unset = append(unset, d(field, ""))
	}
	setOrUnset(&set, &unset, only != nil, "only", only)
	mine := bson.A{bson.D{d("stream", Pulling)}, bson.D{d("heartbeat_at", bson.D{d("$lte", s.Clock.Now().Add(-silence))})}}
	_, err := s.workers.UpdateOne(ctx, bson.D{d("_id", id), d("$or", mine)}, append(beats(), setAndUnset(set, unset)...), options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return explain(err, "writing the document of a worker that pulls")
}

// StillPulls notes that a worker that pulls is alive, if its document is there. Index: _id.
func (s *Workers) StillPulls(ctx context.Context, id string) error {
	_, err := s.workers.UpdateOne(ctx, bson.D{d("_id", id), d("stream", Pulling)}, beats())
	return explain(err, "writing the document of a worker that pulls")
}

// beats sets the time of a heartbeat to the database's.
func beats() bson.D { return bson.D{d("$currentDate", bson.D{d("heartbeat_at", true)})} }

// Heartbeat writes the worker's document and reads the database's clock, in one round
// trip and from the one server that owns the document. Index: _id.
func (s *Workers) Heartbeat(ctx context.Context, w Worker) error {
	_, err := s.Beat(ctx, w, false)
	return err
}

// Beat is [Workers.Heartbeat] of a worker that can be drained: it returns the document, which has what an operator
// asks for and who wrote it before. With the first one of a process a request to an earlier process of the same id is
// over, and so is what the earlier process wrote. Index: _id.
func (s *Workers) Beat(ctx context.Context, w Worker, first bool) (*Worker, error) {
	set := bson.D{d("host", w.Host), d("pid", w.PID), d("version", w.Version), d("types", w.Types),
		d("concurrency", w.Concurrency), d("running", w.Running), d("stream", w.Stream)}
	if apart, known := s.Clock.Apart(); known {
		set = append(set, d("clock_error_ms", apart.Milliseconds()))
	}
	var unset bson.D
	setOrUnset(&set, &unset, w.Only != nil, "only", w.Only)
	setOrUnset(&set, &unset, w.Draining, "draining", true)
	setOrUnset(&set, &unset, w.NoDrain, "no_drain", true)
	now := bson.D{d("heartbeat_at", true)}
	if first {
		unset = append(unset, d("drain", ""))
		now = append(now, d("started_at", true))
	}
	update := bson.D{d("$currentDate", now)}
	writer := Writer{w.Process, w.Host, w.PID}
	switch {
	case w.Process == "":
	case first:
		set = append(set, d("writers", []Writer{writer}))
	default:
		update = append(update, d("$push", bson.D{d("writers", bson.D{d("$each", []Writer{writer}), d("$slice", -2)})}))
	}
	update = append(update, setAndUnset(set, unset)...)
	doc, asked, err := stampOne[Worker](ctx, s.core, s.workers, w.ID, update)
	if err != nil {
		return nil, explain(err, "writing the worker's heartbeat")
	}
	s.Clock.observe(doc.HeartbeatAt, asked)
	if doc.StartedAt.IsZero() {
		_, err = s.workers.UpdateOne(ctx, bson.D{d("_id", w.ID)}, bson.D{d("$set", bson.D{d("started_at", doc.HeartbeatAt)})})
	}
	return &doc, explain(err, "writing the worker's heartbeat")
}

// AskToDrain asks a live worker to claim nothing more, see [Drain]; its next heartbeat tells it. A later request
// replaces an earlier one. A worker that is not known is an [ErrNoWorker], one that will not hear a
// [WorkerRefusedError]. Index: _id.
func (s *Workers) AskToDrain(ctx context.Context, id string, ask Drain, now time.Time) (*Worker, error) {
	set := bson.D{d("drain.stop", ask.Stop), d("drain.note", ask.Note), d("drain.by", ask.By)}
	return s.ask(ctx, id, bson.D{heardOf(now), d("no_drain", bson.D{d("$ne", true)})},
		bson.D{d("$set", set), d("$currentDate", bson.D{d("drain.at", true)})}, now)
}

// Undrain takes back what [Workers.AskToDrain] has asked for. Index: _id.
func (s *Workers) Undrain(ctx context.Context, id string, now time.Time) (*Worker, error) {
	return s.ask(ctx, id, nil, bson.D{d("$unset", bson.D{d("drain", "")})}, now)
}

// ask changes the document of a worker that is as it must be.
func (s *Workers) ask(ctx context.Context, id string, is, update bson.D, now time.Time) (*Worker, error) {
	var doc Worker
	err := s.workers.FindOneAndUpdate(ctx, append(bson.D{d("_id", id)}, is...), update, returnAfter()).Decode(&doc)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return &doc, explain(err, "asking the worker "+id)
	}
	switch w, err := s.Known(ctx, id); {
	case err != nil:
		return nil, err
	case w.NoDrain:
		return nil, &WorkerRefusedError{id, "does not accept drain requests; stop its process instead"}
	case !w.Alive(now):
		return nil, &WorkerRefusedError{id, "is dead: its last heartbeat was at " + w.HeartbeatAt.UTC().Format(clock.Format)}
	default: // it has come back meanwhile
		return s.ask(ctx, id, is, update, now)
	}
}

// Get is a worker; nil = none of the id was heard of within a day. Index: _id.
func (s *Workers) Get(ctx context.Context, id string) (*Worker, error) {
	w, there, err := readOne[Worker](ctx, s.workers, "looking for the worker "+id, bson.D{d("_id", id)})
	if err != nil || !there {
		return nil, err
	}
	return &w, nil
}

// Known is [Workers.Get], and an [ErrNoWorker] for one that is not known.
func (s *Workers) Known(ctx context.Context, id string) (*Worker, error) {
	w, err := s.Get(ctx, id)
	if err == nil && w == nil {
		err = fmt.Errorf("%w: %s", ErrNoWorker, id)
	}
	return w, err
}

// Remove takes the worker's document away at its graceful stop. If another process has written it since, it stays: that
// one has started under the same id. Index: _id.
func (s *Workers) Remove(ctx context.Context, w Worker) error {
	_, err := s.workers.DeleteOne(ctx, bson.D{d("_id", w.ID), d("host", w.Host), d("pid", w.PID)})
	return explain(err, "removing the worker's document")
}

// List lists all workers that were heard of in the last day, by id. Those whose document
// this release cannot read are left out, and the log says so. Index: _id, of which it reads all.
func (s *Workers) List(ctx context.Context) ([]Worker, error) {
	all, _, err := readReadable[Worker](ctx, s.core, s.workers, "listing workers", bson.D{})
	return all, err
}

// Page is [Workers.List] page by page: at most limit workers behind the given id, all or those that are alive or not
// at a time. next is what the next page is behind; "" = there is none. Index: _id, of which it may read all.
func (s *Workers) Page(ctx context.Context, after string, limit int, alive *bool, now time.Time) (workers []Worker, next string, err error) {
	filter := bson.D{}
	if alive != nil {
		heard := bson.D{d("$gt", now.Add(-silence))}
		if !*alive {
			heard = bson.D{d("$not", heard)} // also those that were never heard of
		}
		filter = append(filter, d("heartbeat_at", heard))
	}
	workers, _, next, err = pageByID[Worker](ctx, s.core, s.workers, "listing workers", filter, after, limit)
	return workers, next, err
}

// Serving returns the live workers that claim tasks of the type, whichever of them. Index: heartbeat.
func (s *Workers) Serving(ctx context.Context, typ string, now time.Time) ([]Worker, error) {
	all, _, err := readReadable[Worker](ctx, s.core, s.workers, "looking for live workers", bson.D{
		heardOf(now), d("$or", bson.A{bson.D{d("types", typ)}, bson.D{d("stream", Pulling), d("types", bson.A{})}}),
	})
	return all, err
}

// heardOf selects the workers that are alive.
func heardOf(now time.Time) bson.E { return d("heartbeat_at", bson.D{d("$gt", now.Add(-silence))}) }

// Alive returns the ids, ascending, of the workers that were heard of lately and serve one of the
// types, less those that pull: these do not share the queue by rank. Index: heartbeat.
func (s *Workers) Alive(ctx context.Context, types []string) (ids []string, err error) {
	found, err := readAll[named](ctx, s.workers, "looking for live workers", bson.D{
		heardOf(s.Clock.Now()), d("types", in(types)), d("stream", bson.D{d("$ne", Pulling)}),
	}, options.Find().SetProjection(fields("_id")).SetBatchSize(manyWorkers))
	ids = collect(found, func(w named) string { return w.ID })
	slices.Sort(ids)
	return ids, err
}

// manyWorkers are so many that one reply names all of a fleet.
const manyWorkers = 10_000
