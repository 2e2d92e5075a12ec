package model

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Step is a part of a handler that runs once. Its value was saved, fenced by the open
// execution, before the handler continued; later executions of the task get the saved value.
// Steps are in the order in which they were saved. A new life starts without them, unless a
// retry from a step keeps the earlier ones.
type Step struct {
	Name     string        `bson:"name"`
	WorkerID string        `bson:"worker_id"`
	Value    bson.RawValue `bson:"value,omitempty"` // absent = null
	At       time.Time     `bson:"at"`
	Attempt  int           `bson:"attempt"` // of the execution that saved it
}
