package view

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Run is a run as JSON.
type Run struct {
	ID       string             `json:"id"`
	Rule     string             `json:"rule"`
	Tenant   string             `json:"tenant,omitempty"`
	Nominal  string             `json:"nominal"`
	Last     string             `json:"last_nominal,omitempty"` // of skipped ticks that share the record
	Ticks    int64              `json:"ticks"`
	Status   schedule.RunStatus `json:"status"`
	Reason   string             `json:"reason,omitempty"`
	Error    string             `json:"error_info,omitempty"`
	Attempt  int                `json:"attempt,omitempty"`
	Manual   bool               `json:"manual,omitempty"`
	TaskID   string             `json:"task_id,omitempty"`
	Late     int64              `json:"late_ms"`
	Started  string             `json:"started_at,omitempty"`
	Executed string             `json:"executed_at,omitempty"` // when a worker began it
	Ended    string             `json:"ended_at,omitempty"`
	Call     *schedule.HTTPCall `json:"call,omitempty"`
}

// RunOf is a run as it is now.
func RunOf(x *schedule.Run) Run {
	return Run{
		x.ID, x.RuleName, x.Tenant, Time(x.Nominal), Time(x.Last), max(x.Count, 1), x.Status, x.Reason, x.Error, x.Attempt, x.Manual,
		x.TaskID, x.Late, Time(x.StartedAt), Time(x.ExecutedAt), Time(x.EndedAt), x.Call,
	}
}

// NextTick is one of the next ticks of a rule as JSON.
type NextTick struct {
	UTC   string `json:"utc"`
	Local string `json:"local"`
	Fires bool   `json:"fires"`
	Note  string `json:"note,omitempty"`
}

// NextTickOf is a tick of a preview.
func NextTickOf(t tickplan.PreviewTick) NextTick {
	return NextTick{Time(t.UTC), t.Local.Format(time.RFC3339), t.Fires, t.Note}
}
