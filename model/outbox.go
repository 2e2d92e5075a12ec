package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
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

// The kinds of outbox entries. The kind of an [Origin] is one, too.
const (
	OutcomeCallback = "callback" // tell the receiver that the task has ended
	OutcomeDelivery = "delivery" // a delivery ended: its task is Success, or may be archived
	OutcomePeriodic = "periodic" // a run of a periodic rule ended
)

// EntryID names an entry of one life of one task for ever, in 32 characters that fit a
// key: carrying it out is made idempotent by it.
func EntryID(taskID string, generation int64, e OutboxEntry) string {
	sum := sha256.Sum256([]byte(taskID + "@" + strconv.FormatInt(generation, 10) + "@" + strconv.FormatInt(e.Rev, 10) + "@" + e.Kind))
	return hex.EncodeToString(sum[:16])
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

// follow writes down what must follow the end of the task.
func follow(t *Task, eff Effective, now time.Time) {
	var kinds []string
	if eff.callbackFor(t.Type, t.Status) != nil {
		kinds = append(kinds, OutcomeCallback)
	}
	if t.Origin != nil {
		kinds = append(kinds, t.Origin.Kind)
	}
	if len(kinds) == 0 {
		return
	}
	entries := make([]OutboxEntry, 0, len(t.Outbox)+len(kinds))
	entries = append(entries, t.Outbox...)
	for _, k := range kinds {
		entries = append(entries, OutboxEntry{Kind: k, Rev: t.Rev})
	}
	t.Outbox = entries
	if t.OutboxAt.IsZero() {
		t.OutboxAt = now
	}
}

// callbackFor is who is told of an end with that status of a task of that type; nil =
// nobody. Deliveries tell nobody, whatever is stored: each would make the next.
func (e *Effective) callbackFor(typ string, s Status) *CallbackTarget {
	switch {
	case e.Callback == nil, typ == CallbackType:
		return nil
	case s.Succeeded():
		return e.Callback.Success
	case s == StatusFailure, s == StatusPending && e.Callback.OnPending:
		return e.Callback.Error
	default:
		return nil
	}
}

// Delivered is what the end of its callback's delivery makes of a task: with success
// Completed becomes Success; either way nothing keeps it from the history any longer.
// Pending stays as it is: it waits for a person, not for the delivery. Delivered returns t
// itself when nothing changes.
func Delivered(t *Task, ok bool, eff Effective, now time.Time) *Task {
	succeeds := ok && t.Status == StatusCompleted
	waits := t.ArchiveAt.IsZero() && (t.Status == StatusCompleted || t.Status == StatusFailure)
	if !succeeds && !waits {
		return t
	}
	c := t.next(now)
	if succeeds {
		c.Status = StatusSuccess
	}
	c.ArchiveAt = archiveAt(t, t.FinishedAt, eff)
	return c
}
