package consumer

import (
	"encoding/json"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// EventKind says what happened.
type EventKind string

// The kinds of events. The fields that matter to a kind are named beside it.
const (
	EventClaimed   EventKind = "claimed"    // an execution began; the handler may still wait for its slot
	EventTakenOver EventKind = "taken_over" // as claimed, over the lapsed lease of Previous
	EventStarted   EventKind = "started"    // the handler was called: Late
	EventFinished  EventKind = "finished"   // the end was written: Outcome, Status, Reason, Ran
	EventParked    EventKind = "parked"     // the handler returned, a completion from outside is awaited
	EventFenced    EventKind = "fenced"     // the end came too late and was refused: Outcome
	EventLeaseLost EventKind = "lease_lost" // the lease could not be kept, or was taken: Reason; the handler was told
	EventCancelled EventKind = "cancelled"  // the handler was told that the task is cancelled, or that it must stop
	EventLapsed    EventKind = "lapsed"     // found a lapsed lease of Previous and gave the task back
	EventOutage    EventKind = "outage"     // the database cannot be reached: Reason
	EventRestored  EventKind = "restored"   // the database is back
	EventStream    EventKind = "stream"     // watching, polling, off: Reason
)

// Event is something that happened in this consumer, for logs, metrics and tests.
type Event struct {
	Kind     EventKind      `json:"kind"`
	At       time.Time      `json:"at"` // the store's clock
	WorkerID string         `json:"worker_id"`
	TaskID   string         `json:"task_id,omitempty"`
	Type     string         `json:"type,omitempty"`
	ExecID   string         `json:"exec_id,omitempty"`
	Attempt  int            `json:"attempt,omitempty"`
	Previous string         `json:"previous,omitempty"` // the worker whose lease lapsed
	Outcome  model.FailKind `json:"outcome,omitempty"`  // "" = success
	Status   model.Status   `json:"status,omitempty"`   // of the task afterwards
	Reason   string         `json:"reason,omitempty"`
	Late     time.Duration  `json:"-"` // from due to started; late_ms in JSON
	Ran      time.Duration  `json:"-"` // from started to returned; ran_ms in JSON
}

// MarshalJSON writes durations in milliseconds, as everywhere in JSON.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	return json.Marshal(struct {
		plain
		LateMS float64 `json:"late_ms,omitempty"`
		RanMS  float64 `json:"ran_ms,omitempty"`
	}{plain(e), millis(e.Late), millis(e.Ran)})
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// heard says whether anybody listens. Events of single executions are not even made
// otherwise.
func (c *Consumer) heard() bool { return c.cfg.OnEvent != nil || c.tap.Load() != nil }

func (c *Consumer) emit(e Event) {
	tap := c.tap.Load()
	if c.cfg.OnEvent == nil && tap == nil {
		return
	}
	e.At, e.WorkerID = c.store.Clock.Now(), c.cfg.WorkerID
	if tap != nil {
		(*tap)(e)
	}
	if c.cfg.OnEvent != nil {
		c.cfg.OnEvent(e)
	}
}

func (c *Consumer) emitFor(x *execution, e Event) {
	if !c.heard() {
		return
	}
	e.TaskID, e.Type, e.ExecID, e.Attempt = x.task.ID, x.task.Type, x.execID, x.attempt
	c.emit(e)
}
