package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// termID is the document of the collection control that tells since when the primary is known.
const termID = "primary"

// noteTime bounds how long [Control.NoteTerm] delays its caller.
const noteTime = 5 * time.Second

// NoteTerm is [Control.TermSince] for a process that does not ask since when. It does nothing if the name is
// empty or known to be noted. If the database refuses, the next call tries again.
func (s *Control) NoteTerm(ctx context.Context, name string) {
	if noted := s.noted.Load(); name == "" || noted != nil && *noted == name {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	if _, err := s.TermSince(ctx, name); err != nil {
		s.log.Debug().Err(err).Msg("could not note the primary; a later look at it tries again")
	}
}

// TermSince notes the name of the primary's term, see [Store.Primary], unless it is noted already. It
// returns when it was first noted, in the database's time: the primary was there by then. Index: _id.
func (s *Control) TermSince(ctx context.Context, name string) (since time.Time, err error) {
	defer func() {
		if err == nil {
			s.noted.Store(&name)
		}
	}()
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
