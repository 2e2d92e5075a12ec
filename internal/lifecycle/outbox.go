package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// The kinds of outbox entries. The kind of an [model.Origin] is one, too.
const (
	OutcomeCallback = "callback" // tell the receiver that the task has ended
	OutcomeDelivery = "delivery" // a delivery ended: its task is Success, or may be archived
	OutcomePeriodic = "periodic" // a run of a periodic rule ended
	OutcomeFlow     = "flow"     // the task of a node of a flow ended
	OutcomePlan     = "plan"     // the task of a step of a plan ended
)

// EntryID names an entry of one life of one task for ever, in 32 characters that fit a
// key: carrying it out is made idempotent by it.
func EntryID(taskID string, generation int64, e model.OutboxEntry) string {
	sum := sha256.Sum256([]byte(taskID + "@" + strconv.FormatInt(generation, 10) + "@" + strconv.FormatInt(e.Rev, 10) + "@" + e.Kind))
	return hex.EncodeToString(sum[:16])
}

// follow writes down what must follow the end of the task.
func follow(t *model.Task, eff Effective, now time.Time) {
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
	entries := make([]model.OutboxEntry, 0, len(t.Outbox)+len(kinds))
	entries = append(entries, t.Outbox...)
	for _, k := range kinds {
		entries = append(entries, model.OutboxEntry{Kind: k, Rev: t.Rev})
	}
	t.Outbox = entries
	if t.OutboxAt.IsZero() {
		t.OutboxAt = now
	}
}

// TellAgain has the end of a task told once more to what made it, which knew nothing to do with it
// when it was told.
func TellAgain(t *model.Task, now time.Time) *model.Task {
	c := next(t, now)
	c.Outbox = append(slices.Clone(t.Outbox), model.OutboxEntry{Kind: t.Origin.Kind, Rev: c.Rev})
	c.OutboxAt = now // the entry that was told may still be there
	return c
}

// callbackFor is who is told of an end with that status of a task of that type; nil =
// nobody. Deliveries tell nobody, whatever is stored: each would make the next.
func (e *Effective) callbackFor(typ string, s model.Status) *model.CallbackTarget {
	switch {
	case e.Callback == nil, typ == input.CallbackType:
		return nil
	case s.Succeeded():
		return e.Callback.Success
	case s == model.StatusFailure, s == model.StatusPending && e.Callback.OnPending:
		return e.Callback.Error
	default:
		return nil
	}
}

// Delivered is what the end of its callback's delivery makes of a task: with success
// Completed becomes Success; either way nothing keeps it from the history any longer.
// Pending stays as it is: it waits for a person, not for the delivery. Delivered returns t
// itself when nothing changes.
func Delivered(t *model.Task, ok bool, eff Effective, now time.Time) *model.Task {
	succeeds := ok && t.Status == model.StatusCompleted
	waits := t.ArchiveAt.IsZero() && (t.Status == model.StatusCompleted || t.Status == model.StatusFailure)
	if !succeeds && !waits {
		return t
	}
	c := next(t, now)
	if succeeds {
		c.Status = model.StatusSuccess
	}
	c.ArchiveAt = archiveAt(t, t.FinishedAt, eff)
	return c
}
