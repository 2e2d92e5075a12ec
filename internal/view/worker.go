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
	Stream      string                `json:"stream"`
	StartedAt   string                `json:"started_at,omitempty"`
	HeartbeatAt string                `json:"heartbeat_at"`
}

// WorkerOf is a worker as it is now, by the database's time.
func WorkerOf(w *store.Worker, now time.Time) Worker {
	return Worker{
		ID: w.ID, Alive: w.Alive(now), Host: w.Host, PID: w.PID, Version: w.Version, Types: w.Types, Only: w.Only, Concurrency: w.Concurrency,
		Running: w.Running, Stream: w.Stream, StartedAt: Time(w.StartedAt), HeartbeatAt: Time(w.HeartbeatAt),
	}
}

// Time is a time as JSON; "" = none.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(clock.Format)
}
