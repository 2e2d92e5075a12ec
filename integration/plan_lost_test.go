package integration

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// planWrites are the writes between the end of a step and the start of the next one, of a try and the
// next one, and those that follow the last step.
var planWrites = map[string]proxy.Rule{
	"claim":       {Command: "update", Collection: "tasks", Contains: "Executing"},
	"end":         {Command: "update", Collection: "tasks", Contains: "finished_at"},
	"decision":    {Command: "update", Collection: "plans", Contains: "decision"},
	"next task":   {Command: "insert", Collection: "tasks"},
	"results":     {Command: "insert", Collection: "plan_results"},
	"last life":   {Command: "update", Collection: "task_history"},
	"new life":    {Command: "update", Collection: "tasks", Contains: "origin"},
	"told":        {Command: "update", Collection: "tasks", Contains: "$size"},
	"carried out": {Command: "update", Collection: "plans", Contains: "$unset", Lacks: "$set"},
	"history":     {Command: "insert", Collection: "plan_history"},
	"leaving":     {Command: "update", Collection: "plans", Contains: "delete_at", Lacks: "decision"},
}

// lostPlans are plans without a fault, with a step that fails first, of steps so far apart that what is carried
// out does not wait for the next decision, with two participants one of whom fails, with a step that fails
// until others are late, which are skipped, and of one step.
func lostPlans() []planCase {
	apart, once := planOf(2, 8, "", ""), planOf(5, 0, "")
	apart.spec.PlanTime = time.Now().Add(-7 * time.Second) // so its steps begin after one second and after nine
	once.spec.PlanType, once.spec.PlanRepet = "none", 0
	return []planCase{
		planOf(0, 0, "", "", ""), planOf(1, 0, "", string(tryFails)), apart,
		planOf(3, 0, "", string(tryOneFails), "").by(2), planOf(4, 1, string([]rune{tryFails, tryFails}), "", "", "", "").skipping(), once,
	}
}

// publish publishes plans.
func (a *arena) publish(cases []planCase) {
	a.t.Helper()
	p, err := plan.New(plan.Config{Database: a.db, SecretKey: secretKey})
	require.NoError(a.t, err)
	for _, c := range cases {
		_, err := p.Publish(a.t.Context(), c.spec)
		require.NoError(a.t, err)
	}
}

// planHand is a process that runs steps, as two workers, and decides about plans, as `work --plan` does.
func (a *arena) planHand(name string, db *mongo.Database) (stop func()) {
	a.t.Helper()
	hire := func(name string) *hand {
		return a.hire(name, nil, through(db), func(c *handConfig) {
			c.Callbacks = &consumer.CallbackConfig{SecretKey: secretKey}
			c.register = func(c *consumer.Consumer) error { return consumer.Handle(c, planStep, runPlanStep(a.db)) }
		})
	}
	hands := []*hand{hire(name), hire(name + "-second")}
	p, err := plan.New(plan.Config{Database: db, EngineID: "engine-" + name})
	require.NoError(a.t, err)
	engine := a.runEngine(p.Run)
	return func() {
		engine()
		for _, h := range hands {
			require.NoError(a.t, h.stop())
		}
	}
}

// A write is cut off, before or after the server sees it: the process goes on by itself.
func TestALostAnswerBetweenTwoStepsOfAPlanLosesNoneAndDoublesNone(t *testing.T) {
	t.Parallel()
	cutEach(t, planWrites, func(a *arena, away *mongo.Database, trap *proxy.Trap) {
		a.publish(lostPlans())
		a.planHand("one", away)
		a.awaitQuietPlans()
		require.Positive(a.t, trap.Sprung(), "the write never came")
		a.checkPlans(lostPlans())
	})
}

// A process stands still in a write, before or after the server sees it. To the others it is dead:
// they go on without it. When it wakes up, its late write changes nothing.
func TestAProcessFrozenBetweenTwoStepsOfAPlanIsReplacedAndItsLateWriteRefused(t *testing.T) {
	t.Parallel()
	freezeEach(t, planWrites, func(a *arena) frozenWork {
		a.publish(lostPlans())
		return frozenWork{
			hand: a.planHand, quiet: a.awaitQuietPlans, check: func() { a.checkPlans(lostPlans()) },
			seen: func() map[string]bson.M {
				return a.stored("chaos", "plans", "plan_history", "plan_results", "tasks", "task_history")
			},
		}
	})
}

// A process is killed in a write, before or after the server sees it. Another one goes on from there. The
// last plan has a callback, which is called once.
func TestAProcessKilledBetweenTwoStepsOfAPlanLeavesNothingUndone(t *testing.T) {
	t.Parallel()
	writes := maps.Clone(planWrites)
	writes["callback"] = proxy.Rule{Command: "insert", Collection: "tasks", Contains: input.CallbackType}
	killEach(t, writes, func(a *arena) killedWork {
		var calls sync.Map
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { calls.Store(r.Header.Get("webhook-id"), true) }))
		a.t.Cleanup(server.Close)
		cases := lostPlans()
		cases[len(cases)-1].spec.Callback = &model.Callback{Success: &model.CallbackTarget{URL: server.URL}}
		a.publish(cases)
		return killedWork{
			child: func(uri string) *fleet.Process { return a.process("TestPlanChild", "killed", "plan-both", uri) },
			goOn:  func() { a.planHand("other", a.db); a.awaitQuietPlans() },
			check: func() {
				a.checkPlans(cases)
				n := 0
				calls.Range(func(any, any) bool { n++; return true })
				require.Equal(a.t, 1, n, "calls that differ")
			},
		}
	})
}

// cancelWrites are the writes by which a person cancels a plan.
var cancelWrites = map[string]proxy.Rule{
	"decision": {Command: "update", Collection: "plans", Contains: "decision"},
	"task":     {Command: "update", Collection: "tasks", Contains: "finished_at"},
}

// A person's process is killed while it cancels a plan whose step waits, before or after the server sees
// the write. Either nothing has happened, and the person tries again, or others cancel the step.
func TestAPersonKilledWhileCancellingAPlanLeavesNoStepBehind(t *testing.T) {
	t.Parallel()
	killEach(t, cancelWrites, func(a *arena) killedWork {
		cases := []planCase{planOf(0, 0, ""), planOf(1, 0, "")}
		cases[1].spec.PlanTime, cases[1].cancels = time.Now().Add(time.Hour), true
		a.publish(cases)
		return killedWork{
			child: func(uri string) *fleet.Process {
				return a.process("TestPlanChild", cases[1].spec.PlanID, "plan-canceller", uri)
			},
			goOn: func() {
				a.planHand("other", a.db)
				p, err := plan.New(plan.Config{Database: a.db})
				require.NoError(a.t, err)
				doc, err := p.Get(a.t.Context(), "-/"+cases[1].spec.PlanID)
				require.NoError(a.t, err)
				if doc.Status == repeat.StatusRunning { // the write was lost
					_, err = p.Cancel(a.t.Context(), doc.ID, "again")
					require.NoError(a.t, err)
				}
				a.awaitQuietPlans()
			},
			check: func() { a.checkPlans(cases) },
		}
	})
}

// A publisher stores plans, and cannot send their first steps. Engines send them long before their times.
func TestAFirstStepThatCannotBeSentIsLeftToTheEngines(t *testing.T) {
	onEngines(t, inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		trap := px.Set(proxy.Rule{Command: "insert", Collection: "tasks", Do: proxy.CutBefore, Times: -1})
		p, err := plan.New(plan.Config{Database: away})
		require.NoError(t, err)
		doc, err := p.Publish(t.Context(), repeat.Spec{Station: planStep.Name(), PlanType: repeat.Time, PlanTime: time.Now().Add(24 * time.Hour), Messages: []any{planOrder{}}})
		require.NoError(t, err, "the plan is stored")
		require.Positive(t, trap.Sprung())
		sent := func() int64 {
			n, err := a.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "origin.id", Value: doc.ID}})
			require.NoError(t, err)
			return n
		}
		require.Zero(t, sent())
		engine, err := plan.New(plan.Config{Database: a.db})
		require.NoError(t, err)
		defer a.runEngine(engine.Run)()
		awaitTrue(t, func() string {
			if sent() == 0 {
				return "the first step is not sent"
			}
			return ""
		})
	}))
}
