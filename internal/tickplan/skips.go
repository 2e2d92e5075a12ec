package tickplan

// The reasons for which a tick does not run, see Reason of schedule.Run.
const (
	SkipOverlap     = "overlap"
	SkipFailure     = "failure"
	SkipConcurrency = "concurrency"
	SkipMissed      = "missed"
	SkipPaused      = "paused"
	SkipEdited      = "edited"
	SkipCapacity    = "capacity"
)
