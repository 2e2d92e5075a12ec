package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// devFileName is the address file that `mscheduler dev` leaves in its current directory.
const devFileName = ".mscheduler-dev.json"

// devFile says where a dev server listens, and which server it is: a file that was left
// behind must never lead to another server that has the port now.
type devFile struct {
	URI      string    `json:"uri"`
	Database string    `json:"database"`
	PID      int       `json:"pid"`
	Server   string    `json:"server"` // the server's own id for this run
	Path     string    `json:"path,omitempty"`
	Started  time.Time `json:"started_at"`
}

func devPath(dir string) string { return filepath.Join(dir, devFileName) }

// readDevFile reads the address file; nil when there is none.
func readDevFile(dir string) (*devFile, error) {
	data, err := os.ReadFile(devPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the dev server's address: %w", err)
	}
	var f devFile
	if err := json.Unmarshal(data, &f); err != nil || f.URI == "" {
		return nil, usage("%s was not written by mscheduler dev; remove it", devFileName)
	}
	return &f, nil
}

// write makes the file in one step, so that nobody reads half of it.
func (f *devFile) write(dir string) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", devFileName, err)
	}
	tmp, err := os.CreateTemp(dir, devFileName+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", devFileName, err)
	}
	_, err = tmp.Write(append(data, '\n'))
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), devPath(dir))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", devFileName, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// remove takes the file away if it is still this server's.
func (f *devFile) remove(dir string) error {
	now, err := readDevFile(dir)
	if err != nil || now == nil || now.Server != f.Server {
		return err
	}
	return os.Remove(devPath(dir))
}

// alive says whether the server that the file names is running.
func (f *devFile) alive(ctx context.Context) bool {
	client, err := mongo.Connect(options.Client().ApplyURI(f.URI).SetServerSelectionTimeout(2 * time.Second))
	if err != nil {
		return false
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	id, err := serverID(ctx, client)
	return err == nil && id == f.Server
}

// A dev server keeps its id in a database of its own, where only it writes.
func serverIDs(client *mongo.Client) *mongo.Collection {
	return client.Database("mscheduler_dev").Collection("server")
}

var serverIDKey = bson.D{{Key: "_id", Value: "id"}}

func serverID(ctx context.Context, client *mongo.Client) (string, error) {
	var doc struct {
		Server string `bson:"server"`
	}
	err := serverIDs(client).FindOne(ctx, serverIDKey).Decode(&doc)
	return doc.Server, err
}

func setServerID(ctx context.Context, client *mongo.Client, id string) error {
	_, err := serverIDs(client).UpdateOne(ctx, serverIDKey,
		bson.D{{Key: "$set", Value: bson.D{{Key: "server", Value: id}}}}, options.UpdateOne().SetUpsert(true))
	return err
}
