package bench

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/store"
)

// calls counts the answered commands of one purpose.
type calls struct {
	Commands int64 `json:"commands"`
	Tasks    int64 `json:"tasks"` // found by a find, named by an update
	Nanos    int64 `json:"nanos"`
}

func (c calls) plus(o calls, sign int64) calls {
	return calls{c.Commands + sign*o.Commands, c.Tasks + sign*o.Tasks, c.Nanos + sign*o.Nanos}
}

// callOf tells finds, claims and ends from all other commands. A claim or an end that
// looks at its tasks again sends a find of the same purpose, which does not count.
func callOf(ctx context.Context, command string) (c store.Call, ok bool) {
	c, ok = store.CallOf(ctx)
	return c, ok && (command == "find") == (c.Purpose == store.Finding)
}

// foundIn counts the documents in the reply of a find; it is called for each fetch.
func foundIn(reply bson.Raw) (n int) {
	batch, _ := reply.Lookup("cursor", "firstBatch").ArrayOK()
	if len(batch) < 5 {
		return 0
	}
	for rest := bsoncore.Document(batch[4:]); ; n++ {
		_, left, ok := bsoncore.ReadElement(rest)
		if !ok {
			return n
		}
		rest = left
	}
}

// Calls are the commands of one purpose that the measured clients sent.
type Calls struct {
	Commands int64    `json:"commands"`
	MeanMS   *float64 `json:"mean_ms"`    // as the client measures it
	MeanSize *float64 `json:"mean_tasks"` // tasks that a command found or named
}

// summary is nil where nothing was counted, as with a worker of an older build.
func (c calls) summary() *Calls {
	if c.Commands == 0 {
		return nil
	}
	n := float64(c.Commands)
	return &Calls{c.Commands, quotient(ptr(millis(time.Duration(c.Nanos))), &n), quotient(ptr(float64(c.Tasks)), &n)}
}
