package view

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Worker is a worker as JSON.
type Worker struct {
	ID          string                `json:"id"`
	Alive       bool                  `json:"alive"`
	Host        string                `json:"host"`
	PID         int                   `json:"pid"`
	Version     string                `json:"version"`
	Types       []string              `json:"types"`
	Only        *lifecycle.Conditions `json:"only,omitempty"`
	Concurrency int                   `json:"concurrency"`
	Running     int                   `json:"running"`
	Stream      string                `json:"stream" doc:"how it learns of new tasks: watching, polling, off (engines), or pulling: it fetches through the pull protocol. Of such a worker only types, only and heartbeat_at are known; without types it fetches all types of its categories"`
	StartedAt   string                `json:"started_at,omitempty"`
	HeartbeatAt string                `json:"heartbeat_at"`
	ClockError  *int64                `json:"clock_error_ms,omitempty" doc:"by how much the clock of its machine was ahead of the database's at the heartbeat before; negative = behind. Workers go by the database's time, so it changes nothing"`
	Drain       *Drain                `json:"drain,omitempty" doc:"what an operator has asked it for"`
	NoDrain     bool                  `json:"no_drain,omitempty" doc:"it refuses to be drained or stopped by operators"`
}

// Drain is what an operator has asked a worker for, as JSON.
type Drain struct {
	At    string `json:"at" format:"date-time"`
	By    string `json:"by,omitempty" doc:"who asked"`
	Note  string `json:"note,omitempty" doc:"why"`
	Stop  bool   `json:"stop,omitempty" doc:"it also stops when it holds nothing any more"`
	Heard bool   `json:"heard" doc:"the worker knows, and claims nothing"`
}

// WorkerOf is a worker as it is now, by the database's time.
func WorkerOf(w *store.Worker, now time.Time) Worker {
	var drain *Drain
	if d := w.Drain; d != nil {
		drain = &Drain{Time(d.At), d.By, d.Note, d.Stop, w.Draining}
	}
	return Worker{
		ID: w.ID, Alive: w.Alive(now), Host: w.Host, PID: w.PID, Version: w.Version, Types: w.Types, Only: w.Only, Concurrency: w.Concurrency,
		Running: w.Running, Stream: w.Stream, StartedAt: Time(w.StartedAt), HeartbeatAt: Time(w.HeartbeatAt),
		ClockError: w.ClockError, Drain: drain, NoDrain: w.NoDrain,
	}
}

// Execution is an open execution, as JSON.
type Execution struct {
	TaskID   string `json:"task_id"`
	Type     string `json:"type"`
	WorkerID string `json:"worker_id"`
	Attempt  int    `json:"attempt"`
	Claimed  string `json:"claimed_at" format:"date-time"`
	Lease    string `json:"ping_expire_time" format:"date-time" doc:"when the lease lapses, unless the worker pings"`
	Deadline string `json:"deadline,omitempty" format:"date-time"`
	Parked   bool   `json:"parked,omitempty" doc:"the handler has returned, and a completion ends the execution"`
}

// ExecutionOf is what a worker holds.
func ExecutionOf(h *store.Held) Execution {
	w := &h.State
	return Execution{h.TaskID, h.Type, w.WorkerID, w.Attempt, Time(w.ClaimedAt), Time(w.PingExpireTime), Time(w.Deadline), w.Parked}
}

// Pause is why the claiming of tasks is paused, as JSON.
type Pause struct {
	Type string `json:"type,omitempty" doc:"absent: all types"`
	At   string `json:"at,omitempty" format:"date-time"`
	By   string `json:"by,omitempty" doc:"who has paused it"`
	Note string `json:"note,omitempty" doc:"why"`
}

// PausesOf are what is paused now.
func PausesOf(pauses []store.Pause) []Pause {
	out := make([]Pause, len(pauses))
	for i := range pauses {
		p := &pauses[i]
		out[i] = Pause{p.Type(), Time(p.At), p.By, p.Note}
	}
	return out
}

// Time is a time as JSON; "" = none.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(clock.Format)
}
