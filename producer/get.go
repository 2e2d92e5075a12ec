package producer

import (
	"context"

	"github.com/mscheduler/mscheduler/model"
)

// Get reads one task, in its present life, or, when it is not among the tasks any more, in
// its last one from the history: such a task has an ArchivedAt, its key is free, and no
// command changes it. [ErrNotFound] when the history has none either.
func (p *Producer) Get(ctx context.Context, id string) (*model.Task, error) {
	return p.room.Life(ctx, id, 0)
}
