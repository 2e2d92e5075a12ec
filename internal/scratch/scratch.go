// Package scratch opens databases that are made for one purpose and dropped afterwards:
// those of the demo and the bench. It never touches a database that it did not make.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/dropdb"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/store"
)

// ErrRefused is what the error is when the database or the file is there already.
var ErrRefused = errors.New("refused")

// dropTime bounds the cleaning up, which also happens after a signal.
const dropTime = 30 * time.Second

// Options of a scratch database.
type Options struct {
	// User is "bench" or "demo": the database's mark and the errors have it.
	User string
	// URI of a MongoDB deployment; "" = an embedded server is started.
	URI string
	// Path of the embedded server's file, which must not exist; "" = in memory.
	Path string
	// Name of the database, which must not exist.
	Name string
	// Client changes the options of the client. nil = nothing is changed.
	Client func(*options.ClientOptions)
	Clock  clock.Clock // nil = the machine's
}

// Database is a scratch database.
type Database struct {
	URI    string
	Engine string // "embedded memory", "embedded file", "MongoDB 8.0.1"
	Name   string
	Client *mongo.Client
	DB     *mongo.Database
	Store  *store.Store // ready

	user   string
	server *embedded.Server // nil on a deployment
	path   string           // of the server's file
	owned  bool             // the database was made here, and is to be dropped
}

// Open starts the embedded server where no URI is given, and makes the database. The error
// wraps [ErrRefused] when the file or the database exists.
func Open(ctx context.Context, o Options) (d *Database, err error) {
	d = &Database{URI: o.URI, Name: o.Name, user: o.User}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(ctx))
		}
	}()
	if d.URI == "" {
		if err := d.startServer(o.Path); err != nil {
			return d, err
		}
	}
	if d.Client, err = Connect(d.URI, o.User, o.Client); err != nil {
		return d, err
	}
	d.DB = d.Client.Database(d.Name)
	if err := d.own(ctx); err != nil {
		return d, err
	}
	if d.Store, err = store.Open(store.Config{Database: d.DB, Clock: o.Clock}); err != nil {
		return d, err
	}
	if err := d.Store.Ready(ctx); err != nil {
		return d, err
	}
	return d, d.nameEngine(ctx)
}

// Connect makes a client with a short server selection. nil changes nothing.
func Connect(uri, user string, change func(*options.ClientOptions)) (*mongo.Client, error) {
	o := options.Client().ApplyURI(uri).SetAppName("mscheduler " + user).SetServerSelectionTimeout(5 * time.Second)
	if change != nil {
		change(o)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return client, nil
}

// Embedded reports whether the server runs in this process.
func (d *Database) Embedded() bool { return d.server != nil }

func (d *Database) startServer(path string) (err error) {
	if path != "" {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s exists already; a %s only touches what it made itself", ErrRefused, path, d.user)
		}
		d.path = path
	}
	d.server, err = embedded.Start(embedded.Options{Path: path})
	if err == nil {
		d.URI = d.server.URI()
	}
	return err
}

// own makes the database and marks it. The mark has a fixed id, so that of two that want
// one name one is refused.
func (d *Database) own(ctx context.Context) error {
	there, err := d.DB.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("looking whether the database %s exists: %w", d.Name, err)
	}
	if len(there) > 0 {
		return fmt.Errorf("%w: the database %s exists already; a %s only touches what it made itself", ErrRefused, d.Name, d.user)
	}
	// A signal in the middle must not leave it open whose the database is.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	_, err = d.DB.Collection("scratch_owner").InsertOne(ctx, bson.D{{Key: "_id", Value: "owner"}, {Key: "user", Value: d.user}})
	if mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("%w: another process uses the database %s", ErrRefused, d.Name)
	}
	d.owned = err == nil
	if err != nil {
		return fmt.Errorf("making the database %s: %w", d.Name, err)
	}
	return nil
}

func (d *Database) nameEngine(ctx context.Context) error {
	t, err := d.Store.Topology(ctx)
	switch {
	case err != nil:
		return err
	case d.path != "":
		d.Engine = "embedded file"
	case d.Embedded():
		d.Engine = "embedded memory"
	case t.Embedded:
		d.Engine = "embedded elsewhere"
	default:
		d.Engine = "MongoDB " + t.Version
	}
	return nil
}

// drop drops the database, again where a write that was still under way has made it anew.
func (d *Database) drop(ctx context.Context) error {
	const tries, pause = 4, 50 * time.Millisecond
	for range tries {
		if err := dropdb.Drop(ctx, d.DB); err != nil {
			return err
		}
		clock.Pause(ctx, pause)
		left, err := d.DB.ListCollectionNames(ctx, bson.D{})
		if err != nil || len(left) == 0 {
			return err
		}
	}
	return dropdb.Drop(ctx, d.DB)
}

// Close drops the database and ends the server and its file, also when ctx has ended.
func (d *Database) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	var errs []error
	if d.owned {
		if err := d.drop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("dropping the %s's database %s: %w", d.user, d.Name, err))
		}
	}
	if d.Client != nil {
		errs = append(errs, d.Client.Disconnect(ctx))
	}
	if d.server != nil {
		errs = append(errs, d.server.Close())
		if d.path != "" {
			errs = append(errs, os.Remove(d.path))
		}
	}
	return errors.Join(errs...)
}
