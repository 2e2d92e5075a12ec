// Package failkind names the kinds of a bad end of an execution: the values of FailKind of
// model.WorkerState, which says what they mean. Callers only read them, so they are not exported.
package failkind

// The kinds, see FailKind of model.WorkerState.
const (
	Error       = "error"
	Fatal       = "fatal"
	PlanError   = "plan_error"
	Panic       = "panic"
	Timeout     = "timeout"
	Lapsed      = "lapsed"
	Released    = "released"
	Undecodable = "undecodable"
	Cancelled   = "cancelled"
	Cleaned     = "cleaned"
)

// Final says whether the handler said that no retry can help.
func Final(k string) bool { return k == Fatal || k == PlanError }
