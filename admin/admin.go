// Package admin is for those who look after a database of tasks: what holds for all tasks of a
// type ([Admin.PutType]), pauses, how long the history is kept, callbacks that are delivered
// again, and queries over all tasks.
//
// Where to look: types.go, pause.go, history.go, redeliver.go, find.go. Commands on one task
// are those of package producer. The schema is package migrate's.
package admin

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Admin changes what holds for many tasks, and finds them. It is safe for concurrent use.
type Admin struct{ room *command.Room }

// New makes an admin of the producer's database, with its prefix and its SecretKey, which seals
// the secrets of types' callbacks. It does no I/O. It works until the producer is closed.
func New(p *producer.Producer) *Admin { return &Admin{room: command.Of(p)} }

// Get reads one life of a task, also one that has moved to the history. Generation 0 is the
// present life, or the last. [producer.ErrNotFound] when there is none.
func (a *Admin) Get(ctx context.Context, id string, generation int64) (*model.Task, error) {
	return a.room.Life(ctx, id, generation)
}

// Document is the newest life of a task as it is stored, with fields that this release may
// not know.
func (a *Admin) Document(ctx context.Context, id string) (bson.Raw, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return a.room.Store.History.LifeRaw(ctx, id, 0)
}
