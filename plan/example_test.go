package plan_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// reports is the station of the plan: each step makes the reports of one day.
var reports = model.NewType[repeat.Args[string], string]("sales.report")

// ReportPlan reports the sales of some regions on each of the seven days after a day, at its time of day: the first
// step comes one interval after PlanTime. If nothing runs one night, that step runs later.
func ReportPlan(after time.Time, regions ...any) repeat.Spec {
	return repeat.Spec{
		PlanID: "sales-" + after.Format(time.DateOnly), Station: reports.Name(), Description: "sales",
		PlanType: repeat.Day, PlanValue: 1, PlanRepet: 7, NoKeep: true,
		PlanTime: after, Timezone: "Europe/Berlin", Messages: regions,
	}
}

func Example() {
	db := testdb.Example()
	plans := must(plan.New(plan.Config{Database: db}))
	c := must(consumer.New(consumer.Config{Database: db}))
	must(0, consumer.Handle(c, reports, func(_ context.Context, task *consumer.Task[repeat.Args[string]]) (string, error) {
		return fmt.Sprint("reported ", task.Args.Messages), nil // of the day before task.Args.PlanTime
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- plans.Run(ctx) }()

	berlin := must(time.LoadLocation("Europe/Berlin"))
	p := must(plans.Publish(ctx, ReportPlan(time.Date(2026, 1, 31, 2, 0, 0, 0, berlin), "north", "south")))
	for p.Status == repeat.StatusRunning { // the week has passed, so the steps follow one another at once
		time.Sleep(10 * time.Millisecond)
		p = must(plans.Get(ctx, p.ID))
	}
	for _, r := range must(plans.Results(ctx, p.ID, nil, 100)) {
		fmt.Println(r.Step, r.PlanTime.In(berlin).Format("Jan 2 15:04"), r.State, r.Result.StringValue())
	}
	fmt.Println(p.Status, p.RealRepet)
	stop()
	must(0, <-ended)
	must(0, <-ended)
	// Output:
	// 1 Feb 1 02:00 OK reported [north south]
	// 2 Feb 2 02:00 OK reported [north south]
	// 3 Feb 3 02:00 OK reported [north south]
	// 4 Feb 4 02:00 OK reported [north south]
	// 5 Feb 5 02:00 OK reported [north south]
	// 6 Feb 6 02:00 OK reported [north south]
	// 7 Feb 7 02:00 OK reported [north south]
	// FINISH 7
}

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
