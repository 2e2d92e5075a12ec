package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The sweeper gives permits back by what it reads of tasks. What it believes must never be
// undone: it reads what a majority of the members has, so that a failover cannot roll it
// back, and in order, so that a task that is not there has gone, and is not one that this
// member or shard has yet to hear of.

// InOrder makes a context by which each read sees what those before it saw, and all that
// this depended on, whichever server answers. Only reads may use it. end is to be called
// after the last.
func (s *Permits) InOrder(ctx context.Context) (ordered context.Context, end func(), err error) {
	session, err := s.db.Client().StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return nil, nil, explain(err, "starting a session")
	}
	return mongo.NewSessionContext(ctx, session), func() { session.EndSession(context.WithoutCancel(ctx)) }, nil
}

// Due are the permits at which it is time to look, the longest due first, and others in the place of those that cannot
// be read: nothing changes when to look at these. Majority read. Index: permits.look.
func (s *Permits) Due(ctx context.Context, limit int) ([]lifecycle.Permit, error) {
	now := s.Clock.Now()
	for broken, tries := []string{}, 0; ; tries++ {
		filter := bson.D{d("look_at", bson.D{d("$lte", now)})}
		if len(broken) > 0 {
			filter = append(filter, d("_id", bson.D{d("$nin", broken)}))
		}
		found, unread, err := s.legible(ctx, s.durable(s.permits), filter,
			options.Find().SetSort(bson.D{d("look_at", 1)}).SetHint(indexLook).SetLimit(int64(limit)))
		if err != nil || len(unread) == 0 || len(found)+len(unread) < limit || tries == unreadTries {
			return found, err
		}
		broken = append(broken, unread...)
	}
}

// Named are the permits of those names that are taken. Majority read. Index: _id.
func (s *Permits) Named(ctx context.Context, names []string) ([]lifecycle.Permit, error) {
	return s.findIn(ctx, s.durable(s.permits), bson.D{d("_id", in(names))}, options.Find())
}

// HoldersOf reads of tasks what says whether their executions are open. One that is there and cannot be
// read is nil. Majority read. Index: _id.
func (s *Permits) HoldersOf(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.byIDs(ctx, s.durable(s.tasks), "reading who holds permits", ids,
		options.Find().SetProjection(append(fields("generation", "rev", "status", "updated_at"), openness...)))
}

// openness are the fields that say which executions of a task are open.
var openness = fields("worker_states.exec_id", "worker_states.success_time", "worker_states.fail_time")

// Saw notes that the permits stay, and when to look at them again. One that somebody
// else has by now is left alone. Index: _id.
func (s *Permits) Saw(ctx context.Context, permits []lifecycle.Permit) error {
	now := s.Clock.Now()
	_, err := bulk(ctx, s.core, s.permits, "recording the use of permit", permits, func(p *lifecycle.Permit) change {
		at := p.LookAgain(now)
		return change{id: p.Name, guard: ownPermit(p), update: bson.D{d("$set", bson.D{d("look_at", at)})}, undone: isNot("look_at", at)}
	})
	return err
}

// ownPermit is, beside the id, the permit as long as that execution has it, and what may follow is the same.
func ownPermit(p *lifecycle.Permit) bson.D {
	var next any // absent
	if p.Next != nil {
		next = p.Next.ExecID
	}
	return bson.D{d("task", p.TaskID), d("exec_id", p.ExecID), d("next.exec_id", next)}
}
