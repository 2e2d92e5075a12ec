package model

// Existing says what a send does to a key that exists; the zero value leaves it alone.
// The values are flags.
type Existing uint8

// What to do with a key that exists.
const (
	// UpdateArgs gives a task that has not ended the new arguments, start time and
	// options; an execution that runs goes on with the old ones. A send whose options
	// change the limit_key is refused while one is open.
	UpdateArgs Existing = 1 << iota
	// UpdateIdle is UpdateArgs, but not while an execution is open.
	UpdateIdle
	// RestartFailed begins a new life when the task ended without success or waits for
	// a retry (seed 004, clean_failed). What successful workers did stays done, unless
	// RestartSucceeded is given, too: then the new life starts from nothing.
	RestartFailed
	// RestartSucceeded begins a new life when the task succeeded (seed 004, clean_success).
	// In a task of several workers that has not ended it takes back the successes so far,
	// in the same life. Those workers must succeed again; open executions go on.
	RestartSucceeded
	// KeepArgs makes a restart run the task with its stored arguments, options, priority,
	// labels and origin. The send only decides when the task starts and whether it is held.
	// KeepArgs needs RestartFailed or RestartSucceeded.
	KeepArgs
)
