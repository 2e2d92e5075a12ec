package model

// Existing selects what a send does if its key exists; the zero value changes nothing. The
// values are flags.
type Existing uint8

// What to do with a key that exists.
const (
	// UpdateArgs sets the new arguments, start time and options on a task that has not ended. A
	// running execution keeps the old ones. While an execution is open, a send that changes the
	// limit_key is refused.
	UpdateArgs Existing = 1 << iota
	// UpdateIdle is UpdateArgs, but not while an execution is open.
	UpdateIdle
	// RestartFailed begins a new life if the task ended without success or waits for a retry
	// (seed 004, clean_failed). Workers that succeeded need not run again. With
	// RestartSucceeded in addition, the new life starts from scratch. While an execution is open,
	// it resets the failures of the other workers, in the same life. They may run the task again at
	// once, and their errors and lapses no longer count; open executions continue.
	RestartFailed
	// RestartSucceeded begins a new life if the task succeeded (seed 004, clean_success). If a
	// task needs several workers and has not ended, it resets the successes so far, in the same
	// life. Those workers must succeed again; open executions continue.
	RestartSucceeded
	// KeepArgs makes a restart use the stored arguments, options, priority, labels and origin.
	// The send decides only the start time and whether the task is held. KeepArgs requires
	// RestartFailed or RestartSucceeded.
	KeepArgs
)
