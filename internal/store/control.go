package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// ControlDoc is the one small document that every process reads every second while it
// works: what must act everywhere within two seconds shows there.
type ControlDoc struct {
	Signal      int64    `bson:"signal"`       // rises with every signal
	Types       int64    `bson:"types"`        // rises with every change of a type's document
	PausedTypes []string `bson:"paused_types"` // nobody claims tasks of these
	PausedAll   bool     `bson:"paused_all"`   // nobody claims anything
	Limited     bool     `bson:"limited"`      // limits have been used: there may be permits to sweep

	DeletedVersion int64 `bson:"deleted_version"` // the greatest version of the types that were deleted
}

// Paused says whether tasks of the type may not be claimed.
func (c *ControlDoc) Paused(typ string) bool {
	return c.PausedAll || slices.Contains(c.PausedTypes, typ)
}

const controlID = "control"

// Read reads the control document; the zero Control where there is none. Index: _id.
func (s *Control) Read(ctx context.Context) (ControlDoc, error) {
	c, _, err := readOne[ControlDoc](ctx, s.control, "reading the control document", bson.D{d("_id", controlID)})
	return c, err
}

// Pause says why the claiming of a type is paused. It has a document of its own, since every process reads the control
// document each second.
type Pause struct {
	ID   string    `bson:"_id"`
	Note string    `bson:"note,omitempty"`
	By   string    `bson:"by,omitempty"`
	At   time.Time `bson:"at"`
}

// Type is the type that is paused; "" = all.
func (p *Pause) Type() string { return strings.TrimPrefix(p.ID, pauseID) }

// pauseID begins the ids of pauses.
const pauseID = "pause:"

func pauseIDs(all bool, types []string) []string {
	if all {
		return []string{pauseID}
	}
	return collect(types, func(typ string) string { return pauseID + typ })
}

// Pause stops the claiming of the given types, or of everything; what runs goes on. The note and who it is by are
// stored first, in place of those of an earlier pause. Index: _id.
func (s *Control) Pause(ctx context.Context, all bool, types []string, note, by string) error {
	for _, id := range pauseIDs(all, types) {
		why := bson.D{d("$set", bson.D{d("note", note), d("by", by)}), d("$currentDate", bson.D{d("at", true)})}
		if err := upsert(ctx, s.control, "pausing", id, why); err != nil {
			return err
		}
	}
	update := bson.D{d("$addToSet", bson.D{d("paused_types", bson.D{d("$each", types)})})}
	if all {
		update = bson.D{d("$set", bson.D{d("paused_all", true)})}
	}
	return s.updateControl(ctx, "pausing", update)
}

// Resume undoes [Control.Pause] and wakes the workers. That they are woken only makes it
// quicker: where it does not succeed they find out by their polls. Index: _id.
func (s *Control) Resume(ctx context.Context, all bool, types []string) error {
	update := bson.D{d("$pull", bson.D{d("paused_types", in(types))})}
	if all {
		update = bson.D{d("$unset", bson.D{d("paused_all", "")})}
	}
	if err := s.updateControl(ctx, "resuming", update); err != nil {
		return err
	}
	if _, err := s.control.DeleteMany(ctx, bson.D{d("_id", in(pauseIDs(all, types)))}); err != nil {
		return explain(err, "resuming")
	}
	if all {
		types, _ = s.tasksRoom.TypesWithTasks(ctx)
	}
	for _, typ := range types {
		s.wakeOne(ctx, bson.D{d("type", typ), d("due_at", exists)})
	}
	return nil
}

// Pauses are what is paused, everything first and then the types by name. One that an earlier release has paused has
// only its type. Index: _id.
func (s *Control) Pauses(ctx context.Context) ([]Pause, error) {
	c, err := s.Read(ctx)
	if err != nil {
		return nil, err
	}
	ids := pauseIDs(false, slices.Sorted(slices.Values(c.PausedTypes)))
	if c.PausedAll {
		ids = append([]string{pauseID}, ids...)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := readAll[Pause](ctx, s.control, "reading what is paused", bson.D{d("_id", in(ids))})
	out := collect(ids, func(id string) Pause { return Pause{ID: id} })
	for _, p := range found {
		out[slices.Index(ids, p.ID)] = p
	}
	return out, err
}

// WakeNext wakes the workers for the next task that the query finds: those that rest may not know of it. Where it does
// not succeed they find out by their polls. Indexes: those of [Tasks.NextDue] and wakeOne.
func (s *Control) WakeNext(ctx context.Context, q NextQuery) {
	if next, err := s.tasksRoom.NextDue(ctx, q); err == nil && !next.DueAt.IsZero() {
		s.wakeOne(ctx, bson.D{d("type", next.Type), d("audience", in(q.audiences())), d("priority", next.Priority), d("due_at", next.DueAt)})
	}
}

// wakeOne gives one due task of those the field that the streams watch. Indexes: due to
// find it; _id to write it, without which a router refuses the update up to MongoDB 6.0.
func (s *Control) wakeOne(ctx context.Context, of bson.D) {
	task, there, err := readOne[named](ctx, s.tasks, "looking for a due task", of,
		options.FindOne().SetHint(IndexDue).SetProjection(fields("_id")))
	if err != nil || !there {
		return // nobody can be woken: they poll
	}
	wake := encoded(bson.D{d("$currentDate", bson.D{d("wake_at", true)})})
	_, _ = s.execute(ctx, []statement{{ids: []string{task.ID}, guard: appendFields(bson.D{d("due_at", exists)}), update: wake}}, 0)
}

// MarkLimited notes, for good, that limits are used, so that somebody sweeps their permits.
// Index: _id.
func (s *Control) MarkLimited(ctx context.Context) error {
	return s.updateControl(ctx, "noting that limits are used", bson.D{d("$set", bson.D{d("limited", true)})})
}

func (s *Control) updateControl(ctx context.Context, doing string, update bson.D) error {
	return upsert(ctx, s.control, doing, controlID, update)
}

// Signal tells the workers that the state of a task that may be running has changed:
// it was cancelled, or another filter or other options apply. It is written after the
// task, so who sees it sees the change. A caller that dies in between has no answer and
// repeats its command, which repeats the signal. Indexes: _id.
func (s *Control) Signal(ctx context.Context, taskIDs ...string) error {
	if len(taskIDs) == 0 {
		return nil
	}
	err := upsert(ctx, s.signals, "writing a signal", bson.NewObjectID(), bson.D{
		d("$set", bson.D{d("task_ids", taskIDs)}), d("$currentDate", bson.D{d("at", true)}),
	})
	if err != nil {
		return err
	}
	return s.updateControl(ctx, "writing a signal", bson.D{d("$inc", bson.D{d("signal", 1)})})
}

// signalOverlap is for signals whose time lies a little before one that was seen
// first: two writers, or a new primary with another clock.
const signalOverlap = 10 * time.Second

// signalIDs is how many ids one look at the signals may name.
const signalIDs = 1000

// Signals returns which of the given tasks signals since the given time name. A fleet may write
// thousands a second, of which those of one process are few. Index: at; the ids are looked
// at in the documents.
func (s *Control) Signals(ctx context.Context, since time.Time, ids []string) (named map[string]bool, err error) {
	type signal struct {
		TaskIDs []string `bson:"task_ids"`
	}
	named = map[string]bool{}
	for some := range slices.Chunk(ids, signalIDs) {
		docs, err := readAll[signal](ctx, s.signals, "reading signals", bson.D{d("at", bson.D{d("$gte", since.Add(-signalOverlap))}), d("task_ids", in(some))},
			options.Find().SetHint("at").SetProjection(bson.D{d("_id", 0), d("task_ids", 1)}))
		if err != nil {
			return nil, err
		}
		for _, doc := range docs {
			for _, id := range doc.TaskIDs {
				named[id] = true
			}
		}
	}
	return named, nil
}

// TypesWithTasks are all types that have tasks due at some time, by a loose scan: one seek
// for each. Index: due.
func (s *Tasks) TypesWithTasks(ctx context.Context) (types []string, err error) {
	for from := ""; ; {
		typ, err := s.NextType(ctx, from)
		if err != nil || typ == "" {
			return types, err
		}
		types = append(types, typ)
		from = typ + "\x00" // follows it, and no type
	}
}
