// Package failkind names the kinds of a bad end of an execution: the values of [model.FailKind],
// which say there what they mean. Callers only read them, so they are not exported.
package failkind

import "github.com/mscheduler/mscheduler/model"

// The kinds, see [model.FailKind].
const (
	Error       model.FailKind = "error"
	Fatal       model.FailKind = "fatal"
	PlanError   model.FailKind = "plan_error"
	Panic       model.FailKind = "panic"
	Timeout     model.FailKind = "timeout"
	Lapsed      model.FailKind = "lapsed"
	Released    model.FailKind = "released"
	Undecodable model.FailKind = "undecodable"
	Cancelled   model.FailKind = "cancelled"
	Cleaned     model.FailKind = "cleaned"
)

// Final says whether the handler said that no retry can help.
func Final(k model.FailKind) bool { return k == Fatal || k == PlanError }
