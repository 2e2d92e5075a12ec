package store

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/model"
)

// OutboxLife is one life of a task of which something must follow: it lies among the
// tasks, or, when a new life began before, in the history.
type OutboxLife struct {
	*model.Task
	InHistory bool
	Returned  bool // the task has what its executions returned, which a look does not read
}

// Outboxes finds lives whose outbox is of a time in [from, before] and has an entry of one
// of the kinds, the oldest first: about limit of each collection, or all of one moment where
// those are more. Where there may be others, next is the time to go on from; it is later than
// from, so whoever goes on gets past those that stay. Only what tells of their ends is read of
// them. Lives that this release cannot read are left out, and the log says so.
// Indexes: outbox of both collections; the kinds are looked at in the documents.
func (s *Tasks) Outboxes(ctx context.Context, kinds []string, from, before time.Time, limit int) (lives []OutboxLife, next time.Time, err error) {
	at := bson.D{d("$gte", from), d("$lte", before)}
	for _, coll := range []*mongo.Collection{s.tasks, s.history} {
		p, err := s.outboxes(ctx, coll, at, d("outbox.kind", in(kinds)), limit)
		if err != nil {
			return nil, next, err
		}
		goOn := p.last
		if p.n == limit && p.first.Equal(p.last) {
			// A group commit gives many ends one time, so a page may not lead beyond it.
			if p, err = s.outboxes(ctx, coll, p.last, d("outbox.kind", in(kinds)), 0); err != nil {
				return nil, next, err
			}
			goOn = goOn.Add(time.Millisecond)
		}
		lives = append(lives, p.lives...)
		if p.n >= limit && (next.IsZero() || goOn.Before(next)) {
			next = goOn
		}
	}
	return lives, next, nil
}

// EmptyOutboxes finds those of which nothing is left but the mark: a process died between
// its last removal and the mark's, which are one write unless two removed at once.
// Indexes: outbox of both collections.
// An outbox may become empty long after the time of its mark, so most are stragglers (see
// head): they are found some seconds later.
func (s *Tasks) EmptyOutboxes(ctx context.Context, before time.Time, limit int) (lives []OutboxLife, err error) {
	for _, coll := range []*mongo.Collection{s.tasks, s.history} {
		h := s.head(IndexOutbox, "empty", coll.Name())
		l := h.begin(before, s.local.Monotonic())
		p, err := s.outboxes(ctx, coll, l.upTo(before), d("outbox.0", absent), limit)
		if err != nil {
			return nil, err
		}
		h.end(l, p.first)
		lives = append(lives, p.lives...)
	}
	return lives, nil
}

// outboxPage is what was found of one collection.
type outboxPage struct {
	lives       []OutboxLife // without those that cannot be read
	n           int          // with them
	first, last time.Time    // of the marks
}

// outboxes reads one page by the time of the marks; limit 0 = all. Nobody is told of an end that a failover may undo.
// Index: outbox.
func (s *Tasks) outboxes(ctx context.Context, coll *mongo.Collection, at any, which bson.E, limit int) (p outboxPage, err error) {
	o := options.Find().SetSort(bson.D{d("outbox_at", 1)}).SetHint(IndexOutbox).SetLimit(int64(limit)).
		SetProjection(endFields)
	err = readEach(ctx, s.durable(coll), "looking for outcomes", bson.D{d("outbox_at", at), which, present}, o, func(doc bson.Raw) bool {
		p.last, _ = doc.Lookup("outbox_at").TimeOK() // which the filter compared with a time
		if p.n == 0 {
			p.first = p.last
		}
		p.n++
		if life, err := decodeLife(doc, coll == s.history); err == nil {
			p.lives = append(p.lives, OutboxLife{Task: life, InHistory: coll == s.history})
		} else {
			s.complain(coll, doc, err)
		}
		return true
	})
	return p, err
}

// Carried is an outbox entry that has been carried out.
type Carried struct {
	Life  OutboxLife
	Entry model.OutboxEntry
}

// RemoveOutbox removes entries that were carried out; the last one of a life takes the
// mark with it. To remove what is gone does no harm. Neither raises the rev: nothing
// depends on them but the archiver, which looks for the mark. [ErrHeld] when somebody
// else holds one of the lives; the others are done. Index: _id.
func (s *Tasks) RemoveOutbox(ctx context.Context, carried []Carried) error {
	for coll, history := range map[*mongo.Collection]bool{s.tasks: false, s.history: true} {
		var mine []Carried
		for _, c := range carried {
			if c.Life.InHistory == history {
				mine = append(mine, c)
			}
		}
		if err := s.removeOutbox(ctx, coll, mine); err != nil {
			return explain(err, "removing handled outcomes")
		}
	}
	return nil
}

// removeOutbox removes each entry with the mark where it is the last one of its life. Of
// several entries of a life each is pulled, and then the mark goes.
func (s *Tasks) removeOutbox(ctx context.Context, coll *mongo.Collection, carried []Carried) error {
	if len(carried) == 0 {
		return nil
	}
	gone := bson.D{d("$unset", bson.D{d("outbox", ""), d("outbox_at", "")})}
	last := make([]change, len(carried))
	for i, c := range carried {
		alone := bson.D{d("outbox", bson.D{d("$size", 1)}), d("outbox.0.kind", c.Entry.Kind), d("outbox.0.rev", c.Entry.Rev)}
		last[i] = change{id: c.Life.storedID(), guard: alone, update: gone}
	}
	statements, err := statementsOf(last)
	if err != nil {
		return err
	}
	x, err := s.send(ctx, coll, "writing task", statements, Patience)
	if err != nil || x.clean || x.matched == len(last) {
		return err
	}
	held := x.held
	var pulls, marks []change
	for _, c := range carried {
		id := c.Life.storedID()
		if x.done(id) || held[id] {
			continue
		}
		match := bson.D{d("kind", c.Entry.Kind), d("rev", c.Entry.Rev)}
		pulls = append(pulls, change{id: id, update: bson.D{d("$pull", bson.D{d("outbox", match)})}, undone: bson.D{d("outbox", bson.D{d("$elemMatch", match)})}})
		marks = append(marks, change{id: id, guard: bson.D{d("outbox", bson.D{d("$size", 0)})}, update: gone})
	}
	for _, changes := range [][]change{pulls, marks} {
		if statements, err = statementsOf(changes); err != nil {
			return err
		}
		if x, err = s.send(ctx, coll, "writing task", statements, Patience); err != nil {
			return err
		}
		if len(x.held) > 0 {
			held = x.held
		}
	}
	if len(held) > 0 {
		return ErrHeld
	}
	return nil
}

// RepairOutboxes removes the mark of empty outboxes. Index: _id.
func (s *Tasks) RepairOutboxes(ctx context.Context, lives []OutboxLife) error {
	unset := encoded(bson.D{d("$unset", bson.D{d("outbox", ""), d("outbox_at", "")})})
	empty := appendFields(bson.D{d("outbox.0", absent)})
	for coll, history := range map[*mongo.Collection]bool{s.tasks: false, s.history: true} {
		var repairs []statement
		for _, l := range lives {
			if l.InHistory == history {
				repairs = append(repairs, statement{ids: []string{l.storedID()}, guard: empty, update: unset, undone: appendFields(bson.D{d("outbox_at", exists)})})
			}
		}
		if _, err := s.send(ctx, coll, "writing task", repairs, Patience); err != nil {
			return explain(err, "repairing empty outboxes")
		}
	}
	return nil
}

// encoded is a filter's or an update's document; what this package makes always encodes.
func encoded(doc bson.D) bsoncore.Document {
	raw, _ := bson.Marshal(doc)
	return raw
}

// appendFields is a guard of those fields.
func appendFields(fields bson.D) func(dst []byte) []byte {
	if len(fields) == 0 {
		return func(dst []byte) []byte { return dst }
	}
	elements := encoded(fields)
	return func(dst []byte) []byte { return append(dst, elements[4:len(elements)-1]...) }
}

func (l *OutboxLife) storedID() string {
	if l.InHistory {
		return lifeID(l.ID, l.Generation)
	}
	return l.ID
}

// decodeLife reads a task's document, or a life's, which has the task's id in task_id.
func decodeLife(raw bson.Raw, history bool) (*model.Task, error) {
	t, err := Decode(raw)
	if err == nil && history {
		var ok bool
		if t.ID, ok = raw.Lookup("task_id").StringValueOK(); !ok {
			return nil, fmt.Errorf("decoding a life: its task_id is of the type %v", raw.Lookup("task_id").Type)
		}
	}
	return t, err
}
