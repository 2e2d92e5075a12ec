package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of the retention: less than a minute would not let anybody look, and dates end.
const (
	minHistory = time.Minute
	maxHistory = 100 * 365 * 24 * time.Hour
)

// Lives reads all lives of a task, the newest first: the current one, if it exists, and those
// in the history, which have an ArchivedAt. If the task has no life, the error is
// [model.ErrNotFound].
// id is that of producer.Sent, or of [model.TaskID].
func (a *Admin) Lives(ctx context.Context, id string) ([]*model.Task, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading the lives of a task: %w", err)
	}
	docs, err := a.room.Store.History.AllLives(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%w: %s", store.ErrNotFound, id)
	}
	lives := make([]*model.Task, len(docs))
	for i, doc := range docs {
		if lives[i], err = store.Decode(doc); err != nil {
			return nil, fmt.Errorf("reading the lives of task %s: %w", id, err)
		}
	}
	return lives, nil
}

// HistoryRetention returns how long lives stay in the history of this database; 0 = forever.
func (a *Admin) HistoryRetention(ctx context.Context) (time.Duration, error) {
	return a.room.Store.History.Retention(ctx)
}

// SetHistoryRetention sets how long lives stay in the history of this database, if they move
// there from now on: a minute to 100 years, or 0 = forever. All processes apply it within a
// minute. Lives that are already in the history keep their retention.
func (a *Admin) SetHistoryRetention(ctx context.Context, keep time.Duration) error {
	if keep != 0 && (keep < minHistory || keep > maxHistory) {
		return fmt.Errorf("setting the retention of the history: %w",
			input.Invalid("retention", "is %v; want %v to %v, or 0 for ever", keep, minHistory, maxHistory))
	}
	return a.set(ctx, "setting the retention of the history", func(ctx context.Context) error { return a.room.Store.History.SetRetention(ctx, keep) })
}
