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

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Config of an admin. Only Database must be set.
type Config struct {
	// Database is the caller's and is never closed here. Its concerns, its read
	// preference and its codecs do not matter: the admin uses its own.
	Database *mongo.Database
	// Prefix of the collections' names: at most 40 of a-z A-Z 0-9 . _ -.
	// Defaults to "".
	Prefix string
	// SecretKey seals the secrets of types' callbacks before they are stored, as the
	// SecretKey of a producer's Config does. Defaults to none: types whose callbacks have
	// secrets are refused.
	SecretKey string
	// Logger gets what an operator should know. Defaults to none.
	Logger zerolog.Logger
}

// Admin changes what holds for many tasks, and finds them. It is safe for concurrent use.
type Admin struct{ room *command.Room }

// New checks the Config and makes an admin. It does no I/O. Errors are model.ErrInvalid.
func New(c Config) (*Admin, error) {
	r, err := command.Open(command.Config{Database: c.Database, Prefix: c.Prefix, SecretKey: c.SecretKey, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	return &Admin{room: r}, nil
}

// Close ends what the admin does in the background; ctx bounds the waiting.
func (a *Admin) Close(ctx context.Context) error { return a.room.Close(ctx) }

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
