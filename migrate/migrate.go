// Package migrate sets a database up for mscheduler and brings an older schema to this
// release's version: indexes and a version number, never the data of tasks.
//
// An empty database needs no migration by hand: the first Send or Run sets it up. An
// older schema is changed only here and by the command mscheduler db migrate. Changes
// expand first and contract a release later, so that releases one apart work on the
// same database; a release that cannot read a newer schema refuses to start.
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
	// Foreign says that the collection of tasks has documents that mscheduler did not
	// write; Up then refuses.
	Foreign bool
}

// Current says whether there is nothing for [Up] to do.
func (s State) Current() bool { return !s.Foreign && s.Version >= s.Wanted && len(s.Missing) == 0 }

// Option says more about the database.
type Option func(*store.Config)

// Prefix of the collections' names, as in the Config of producers and consumers.
// Defaults to "".
func Prefix(prefix string) Option { return func(c *store.Config) { c.Prefix = prefix } }

// Logger gets what an operator should know. Defaults to none.
func Logger(l zerolog.Logger) Option { return func(c *store.Config) { c.Logger = l } }

// Up brings the schema to this release's version and returns the state afterwards. It
// may run any number of times, in several processes at once and while others work. A
// newer schema is left alone, and it is an error when this release cannot use it.
func Up(ctx context.Context, db *mongo.Database, opts ...Option) (State, error) {
	s, err := open(db, opts)
	if err != nil {
		return State{}, fmt.Errorf("migrating: %w", err)
	}
	st, err := s.Migrate(ctx)
	if err != nil {
		return state(st), fmt.Errorf("migrating: %w", err)
	}
	return state(st), nil
}

// Status reads the state of the schema and changes nothing.
func Status(ctx context.Context, db *mongo.Database, opts ...Option) (State, error) {
	s, err := open(db, opts)
	if err != nil {
		return State{}, fmt.Errorf("reading the state of the schema: %w", err)
	}
	st, err := s.Schema(ctx)
	if err != nil {
		return State{}, fmt.Errorf("reading the state of the schema: %w", err)
	}
	return state(st), nil
}

func open(db *mongo.Database, opts []Option) (*store.Store, error) {
	c := store.Config{Database: db, Logger: zerolog.Nop()}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return store.Open(c)
}

func state(st store.SchemaStatus) State {
	return State{Version: st.Version, Wanted: st.Wanted, MinReader: st.MinReader, Missing: st.Missing, Foreign: st.Foreign}
}
