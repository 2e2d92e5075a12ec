// Package admin is for operators. It configures task types ([Admin.PutType]), pauses types,
// sets the retention of the history, redelivers callbacks and queries tasks.
//
// Where to look: types.go, pause.go, history.go, redeliver.go, find.go. Package producer has
// the commands on a single task. Package migrate manages the schema.
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

// Admin changes settings of many tasks and queries tasks. It is safe for concurrent use. What it sets is
// never part of a transaction.
type Admin struct{ room *command.Room }

// New creates an admin for the producer's database, with its prefix and its SecretKey, which
// encrypts the callback secrets of types. It does no I/O. The admin works until the producer is
// closed.
func New(p *producer.Producer) *Admin { return &Admin{room: command.Of(p)} }

// Get reads one life of a task, also from the history. Generation 0 selects the current life,
// or the last. If the life does not exist, the error is [model.ErrNotFound].
// id is that of producer.Sent, or of [model.TaskID].
func (a *Admin) Get(ctx context.Context, id string, generation int64) (*model.Task, error) {
	return a.room.Life(ctx, id, generation)
}

// Document returns the stored document of a task's newest life, including fields that this
// release does not know.
// id is that of producer.Sent, or of [model.TaskID].
func (a *Admin) Document(ctx context.Context, id string) (bson.Raw, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return a.room.Store.History.LifeRaw(ctx, id, 0)
}
