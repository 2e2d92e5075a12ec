// Package migrate sets a database up for mscheduler and brings an older schema to this
// release's version: indexes and a version number, never the data of tasks.
//
// An empty database needs no migration by hand: the first Send or Run sets it up. An
// older schema is changed only here and by the command mscheduler db migrate. A migration
// only adds; a later release removes what is obsolete. So consecutive releases can share a
// database. A release that cannot read a newer schema refuses to start.
package migrate

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/store"
)

// State says how far a database is from this release.
type State struct {
	// Version of the database's schema; 0 when it is not set up.
	Version int
	// Wanted is the version of this release.
	Wanted int
	// MinReader is the least schema version whose releases may use the database.
	MinReader int
	// Missing lists the indexes that do not exist yet, as collection.name, and tasks.~ for the
	// sentinel document of the tasks.
	Missing []string
	// Foreign says that a collection has documents that mscheduler did not write. Up then refuses.
	Foreign bool
	// Current says that the database has all that this release needs. If it has not and Version is
	// greater than Wanted, only the newer release can add what is missing.
	Current bool
}

// Config says which database.
type Config struct {
	// Database holds the collections. Required.
	Database *mongo.Database
	// Prefix of the collections' names, as in the Config of producers and consumers. Defaults to "".
	Prefix string
	// Logger gets what an operator should know. Defaults to none.
	Logger zerolog.Logger
}

// Up brings the schema to this release's version and returns the state afterwards. It
// may run any number of times, in several processes at once and while others work. A
// newer schema is left unchanged; it is an error if this release cannot use it.
func Up(ctx context.Context, c Config) (State, error) {
	return c.do(ctx, "migrating", (*store.Store).Migrate)
}

// Status reads the state of the schema and changes nothing.
func Status(ctx context.Context, c Config) (State, error) {
	return c.do(ctx, "reading the state of the schema", (*store.Store).Schema)
}

func (c Config) do(ctx context.Context, what string, f func(*store.Store, context.Context) (store.SchemaStatus, error)) (State, error) {
	s, err := store.Open(store.Config{Database: c.Database, Prefix: c.Prefix, Logger: c.Logger})
	var st store.SchemaStatus
	if err == nil {
		st, err = f(s, ctx)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return State{
		Version: st.Version, Wanted: st.Wanted, MinReader: st.MinReader, Missing: st.Missing, Foreign: st.Foreign != "",
		Current: err == nil && st.Foreign == "" && st.Version >= st.Wanted && len(st.Missing) == 0,
	}, err
}
