package producer

import (
	"context"

	"github.com/mscheduler/mscheduler/model"
)

// Get reads the current life of a task or, if the task has moved to the history, its last life.
// A task from the history has an ArchivedAt, its key is free, and commands cannot change it. If
// the history does not have it either, the error is [model.ErrNotFound].
// id is that of [Sent], or of [model.TaskID].
func (p *Producer) Get(ctx context.Context, id string) (*model.Task, error) {
	return p.room.Life(ctx, id, 0)
}
