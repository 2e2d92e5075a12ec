package integration

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// A process as `work --periodic --flow --plan` starts it, with a rule and a plan that are due in a year:
// its worker watches, it does the upkeep, and its three engines share their looks.
func TestAnIdleProcessWithAllEnginesSendsAtMostThirtyCommandsAMinute(t *testing.T) {
	onEngines(t, inDepth(func(t *testing.T, e Engine) {
		if !e.Streams {
			t.Skip("its workers poll each second")
		}
		a := newArena(t, e)
		var mu sync.Mutex
		sent := map[string]int{}
		client, err := mongo.Connect(engine.Options(e.URI).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, ev *event.CommandStartedEvent) {
				coll, _ := ev.Command.Lookup(ev.CommandName).StringValueOK()
				mu.Lock()
				defer mu.Unlock()
				sent[ev.CommandName+" "+coll]++
			},
		}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		db := client.Database(a.db.Name())
		rules, err := periodic.New(periodic.Config{Database: db, EngineID: "engine"})
		require.NoError(t, err)
		r, err := rules.Create(t.Context(), schedule.Spec{Name: "rule", Cron: "@every 8760h", Type: "tick"})
		require.NoError(t, err)
		_, err = rules.Enable(t.Context(), r.ID, 0)
		require.NoError(t, err)
		flows, err := flow.New(flow.Config{Database: db, EngineID: "engine"})
		require.NoError(t, err)
		plans, err := plan.New(plan.Config{Database: db, EngineID: "engine"})
		require.NoError(t, err)
		_, err = plans.Publish(t.Context(), repeat.Spec{Station: planStep.Name(), PlanType: repeat.Time, PlanTime: time.Now().Add(365 * 24 * time.Hour), Messages: []any{planOrder{}}})
		require.NoError(t, err)
		a.hire("idle", nil, through(db), func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error { return consumer.Handle(c, planStep, runPlanStep(a.db)) }
		})
		for _, run := range []func(context.Context) error{rules.Run, flows.Run, plans.Run} {
			a.runEngine(run)
		}
		counts := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(sent)
		}
		const settles, minutes = 20 * time.Second, 3 // one minute may have a few commands more than the next
		time.Sleep(settles)                          // what begins has ended
		before := counts()
		time.Sleep(minutes * time.Minute) // it is idle
		total := 0
		for what, n := range counts() {
			if n -= before[what]; n > 0 {
				t.Log(fmt.Sprint(n, " ", what))
				total += n
			}
		}
		require.Positive(t, total)
		most := 30 * minutes
		if !e.virtual() { // a stream that is slow to answer has a few polls sent
			most += 5 * minutes
		}
		require.LessOrEqual(t, total, most)
	}))
}
