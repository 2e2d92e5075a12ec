package engine

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

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
				return []string{path, "--bind_ip", "127.0.0.1", "--port", port, "--dbpath", data, "--replSet", "rs0"}
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
