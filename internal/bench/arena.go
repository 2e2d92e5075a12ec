package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/store"
)

// ErrRefused is what the error is when the database or the file is there already.
var ErrRefused = errors.New("refused")

// dropTime bounds the cleaning up, which also happens after a signal.
const dropTime = 30 * time.Second

// ownerCollection marks a database as this bench's.
const ownerCollection = "bench_owner"

// arena is the database that one part of a scenario has to itself.
type arena struct {
	uri    string
	engine string
	name   string // of the database
	meter  *meter // of the client
	client *mongo.Client
	db     *mongo.Database
	store  *store.Store

	server *embedded.Server // nil on a deployment
	path   string           // of the server's file
	owned  bool             // the database is this bench's to drop
}

// openArena starts the embedded server, if it is that, and makes the database. It refuses
// a file or a database that is there already.
func openArena(ctx context.Context, c *Config) (a *arena, err error) {
	a = &arena{uri: c.URI, name: c.Database, meter: &meter{now: c.Clock.Now}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close(ctx))
		}
	}()
	if a.uri == "" {
		if err := a.startServer(c.Path); err != nil {
			return a, err
		}
	}
	if a.client, err = a.meter.connect(a.uri); err != nil {
		return a, fmt.Errorf("connecting: %w", err)
	}
	a.db = a.client.Database(a.name)
	if err := a.own(ctx); err != nil {
		return a, err
	}
	if a.store, err = store.Open(store.Config{Database: a.db, Clock: c.Clock}); err != nil {
		return a, err
	}
	if err := a.store.Ready(ctx); err != nil {
		return a, err
	}
	return a, a.nameEngine(ctx)
}

func (a *arena) startServer(path string) (err error) {
	if path != "" {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s exists already; a bench only touches what it made itself", ErrRefused, path)
		}
		a.path = path
	}
	a.server, err = embedded.Start(embedded.Options{Path: path})
	if err == nil {
		a.uri = a.server.URI()
	}
	return err
}

// own makes the database and marks it. The mark has a fixed id, so that of two benches
// with one name one is refused.
func (a *arena) own(ctx context.Context) error {
	there, err := a.db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("looking whether the database %s exists: %w", a.name, err)
	}
	if len(there) > 0 {
		return fmt.Errorf("%w: the database %s exists already; a bench only touches what it made itself", ErrRefused, a.name)
	}
	// A signal in the middle must not leave it open whose the database is.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	_, err = a.db.Collection(ownerCollection).InsertOne(ctx, bson.D{{Key: "_id", Value: "bench"}})
	if mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("%w: another bench works in the database %s", ErrRefused, a.name)
	}
	a.owned = err == nil
	if err != nil {
		return fmt.Errorf("making the database %s: %w", a.name, err)
	}
	return nil
}

func (a *arena) nameEngine(ctx context.Context) error {
	t, err := a.store.Topology(ctx)
	switch {
	case err != nil:
		return err
	case a.server != nil && a.path != "":
		a.engine = "embedded file"
	case a.server != nil:
		a.engine = "embedded memory"
	case t.Embedded:
		a.engine = "embedded elsewhere"
	default:
		a.engine = "MongoDB " + t.Version
	}
	return nil
}

// close drops the database and ends the server and its file, also when ctx has ended.
func (a *arena) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	var errs []error
	if a.owned {
		if err := a.db.Drop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("dropping the bench's database %s: %w", a.name, err))
		}
	}
	if a.client != nil {
		errs = append(errs, a.client.Disconnect(ctx))
	}
	if a.server != nil {
		errs = append(errs, a.server.Close())
		if a.path != "" {
			errs = append(errs, os.Remove(a.path))
		}
	}
	return errors.Join(errs...)
}
