// Package stepplan says when the steps of plans run, and what becomes of plans. All functions are pure.
//
//	repeat.Spec ──Build──▶ repeat.Plan ──NextPlanTime──▶ the next step and its time, or why there is none
//
//	build.go    a plan from its definition: checks, and the document
//	check.go    what can be wrong with a plan, before it is stored and when somebody has changed the document
//	next.go     the next step: what is skipped, and when a plan is over
//	grid.go     the times of plans: intervals, days, weekdays, days of the month
//	preview.go  the times that are to come, for people
package stepplan
