package model

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Step is a part of a handler that is done once and for all: its value was saved, fenced
// by the open execution, before the handler went on, and whoever runs the task next gets
// it. Steps are in the order in which they were saved, and end with the life of the task.
type Step struct {
	Name     string        `bson:"name"`
	WorkerID string        `bson:"worker_id"`
	Value    bson.RawValue `bson:"value,omitempty"` // absent = null
	At       time.Time     `bson:"at"`
	Attempt  int           `bson:"attempt"` // of the execution that saved it
}
