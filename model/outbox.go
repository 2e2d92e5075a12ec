package model

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// OutboxEntry is something that must follow the end of a task: a callback, a step of a
// flow. It is written by the very update that ends the task, so that no crash can come
// between the two, and removed when it has been carried out.
type OutboxEntry struct {
	Kind string `bson:"kind"` // who carries it out
	Rev  int64  `bson:"rev"`  // of the update that ended the task: it rises through all lives
}

// Origin says what made the task and must learn of its end. A zero field says nothing.
type Origin struct {
	Kind       string `bson:"kind"`                 // of the outbox entry that the end writes
	ID         string `bson:"id"`                   // of the rule, flow, plan or task behind it
	Generation int64  `bson:"generation,omitempty"` // of the task behind it
	Tick       *Tick  `bson:"tick,omitempty"`       // of a periodic rule
}

// Tick is which run of a periodic rule a task is.
type Tick struct {
	Run     string        `bson:"run"`              // id of its record
	Rule    string        `bson:"rule"`             // the rule's name when it was decided
	Nominal time.Time     `bson:"nominal"`          // the time that the rule names
	Attempt int           `bson:"attempt"`          // as the failure policy counts
	Manual  bool          `bson:"manual,omitempty"` // triggered by a person
	Ext     bson.RawValue `bson:"ext,omitempty"`    // the rule's when it was decided
}
