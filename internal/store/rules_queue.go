package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// RunsWait says whether a run of any rule waits for another's end. Index: queue, of which it
// reads one key; there are as many as rules with such runs.
func (s *Rules) RunsWait(ctx context.Context) (bool, error) {
	err := s.rules.FindOne(ctx, bson.D{d("queued_at", bson.D{d("$exists", true)})},
		options.FindOne().SetHint(IndexQueue).SetProjection(bson.D{d("_id", 1)})).Err()
	if isNone(err) {
		return false, nil
	}
	return err == nil, explain(err, "looking for runs that wait")
}
