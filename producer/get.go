package producer

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// Get reads one task, in its present life.
func (p *Producer) Get(ctx context.Context, id string) (*model.Task, error) {
	if _, _, _, err := model.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return p.store.Get(ctx, id)
}

// Document reads one task as it is stored, with fields this release may not know.
func (p *Producer) Document(ctx context.Context, id string) (bson.Raw, error) {
	if _, _, _, err := model.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return p.store.GetRaw(ctx, id)
}

// Life reads one life of a task, also when it has moved to the history.
func (p *Producer) Life(ctx context.Context, id string, generation int64) (*model.Task, error) {
	if _, _, _, err := model.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return p.store.Life(ctx, id, generation)
}
