package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// answerKept is how long the first answer to a request with an Idempotency-Key is repeated.
const answerKept = 24 * time.Hour

// Answers is the collection answers: what the API answered to requests that may be repeated.
type Answers struct{ *core }

// Answer is one document of answers.
type Answer struct {
	ID       string            `bson:"_id"`     // of the request: who sent it, to which operation, and its key
	Request  []byte            `bson:"request"` // SHA-256 of all that it says
	Status   int               `bson:"status"`
	Headers  map[string]string `bson:"headers,omitempty"`
	Body     []byte            `bson:"body,omitempty"`
	DeleteAt time.Time         `bson:"delete_at"`
}

// Get reads the answer to a request; nil = there is none. Index: _id.
func (s *Answers) Get(ctx context.Context, id string) (*Answer, error) {
	a, there, err := readOne[Answer](ctx, s.answers, "reading the answer to a repeated request", bson.D{d("_id", id)})
	if err != nil || !there {
		return nil, err
	}
	return &a, nil
}

// Keep stores an answer, unless there is one for the request. It returns the one that is stored.
// Index: _id.
func (s *Answers) Keep(ctx context.Context, a *Answer) (*Answer, error) {
	a.DeleteAt = s.Clock.Now().Add(answerKept)
	_, err := s.answers.InsertOne(ctx, a)
	if IsDuplicate(err) {
		return s.Get(ctx, a.ID)
	}
	return a, explain(err, "storing the answer to a request")
}
