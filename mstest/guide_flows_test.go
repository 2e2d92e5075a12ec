package mstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
)

// The code of docs/guide.md about flows, and about a process that does everything.

// Claim is a claim for damages.
type Claim struct {
	Photos []string `json:"photos"`
	Amount int      `json:"amount"`
}

// Settlement says what to do with a claim.
type Settlement struct {
	Amount  int  `json:"amount"`
	Unclear bool `json:"unclear"`
}

// The tasks of a claim.
var (
	Inspect = model.NewType[string, int]("claim.inspect")            // a photo; the damage that it shows
	Assess  = model.NewType[[]int, Settlement]("claim.assess")       // the damages; what to pay
	Pay     = model.NewType[Settlement, model.None]("claim.pay")     // what to pay
	Refuse  = model.NewType[model.None, model.None]("claim.refuse")  // writes to the customer
	Archive = model.NewType[model.None, model.None]("claim.archive") // whatever came of it
)

// ClaimFlow inspects each photo, at most ten at a time, and assesses the damage. If that is unclear, it asks a
// person. It pays the claim or refuses it, and archives it in the end.
func ClaimFlow(id string, c Claim) graph.Spec {
	return graph.Spec{Key: "claim-" + id, Args: c, Nodes: []graph.NodeSpec{
		{ID: "inspect", Type: Inspect.Name(), Args: flow.Item(""), Each: &graph.Each{Items: flow.Arg("photos"), Limit: 10}},
		{ID: "assess", Type: Assess.Name(), After: []string{"inspect"}, Args: flow.Output("inspect")},
		{
			ID: "review", After: []string{"assess"}, When: map[string]any{"assess": map[string]any{"output.unclear": true}},
			Ask: &graph.Ask{Title: "Pay this claim?", Fields: []graph.Field{{Name: "pay", Kind: "bool", Required: true}}},
		},
		{
			ID: "pay", Type: Pay.Name(), After: []string{"assess", "review"}, Args: flow.Output("assess"),
			When: map[string]any{
				"assess": map[string]any{"output.unclear": false, "output.amount": map[string]any{"$gt": 0}},
				"review": map[string]any{"output.pay": true},
			},
		},
		{
			ID: "refuse", Type: Refuse.Name(), After: []string{"review"},
			When: map[string]any{"review": map[string]any{"output.pay": false}},
		},
		{ID: "archive", Type: Archive.Name(), After: []string{"pay", "refuse"}},
	}}
}

// Notify runs the notices of one customer one after the other, each after the one before has ended. The stream
// exists as soon as something is appended, and takes more at any time.
func Notify(ctx context.Context, flows *flow.Flows, customer string, notices ...string) error {
	nodes := make([]graph.NodeSpec, len(notices))
	for i, notice := range notices {
		nodes[i] = graph.NodeSpec{Type: Welcome.Name(), Args: WelcomeArgs{User: notice}}
	}
	_, err := flows.Append(ctx, "notices", customer, nodes...)
	return err
}

// Night is the station of the plans: it makes the figures of one day.
var Night = model.NewType[repeat.Args[string], model.None]("figures.make")

// FiguresFor makes the figures on each of the 92 days after a day, at its time of day: the first step comes one
// interval after PlanTime. A night on which nothing could run follows as soon as it can.
func FiguresFor(ctx context.Context, plans *plan.Plans, after time.Time) (*repeat.Plan, error) {
	return plans.Publish(ctx, repeat.Spec{
		PlanID: "figures-" + after.Format(time.DateOnly), Station: Night.Name(), Messages: []any{"figures"},
		PlanTime: after, Timezone: "Europe/Berlin", PlanType: repeat.Day, PlanValue: 1, PlanRepet: 92, NoKeep: true,
	})
}

// RunService is a process that does everything: it runs tasks, and decides about rules, flows and plans. Several
// such processes share the work. When ctx or one part ends, all parts stop gracefully: an operator may drain the
// worker.
func RunService(ctx context.Context, db *mongo.Database, register func(*consumer.Consumer) error) error {
	worker, err := consumer.New(consumer.Config{Database: db})
	if err != nil {
		return err
	}
	if err := register(worker); err != nil {
		return err
	}
	rules, err := periodic.New(periodic.Config{Database: db})
	if err != nil {
		return err
	}
	flows, err := flow.New(flow.Config{Database: db})
	if err != nil {
		return err
	}
	plans, err := plan.New(plan.Config{Database: db})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	for _, run := range []func(context.Context) error{worker.Run, rules.Run, flows.Run, plans.Run} {
		group.Go(func() error {
			defer stop() // whichever ends first stops the others
			return run(ctx)
		})
	}
	return group.Wait()
}

// claims has handlers for the tasks of claims. A damage above the bound is unclear.
func claims(t *testing.T, db *mongo.Database) (flows *flow.Flows, c *consumer.Consumer, done *[]string) {
	t.Helper()
	flows, err := flow.New(flow.Config{Database: db})
	require.NoError(t, err)
	c, err = consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	done = &[]string{}
	require.NoError(t, consumer.Handle(c, Inspect, func(_ context.Context, task *consumer.Task[string]) (int, error) { return len(task.Args), nil }))
	require.NoError(t, consumer.Handle(c, Assess, func(_ context.Context, task *consumer.Task[[]int]) (s Settlement, err error) {
		for _, damage := range task.Args {
			s.Amount += damage
		}
		s.Unclear = s.Amount > 10
		return s, nil
	}))
	require.NoError(t, consumer.Handle(c, Pay, func(_ context.Context, task *consumer.Task[Settlement]) (model.None, error) {
		*done = append(*done, "paid")
		return model.None{}, nil
	}))
	for typ, did := range map[model.Type[model.None, model.None]]string{Refuse: "refused", Archive: "archived"} {
		require.NoError(t, consumer.Handle(c, typ, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
			*done = append(*done, did)
			return model.None{}, nil
		}))
	}
	return flows, c, done
}

func TestAClaimIsPaidOrAskedAbout(t *testing.T) {
	db := mstest.DB(t)
	flows, c, done := claims(t, db)
	_, err := flows.Start(t.Context(), ClaimFlow("small", Claim{Photos: []string{"abc", "de"}}))
	require.NoError(t, err)
	mstest.Drain(t, c, mstest.With(flows.Drain))
	require.Equal(t, []string{"paid", "archived"}, *done)

	for answer, then := range map[bool][]string{true: {"paid", "archived"}, false: {"refused", "archived"}} {
		*done = nil
		f, err := flows.Start(t.Context(), ClaimFlow("large-"+then[0], Claim{Photos: []string{"abcdef", "ghijklm"}}))
		require.NoError(t, err)
		mstest.Drain(t, c, mstest.With(flows.Drain))
		require.Empty(t, *done, "a person decides")
		_, err = flows.Answer(t.Context(), f.ID, "review", map[string]any{"pay": answer}, "")
		require.NoError(t, err)
		mstest.Drain(t, c, mstest.With(flows.Drain))
		require.Equal(t, then, *done)
	}
}

func TestAServiceWhoseWorkerStopsEnds(t *testing.T) {
	t.Parallel()
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	_, err = producer.Send(t.Context(), p, Welcome, WelcomeArgs{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, RunService(ctx, db, func(c *consumer.Consumer) error {
		return consumer.Handle(c, Welcome, func(context.Context, *consumer.Task[WelcomeArgs]) (model.None, error) {
			go func() { _ = c.Stop(context.Background()) }()
			return model.None{}, nil
		})
	}))
	require.NoError(t, ctx.Err())
}

func TestAServiceRunsTasksRulesFlowsAndPlans(t *testing.T) {
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	told := make(chan string, 3)
	nights := make(chan int64, 100)
	go func() {
		ended <- RunService(ctx, db, func(c *consumer.Consumer) error {
			if err := consumer.Handle(c, Night, func(_ context.Context, task *consumer.Task[repeat.Args[string]]) (model.None, error) {
				nights <- task.Args.Step
				return model.None{}, nil
			}); err != nil {
				return err
			}
			return consumer.Handle(c, Welcome, func(_ context.Context, task *consumer.Task[WelcomeArgs]) (model.None, error) {
				told <- task.Args.User
				return model.None{}, nil
			})
		})
	}()
	flows, err := flow.New(flow.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, Notify(t.Context(), flows, "ann", "first", "second", "third"))
	for _, notice := range []string{"first", "second", "third"} {
		require.Equal(t, notice, <-told)
	}
	plans, err := plan.New(plan.Config{Database: db})
	require.NoError(t, err)
	_, err = FiguresFor(t.Context(), plans, time.Now().AddDate(0, 0, -3))
	require.NoError(t, err)
	for step := 1; step <= 2; step++ {
		require.EqualValues(t, step, <-nights)
	}
	stop()
	require.NoError(t, <-ended)
}
