package store

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// insertNew is [insertEach] for callers that repeat all after an error, which is [ErrHeld] if another
// client holds an id.
func insertNew[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string, docs []T) (existed []int, err error) {
	existed, held, err := insertEach(ctx, s, coll, doing, docs)
	if err == nil && len(held) > 0 {
		err = fmt.Errorf("%s: %w", doing, ErrHeld)
	}
	return existed, err
}

// insertEach stores new documents, each unless there is one of its id. existed are the indices of those.
// One that is there may be of this very call, if an answer was lost. held are the indices of documents
// whose ids another client holds. After an error some may be stored. It is not for the caller's
// transaction, which a collision would end. doing says what is done to one document. Index: _id.
func insertEach[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string, docs []T) (existed, held []int, err error) {
	if len(docs) == 0 {
		return nil, nil, nil
	}
	inserts := make([]statement, len(docs))
	for i, doc := range docs {
		raw, err := codec.Encode(doc)
		if err != nil {
			return nil, nil, &FatalError{Reason: doing, Err: err}
		}
		id, isText := raw.Lookup("_id").StringValueOK()
		if !isText {
			return nil, nil, &FatalError{Reason: doing + " without an id"}
		}
		inserts[i] = statement{ids: []string{id}, insert: raw}
	}
	x, err := s.sendTwice(ctx, coll, doing, inserts)
	if err != nil {
		return nil, nil, err
	}
	for i, st := range inserts {
		switch id := st.ids[0]; {
		case x.refused[id] != nil:
			return nil, nil, x.refused[id]
		case x.exists[id]:
			existed = append(existed, i)
		case !x.done(id): // held, as far as is known
			held = append(held, i)
		}
	}
	return existed, held, nil
}
