package tickplan

import "github.com/mscheduler/mscheduler/periodic/schedule"

// The reasons for which a tick does not run, see [schedule.SkipReason].
const (
	SkipOverlap     schedule.SkipReason = "overlap"
	SkipFailure     schedule.SkipReason = "failure"
	SkipConcurrency schedule.SkipReason = "concurrency"
	SkipMissed      schedule.SkipReason = "missed"
	SkipPaused      schedule.SkipReason = "paused"
	SkipEdited      schedule.SkipReason = "edited"
	SkipCapacity    schedule.SkipReason = "capacity"
)
