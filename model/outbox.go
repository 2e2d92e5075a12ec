package model

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// OutboxEntry is an action that must follow the end of a task, such as a callback. The update
// that ends the task also writes the entry, so that no crash can separate the two. The entry is
// removed when the action is done.
type OutboxEntry struct {
	Kind string `bson:"kind"` // selects the code that handles it
	Rev  int64  `bson:"rev"`  // of the update that ended the task; it increases across all lives
}

// Origin identifies what created the task and must be notified of its end. A zero field is not
// set.
type Origin struct {
	Kind       string `bson:"kind"`                 // kind of the outbox entry that the end of the task writes
	ID         string `bson:"id"`                   // of the rule, flow, plan or task behind it
	Generation int64  `bson:"generation,omitempty"` // of the task behind it
	Tick       *Tick  `bson:"tick,omitempty"`       // of a periodic rule
	Node       string `bson:"node,omitempty"`       // of a flow: which of its nodes the task is
	Element    int    `bson:"element,omitempty"`    // of a node with elements: which of them, from 1 on
	Step       int64  `bson:"step,omitempty"`       // of a plan: which of its steps the task is, from 1 on
	// CreatedAt is when the plan was created: an earlier plan may have had the same id.
	CreatedAt time.Time `bson:"created_at,omitempty"`
}

// Tick identifies the run of a periodic rule that a task belongs to.
type Tick struct {
	Run     string        `bson:"run"`              // id of its record
	Rule    string        `bson:"rule"`             // the rule's name when the tick was decided
	Nominal time.Time     `bson:"nominal"`          // the scheduled time
	Attempt int           `bson:"attempt"`          // as counted by the failure policy
	Manual  bool          `bson:"manual,omitempty"` // triggered by a person
	Ext     bson.RawValue `bson:"ext,omitempty"`    // the rule's ext when the tick was decided
}
