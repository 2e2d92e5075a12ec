package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Program is a server of a test's own, which runs as a process: the arguments, with the program first, say where it
// listens on 127.0.0.1 and in which directory it keeps its data. It is writable from the start.
func Program(name string, args func(port, data string) []string) Engine {
	return Engine{Name: name, Start: func(ctx context.Context) (*Deployment, error) {
		return startProcess(ctx, program{name: name, args: args})
	}}
}

// Mongod is MongoDB's server on PATH, as a replica set of one member.
func Mongod() Engine {
	return Engine{Name: "mongod", Start: func(ctx context.Context) (*Deployment, error) {
		path, err := exec.LookPath("mongod")
		if err != nil {
			return nil, missing("mongod", "not on PATH")
		}
		return startProcess(ctx, program{
			name: "mongod",
			args: func(port, data string) []string {
				args := []string{path, "--bind_ip", "127.0.0.1", "--port", port, "--dbpath", data, "--replSet", "rs0"}
				if runtime.GOOS != "windows" {
					args = append(args, "--nounixsocket") // a killed server would leave its file in /tmp
				}
				return args
			},
			prepare: initiate,
		})
	}}
}

// initiate makes the server a replica set of its own, unless it is one already.
func initiate(ctx context.Context, admin *mongo.Database, addr string) error {
	var hello struct {
		SetName string `bson:"setName"`
	}
	err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err != nil || hello.SetName != "" {
		return err
	}
	err = admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
		{Key: "_id", Value: "rs0"},
		{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: addr}}}},
	}}}).Err()
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(alreadyInitialized) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("initiating the replica set: %w", err)
	}
	return nil
}

const alreadyInitialized = 23

// Secantusd is secantusd-rs on PATH or in ~/.cargo/bin: a MongoDB-compatible server of
// other people, which shows what is only true of our own. It is slow under contention
// and not always right, so users are never given it.
func Secantusd() Engine {
	return Engine{Name: "secantusd", Slow: true, Start: func(ctx context.Context) (*Deployment, error) {
		path, err := exec.LookPath("secantusd-rs")
		if home, homeErr := os.UserHomeDir(); err != nil && homeErr == nil {
			path, err = exec.LookPath(filepath.Join(home, ".cargo", "bin", "secantusd-rs"))
		}
		if err != nil {
			return nil, missing("secantusd", "secantusd-rs is neither on PATH nor in ~/.cargo/bin")
		}
		return startProcess(ctx, program{
			name: "secantusd",
			args: func(port, data string) []string {
				return []string{path, "--host", "127.0.0.1", "--port", port, "--storage-path", data, "--sync-on-commit"}
			},
		})
	}}
}
