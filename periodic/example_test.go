package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// Report is the type of the tasks that the rules of the examples send.
var Report = model.NewType[string, model.None]("report")

// yearly is a rule that fires on the first of January.
var yearly = schedule.Spec{Name: "yearly", Cron: "@yearly", Type: "report", Args: "of the year"}

var background = context.Background()

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// openRules manages the rules of an empty database.
func openRules() (*periodic.Periodic, *mongo.Database) {
	db := testdb.Example()
	return must(periodic.New(periodic.Config{Database: db})), db
}

// Every process may manage rules; those that call Run decide their ticks.
func ExampleNew() {
	p, err := periodic.New(periodic.Config{Database: testdb.Example(), EngineID: "engine-1"})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(must(p.List(background, "", "", 100))))
	// Output: 0
}

// A rule fires once it is enabled and while an engine runs in some process.
func ExamplePeriodic_Run() {
	p, db := openRules()
	rule := must(p.Create(background, schedule.Spec{Name: "tick", Cron: "* * * * * *", Type: "report", Args: "of the second"}))
	must(p.Enable(background, rule.ID, rule.Version))

	ctx, stop := context.WithCancel(background)
	c := must(consumer.New(consumer.Config{Database: db}))
	err := consumer.Handle(c, Report, func(_ context.Context, t *consumer.Task[string]) (model.None, error) {
		if ctx.Err() == nil {
			fmt.Println("a report", t.Args)
		}
		stop()
		return model.None{}, nil
	})
	if err != nil {
		panic(err)
	}
	engine := make(chan error)
	go func() { engine <- p.Run(ctx) }()
	fmt.Println(c.Run(ctx))
	fmt.Println(<-engine)
	// Output:
	// a report of the second
	// <nil>
	// <nil>
}

// A new rule does not fire yet. Everything that is wrong with one is said at once.
func ExamplePeriodic_Create() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	fmt.Println(rule.Status, rule.Cron)

	_, err := p.Create(background, yearly)
	fmt.Println(errors.As(err, new(*model.RefusedError)))
	_, err = p.Create(background, schedule.Spec{Name: "bad", Cron: "at noon", Type: "report", QueueLimit: -1})
	for _, field := range []string{"cron", "queue_limit"} {
		fmt.Println(strings.Contains(err.Error(), field))
	}
	// Output:
	// new 0 0 0 1 1 *
	// true
	// true
	// true
}

// An edit begins with the stored definition and names the version that it saw.
func ExamplePeriodic_Update() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	spec := periodic.SpecOf(rule)
	spec.Cron = "@monthly"
	fmt.Println(must(p.Update(background, rule.ID, rule.Version, spec)).Cron)

	_, err := p.Update(background, rule.ID, rule.Version, spec)
	fmt.Println(errors.Is(err, model.ErrChanged))
	// Output:
	// 0 0 0 1 * *
	// true
}

// The definition has "***" for secrets, which an update leaves as they are.
func ExampleSpecOf() {
	p, _ := openRules()
	rule := must(p.Create(background, schedule.Spec{Name: "ping", Cron: "@daily", HTTP: &schedule.HTTPTarget{
		URL: "http://shop.example/ping", Headers: map[string]string{"Authorization": "Bearer secret"},
	}}))
	spec := periodic.SpecOf(rule)
	fmt.Println(spec.Name, spec.HTTP.URL, spec.HTTP.Headers["Authorization"])
	// Output: ping http://shop.example/ping ***
}

// A service applies its rules at each start.
func ExamplePeriodic_Apply() {
	p, _ := openRules()
	nightly := schedule.Spec{Name: "nightly", Enabled: new(true), Cron: "0 30 2 * * *", Timezone: "Europe/Berlin", Type: "report"}
	for range 2 {
		rule := must(p.Apply(background, nightly))
		fmt.Println(rule.Status, rule.Version)
	}
	nightly.Cron = "0 30 3 * * *"
	fmt.Println(must(p.Apply(background, nightly)).Version)
	// Output:
	// online 1
	// online 1
	// 2
}

// A test skips to the next tick: mstest.With(rules.Drain) calls it with the times that it skips to.
func ExamplePeriodic_Drain() {
	p, _ := openRules()
	rule := must(p.Apply(background, schedule.Spec{Name: "nightly", Enabled: new(true), Cron: "0 30 2 * * *", Type: "report"}))
	_, worked, err := p.Drain(background, rule.NextFireAt)
	fmt.Println(worked, err)
	// Output: true <nil>
}

func ExamplePeriodic_Enable() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	rule = must(p.Enable(background, rule.ID, rule.Version))
	fmt.Println(rule.Status, rule.NextFireAt.Month(), rule.NextFireAt.Day())
	// Output: online January 1
}

func ExamplePeriodic_Disable() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	must(p.Enable(background, rule.ID, 0)) // 0: whatever its version
	rule = must(p.Disable(background, rule.ID, 0, "nobody reads it"))
	fmt.Println(rule.Status, rule.PauseNote, rule.NextFireAt.IsZero())
	// Output: offline nobody reads it true
}

func ExamplePeriodic_Delete() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	fmt.Println(p.Delete(background, rule.ID, rule.Version))
	_, err := p.Get(background, rule.ID)
	fmt.Println(errors.Is(err, model.ErrNotFound))
	// Output:
	// <nil>
	// true
}

func ExamplePeriodic_Get() {
	p, _ := openRules()
	id := must(p.Create(background, yearly)).ID
	fmt.Println(must(p.Get(background, id)).Name)
	// Output: yearly
}

func ExamplePeriodic_Named() {
	p, _ := openRules()
	must(p.Create(background, yearly))
	fmt.Println(must(p.Named(background, "", "yearly")).Task.Type)
	// Output: report
}

// A page at a time: the next one begins after the last rule of the one before.
func ExamplePeriodic_List() {
	p, _ := openRules()
	for _, name := range []string{"a", "b", "c"} {
		must(p.Create(background, schedule.Spec{Name: name, Cron: "@daily", Type: "report"}))
	}
	const size = 2
	for after := ""; ; {
		rules := must(p.List(background, "", after, size))
		for _, r := range rules {
			fmt.Println(r.Name)
			after = r.Living
		}
		if len(rules) < size {
			break
		}
	}
	// Output:
	// a
	// b
	// c
}

// A run by hand. Whoever repeats the call with the same request gets the same run.
func ExamplePeriodic_Trigger() {
	p, db := openRules()
	rule := must(p.Create(background, yearly))
	again := periodic.TriggerOptions{Request: "monday"}
	run := must(p.Trigger(background, rule.ID, again))
	fmt.Println(run == must(p.Trigger(background, rule.ID, again)), run == rule.ID+"!monday")

	sender := must(producer.New(producer.Config{Database: db}))
	defer sender.Close(background)
	fmt.Println(must(sender.Get(background, model.TaskID("", "report", run))).Status)
	// Output:
	// true true
	// New
}

// The ticks of three years that have passed.
func ExamplePeriodic_Backfill() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(p.Backfill(background, rule.ID, from, from.AddDate(3, 0, 0), "once"))
	for _, run := range must(p.Runs(background, rule.ID, periodic.RunFilter{}, nil, 10)) {
		fmt.Println(run.Nominal.Year(), run.Status)
	}
	// Output:
	// 3 <nil>
	// 2022 SCHEDULED
	// 2021 SCHEDULED
	// 2020 SCHEDULED
}

func ExamplePeriodic_Runs() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	must(p.Trigger(background, rule.ID, periodic.TriggerOptions{Request: "monday"}))
	for _, run := range must(p.Runs(background, rule.ID, periodic.RunFilter{Statuses: []schedule.RunStatus{schedule.RunScheduled}}, nil, 10)) {
		fmt.Println(run.RuleName, run.Manual, run.Status)
	}
	// Output: yearly true SCHEDULED
}

func ExamplePeriodic_GetRun() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	id := must(p.Trigger(background, rule.ID, periodic.TriggerOptions{}))
	run := must(p.GetRun(background, id))
	fmt.Println(run.RuleName, run.Manual, run.Status)

	_, err := p.GetRun(background, rule.ID+"!nothing")
	fmt.Println(errors.Is(err, model.ErrNotFound))
	// Output:
	// yearly true SCHEDULED
	// true
}

func ExamplePeriodic_Cancel() {
	p, _ := openRules()
	rule := must(p.Create(background, yearly))
	run := must(p.Trigger(background, rule.ID, periodic.TriggerOptions{}))
	fmt.Println(p.Cancel(background, run))
	fmt.Println(must(p.GetRun(background, run)).Status)

	fmt.Println(errors.As(p.Cancel(background, rule.ID+"!nothing"), new(*model.RefusedError)))
	// Output:
	// <nil>
	// CANCELED
	// true
}

// ASYNC targets report the end of a run here. This token names none.
func ExampleCompletionHandler() {
	p := must(producer.New(producer.Config{Database: testdb.Example()}))
	defer p.Close(background)
	mux := http.NewServeMux()
	mux.Handle("/api/v1/callbacks/", periodic.CompletionHandler(p))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/api/v1/callbacks/a-token", strings.NewReader(`{"result": 17}`)))
	fmt.Println(answer.Code, strings.TrimSpace(answer.Body.String()))
	// Output: 404 {"error":"unknown token","reason":"unknown"}
}
