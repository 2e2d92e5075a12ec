package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Take takes or extends the right to do one piece of upkeep for the whole fleet until
// the lease passes; false when somebody else has it. holder must be unique to the
// process. Two may believe to have it after a pause of one of them: each piece of upkeep
// is right with any number of doers, and the turn only saves the work. A holder that is idle
// looks rarely: it loses the turn to one that is not. Index: _id.
func (s *Turns) Take(ctx context.Context, job, holder string, lease time.Duration, idle bool) (bool, error) {
	free := s.leasable(holder)
	if !idle {
		free = append(free, bson.D{d("idle", true)})
	}
	_, err := s.turns.BulkWrite(ctx, []mongo.WriteModel{mongo.NewUpdateOneModel().SetUpsert(true).
		SetFilter(bson.D{d("_id", "job/"+job), d("$or", free)}).SetUpdate(bson.D{d("$set", append(s.leased(holder, lease), d("idle", idle)))})})
	if IsDuplicate(err) {
		return false, nil
	}
	return err == nil, explain(err, "taking the turn of "+job)
}

// lease takes or extends a right that one holder has at a time: it is free, lapsed or its own. Where
// somebody else has it the upsert collides with the _id.
func (s *core) lease(name, holder string, length time.Duration) *mongo.UpdateOneModel {
	return mongo.NewUpdateOneModel().SetUpsert(true).
		SetFilter(bson.D{d("_id", name), d("$or", s.leasable(holder))}).
		SetUpdate(bson.D{d("$set", s.leased(holder, length))})
}

// leasable is what a right is like that the holder may take.
func (s *core) leasable(holder string) bson.A {
	return bson.A{bson.D{d("holder", holder)}, bson.D{d("expires_at", bson.D{d("$lt", s.Clock.Now())})}}
}

// leased are the fields of a right that the holder has for so long.
func (s *core) leased(holder string, length time.Duration) bson.D {
	return bson.D{d("holder", holder), d("expires_at", s.Clock.Now().Add(length))}
}

// Leave gives the right back, so that somebody else goes on at once. Index: _id.
func (s *Turns) Leave(ctx context.Context, job, holder string) error {
	_, err := s.turns.DeleteOne(ctx, bson.D{d("_id", "job/"+job), d("holder", holder)})
	return explain(err, "releasing the turn of "+job)
}
