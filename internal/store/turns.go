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
// is right with any number of doers, and the turn only saves the work. Index: _id.
func (s *Turns) Take(ctx context.Context, job, holder string, lease time.Duration) (bool, error) {
	_, err := s.turns.BulkWrite(ctx, []mongo.WriteModel{s.lease("job/"+job, holder, lease)})
	if IsDuplicate(err) {
		return false, nil
	}
	return err == nil, explain(err, "taking the turn of "+job)
}

// lease takes or extends a right that one holder has at a time: it is free, lapsed or its own. Where
// somebody else has it the upsert collides with the _id.
func (s *core) lease(name, holder string, length time.Duration) *mongo.UpdateOneModel {
	now := s.Clock.Now()
	return mongo.NewUpdateOneModel().SetUpsert(true).
		SetFilter(bson.D{d("_id", name), d("$or", bson.A{bson.D{d("holder", holder)}, bson.D{d("expires_at", bson.D{d("$lt", now)})}})}).
		SetUpdate(bson.D{d("$set", bson.D{d("holder", holder), d("expires_at", now.Add(length))})})
}

// Leave gives the right back, so that somebody else goes on at once. Index: _id.
func (s *Turns) Leave(ctx context.Context, job, holder string) error {
	_, err := s.turns.DeleteOne(ctx, bson.D{d("_id", "job/"+job), d("holder", holder)})
	return explain(err, "releasing the turn of "+job)
}
