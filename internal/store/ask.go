package store

import (
	"context"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Question is a query whose answer a look asks for together with others. Its constructor names
// the index that serves it.
type Question struct {
	coll       *mongo.Collection
	filter     bson.D
	sort       bson.D // nil = any order
	skip       int
	limit      int
	projection bson.D // nil = whole documents
	take       func(raw bson.Raw) error
	answered   func() // after a look that succeeded; nil = nothing to do
}

// askBatch is how many documents come with the first answer.
const askBatch = 2000

// Ask asks all questions in one command: the first one's collection is read, and the stage
// $unionWith adds the others. Documents are given to the takers of their questions, in any order: MongoDB does not
// specify that of a union. It reads with read concern majority, because a decision about an
// end must not outlive that end in a failover. There is at least one question.
func (s *Store) Ask(ctx context.Context, doing string, questions ...Question) error {
	var pipeline mongo.Pipeline
	for i, q := range questions {
		if stages := q.stages(i); i == 0 {
			pipeline = stages
		} else {
			pipeline = append(pipeline, bson.D{d("$unionWith", bson.D{d("coll", q.coll.Name()), d("pipeline", stages)})})
		}
	}
	cur, err := s.durable(questions[0].coll).Aggregate(ctx, pipeline, options.Aggregate().SetBatchSize(askBatch))
	if err != nil {
		return explain(err, doing)
	}
	defer func() { _ = cur.Close(ctx) }() // it is at its end, or the error is returned
	for cur.Next(ctx) {
		e, err := cur.Current.IndexErr(0)
		if err != nil {
			return explain(err, doing)
		}
		i, err := strconv.Atoi(e.Key())
		if err != nil {
			return explain(err, doing)
		}
		if err := questions[i].take(e.Value().Document()); err != nil {
			return explain(err, doing)
		}
	}
	if err := cur.Err(); err != nil {
		return explain(err, doing)
	}
	for _, q := range questions {
		if q.answered != nil {
			q.answered()
		}
	}
	return nil
}

// stages is the pipeline of the question of that number. Each document that it gives has one
// field, which has the number as its name and the document that was found as its value.
func (q Question) stages(n int) mongo.Pipeline {
	out := mongo.Pipeline{{d("$match", q.filter)}}
	if q.sort != nil {
		out = append(out, bson.D{d("$sort", q.sort)})
	}
	if q.skip > 0 {
		out = append(out, bson.D{d("$skip", q.skip)})
	}
	out = append(out, bson.D{d("$limit", q.limit)})
	if q.projection != nil {
		out = append(out, bson.D{d("$project", q.projection)})
	}
	return append(out, bson.D{d("$replaceWith", bson.D{d(strconv.Itoa(n), "$$ROOT")})})
}

// Question asks for the control document. take gets the zero value where there is none, if it
// is called at all. Index: _id.
func (s *Control) Question(take func(ControlDoc)) Question {
	return Question{coll: s.control, filter: bson.D{d("_id", controlID)}, limit: 1, take: func(raw bson.Raw) error {
		var c ControlDoc
		if err := codec.Decode(raw, &c); err != nil {
			return err
		}
		take(c)
		return nil
	}}
}

// DueQuestion asks for online rules whose next tick is due, the longest due first; the first
// skip of them are left out. Stragglers (see head) come some seconds late. unread gets documents
// that this release cannot read. Index: fire.
func (s *Rules) DueQuestion(now time.Time, skip, limit int, take func(*schedule.Rule), unread func(Unreadable)) Question {
	h := s.head(indexFire)
	l := h.begin(now, s.local.Monotonic())
	var first time.Time
	q := Question{coll: s.rules, filter: bson.D{d("next_fire_at", l.upTo(now))}, sort: bson.D{d("next_fire_at", 1)}, skip: skip, limit: limit}
	q.take = func(raw bson.Raw) error {
		if at, ok := raw.Lookup("next_fire_at").TimeOK(); ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
		s.give(raw, take, unread)
		return nil
	}
	if skip == 0 {
		q.answered = func() { h.end(l, first) }
	}
	return q
}

// NextQuestion asks for the earliest next tick of any rule after the given time. Index: fire.
func (s *Rules) NextQuestion(after time.Time, take func(time.Time)) Question {
	return s.nextQuestion("next_fire_at", after, take)
}

// WaitingQuestion asks whether a run of any rule waits for another's end. Index: queue, of
// which it reads one key; there are as many as rules with such runs. The condition is a range: a
// server need not take an index for the existence of a field alone.
func (s *Rules) WaitingQuestion(found func()) Question {
	return s.whether(bson.D{d("queued_at", bson.D{d("$gt", time.UnixMilli(0))})}, found)
}

// Questions are those of a look.
func (s *Rules) Questions(l Look[*schedule.Rule]) []Question {
	return []Question{
		s.DueQuestion(l.Now, l.Skip, l.Limit, l.Due, l.Unread), s.NextQuestion(l.Now, l.Next),
		s.plannedQuestion(l.LeftBefore, l.Left), s.WaitingQuestion(l.Waiting),
	}
}

// OutboxQuestions ask for lives whose outbox is of a time in [from, before] and has an entry of
// the kind, the oldest first: at most limit of each collection, with the fields that tell of their
// end alone. take gets one that this release cannot read as nil; the log names it. Indexes: outbox of both collections; the kind is looked
// at in the documents.
func (s *Tasks) OutboxQuestions(kind string, from, before time.Time, limit int, take func(l *OutboxLife, history bool)) []Question {
	var out []Question
	for _, coll := range []*mongo.Collection{s.tasks, s.history} {
		out = append(out, Question{
			coll: coll, filter: bson.D{d("outbox_at", bson.D{d("$gte", from), d("$lte", before)}), d("outbox.kind", kind), present},
			sort: bson.D{d("outbox_at", 1)}, limit: limit, projection: endFields,
			take: func(raw bson.Raw) error {
				t, err := decodeLife(raw, coll == s.history)
				if err != nil {
					s.complain(coll, raw, err)
					take(nil, coll == s.history)
					return nil
				}
				take(&OutboxLife{Task: t, InHistory: coll == s.history}, coll == s.history)
				return nil
			},
		})
	}
	return out
}
