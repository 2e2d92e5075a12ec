package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// termID is the document of the collection control that tells since when the primary is known.
const termID = "primary"

// TermSince notes the name of the primary's term, see [Store.Primary], unless it is noted already. It
// returns when it was first noted, in the database's time: the primary was there by then. Index: _id.
func (s *Control) TermSince(ctx context.Context, name string) (time.Time, error) {
	const doing = "noting the primary"
	type term struct {
		Name string    `bson:"name"`
		At   time.Time `bson:"at"`
	}
	was, _, err := readOne[term](ctx, s.control, doing, bson.D{d("_id", termID)})
	if err != nil || was.Name == name {
		return was.At, err
	}
	var is term
	err = s.control.FindOneAndUpdate(ctx, bson.D{d("_id", termID), d("name", bson.D{d("$ne", name)})},
		bson.D{d("$set", bson.D{d("name", name)}), d("$currentDate", bson.D{d("at", true)})},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&is)
	if IsDuplicate(err) { // another process has just noted it
		return s.TermSince(ctx, name)
	}
	return is.At, explain(err, doing)
}
