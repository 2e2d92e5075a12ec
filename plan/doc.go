// Package plan publishes plans: work that repeats by the calendar, each step once, with the results
// of every participant (seed 001).
//
// A plan is published with a station, which is a task type, and messages. Each step is a task of that
// type, with a [repeat.Args] as its arguments. When a step has succeeded, the next one waits for its
// time; a step that has failed starts again. After a plan error, or when its task
// ends as Failure by a fatal error, the plan is ERROR until a person resets it. The documents are in package repeat.
//
//	plans, err := plan.New(plan.Config{Database: db})
//	p, err := plans.Publish(ctx, repeat.Spec{
//		PlanID: "nightly-report", Station: "report", PlanType: repeat.Day, PlanValue: 1, PlanRepet: -1,
//		PlanTime: midnight, Messages: []any{"sales"},
//	})
//
// Engines decide what follows the end of a step: any number of processes call [Plans.Run]. A step's
// task has its time already, so it starts on time also while no engine runs.
package plan
