package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A deleted key stays in a MongoDB index for minutes. A seek that finds no live key to its
// right walks back over every deleted key to its left, so an empty queue is the dearest to
// look at. The sentinel is one document of the schema that lies at the right end of each
// index in which a loop seeks. No client can send or serve its type, and every query that
// might select it has [present] in its filter: it appears in no list, count, event, archive
// or statistic. On a sharded cluster it lies on one shard and speeds up only that one.

// sentinelID is the sentinel's _id, type and audience: '~' sorts after every character that
// the names of types and tenants may have.
const sentinelID = "~"

// present leaves out the sentinel. The condition is on the type and not on the id, because
// one on the id would make counts walk the index of the ids instead of the documents.
var present = d("type", bson.D{d("$ne", sentinelID)})

// farRight sorts after all times that the product writes.
var farRight = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// SentinelName is the name of the sentinel in [SchemaStatus.Missing].
const SentinelName = "tasks.~"

// sentinel is the document. Its status is one that no release knows, and a task whose
// status a release does not know is never touched.
var sentinel = bson.D{
	d("_id", sentinelID), d("type", sentinelID), d("key", sentinelID), d("status", "Sentinel"), d("priority", 0),
	d("audience", bson.A{sentinelID}), d("generation", int64(1)), d("rev", int64(1)),
	d("remark", "part of mscheduler's schema, made by: mscheduler db migrate"),
	d("due_at", farRight), d("lapse_at", farRight), d("archive_at", farRight), d("outbox_at", farRight), d("expire_at", farRight),
}

// hasSentinel reports whether the sentinel is there, as it has to be. Index: _id.
func (s *core) hasSentinel(ctx context.Context) (bool, error) {
	return finds(ctx, s.tasks, "looking for the sentinel document of the tasks", sentinel, options.FindOne())
}

// putSentinel makes the sentinel, or puts it right. Index: _id.
func (s *core) putSentinel(ctx context.Context) error {
	_, err := s.tasks.ReplaceOne(ctx, bson.D{d("_id", sentinelID)}, sentinel, options.Replace().SetUpsert(true))
	if IsDuplicate(err) { // another process made it at the same moment
		return nil
	}
	return explain(err, "creating the sentinel document of the tasks")
}

// removeSentinel removes it for a moment, see [Store.Shard]. Index: _id.
func (s *core) removeSentinel(ctx context.Context) error {
	_, err := s.tasks.DeleteOne(ctx, bson.D{d("_id", sentinelID)})
	return explain(err, "removing the sentinel document of the tasks")
}
