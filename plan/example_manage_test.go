package plan_test

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

var ctx = context.Background()

// station runs the steps of reports. A step fails if its messages are empty.
func station(db *mongo.Database) *consumer.Consumer {
	c := must(consumer.New(consumer.Config{Database: db}))
	must(0, consumer.Handle(c, reports, func(_ context.Context, task *consumer.Task[repeat.Args[string]]) (string, error) {
		if task.Args.Messages[0] == "" {
			return "", consumer.PlanError(errors.New("no region"))
		}
		return fmt.Sprint("reported ", task.Args.Messages), nil
	}))
	return c
}

// Once is a plan of one step, due at once.
func Once(id, region string) repeat.Spec {
	return repeat.Spec{PlanID: id, Station: reports.Name(), Description: "sales", PlanType: repeat.None, Messages: []any{region}}
}

func ExamplePlans_Drain() {
	db := testdb.Example()
	plans, c := must(plan.New(plan.Config{Database: db})), station(db)
	p := must(plans.Publish(ctx, Once("north", "north")))
	must(c.Drain(ctx, false, plans.Drain)) // runs tasks, and plans steps, until nothing is due
	fmt.Println(must(plans.Get(ctx, p.ID)).Status)
	// Output: FINISH
}

func ExamplePlans_PublishMany() {
	plans := must(plan.New(plan.Config{Database: testdb.Example()}))
	must(plans.Publish(ctx, Once("north", "north")))
	for _, p := range must(plans.PublishMany(ctx, []repeat.Spec{Once("north", "north"), Once("south", "south")})) {
		fmt.Println(p.ID, p.Created)
	}
	// Output:
	// -/north false
	// -/south true
}

// The last plan of a page is where the next page begins.
func ExamplePlans_List() {
	plans := must(plan.New(plan.Config{Database: testdb.Example()}))
	must(plans.PublishMany(ctx, []repeat.Spec{Once("north", "north"), Once("south", "south"), Once("west", "west")}))
	n, last := 0, (*repeat.Plan)(nil)
	for {
		page := must(plans.List(ctx, plan.Filter{Tenant: model.NoTenant, Station: reports.Name()}, last, 2))
		if len(page) == 0 {
			break
		}
		n, last = n+len(page), page[len(page)-1]
	}
	fmt.Println(n)
	// Output: 3
}

func ExamplePlans_Cancel() {
	plans := must(plan.New(plan.Config{Database: testdb.Example()}))
	p := must(plans.Publish(ctx, Once("north", "north")))
	p = must(plans.Cancel(ctx, p.ID, "the office is closed"))
	fmt.Println(p.Status, p.Reason)
	// Output: CANCELLED the office is closed
}

// A person corrects what was wrong, and the step that failed starts again.
func ExamplePlans_Reset() {
	db := testdb.Example()
	plans, c := must(plan.New(plan.Config{Database: db})), station(db)
	p := must(plans.Publish(ctx, Once("none", "")))
	must(c.Drain(ctx, false, plans.Drain))
	p = must(plans.Get(ctx, p.ID))
	fmt.Println(p.Status, p.Reason)
	p = must(plans.Reset(ctx, p.ID))
	fmt.Println(p.Status)
	// Output:
	// ERROR no region
	// RUNNING
}

func ExamplePlans_Subscribe() {
	db := testdb.Example()
	plans, c := must(plan.New(plan.Config{Database: db})), station(db)
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- c.Run(run) }()
	go func() { ended <- plans.Run(run) }()

	endless := Once("north", "north") // one step after the other, so that some follow the subscription
	endless.PlanType, endless.PlanRepet, endless.NoKeep = repeat.Second, -1, true
	must(plans.Publish(ctx, endless))
	for e, err := range plans.Subscribe(ctx, plan.Topic{Title: "sales"}) {
		must(0, err)
		fmt.Println(e.Title, e.Subtitle, e.Result.State)
		break
	}
	stop()
	must(0, <-ended)
	must(0, <-ended)
	// Output: sales north OK
}
