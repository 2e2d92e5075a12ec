package producer

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Get reads one task, in its present life, or, when it is not among the tasks any more, in
// its last one from the history: such a task has an ArchivedAt, its key is free, and no
// command changes it. [ErrNotFound] when the history has none either.
func (p *Producer) Get(ctx context.Context, id string) (*model.Task, error) {
	return p.Life(ctx, id, 0)
}

// Document is [Producer.Get] for the document as it is stored, with fields that this
// release may not know.
func (p *Producer) Document(ctx context.Context, id string) (bson.Raw, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return p.room.Store.History.LifeRaw(ctx, id, 0)
}

// Life reads one life of a task, also when it has moved to the history. Generation 0 is
// the present life, or the last.
func (p *Producer) Life(ctx context.Context, id string, generation int64) (*model.Task, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return p.room.Store.History.Life(ctx, id, generation)
}
