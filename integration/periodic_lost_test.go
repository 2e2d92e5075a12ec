package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// tickHand is a worker for tickWork.
func (a *arena) tickHand() *hand {
	return a.hire("ticker", nil, func(c *handConfig) {
		c.register = func(c *consumer.Consumer) error {
			return consumer.Handle(c, tickWork, func(context.Context, *consumer.Task[int]) (model.None, error) { return model.None{}, nil })
		}
	})
}

// Each write of an engine is cut off, once for the driver and once for its own second try.
func TestALostAnswerOfAnEngineCostsNoTickAndDoublesNone(t *testing.T) {
	t.Parallel()
	cutEach(t, map[string]proxy.Rule{
		"decision":    {Command: "update", Collection: "periodic_rules", Contains: "decided_to"},
		"end":         {Command: "update", Collection: "periodic_rules", Contains: "$push", Lacks: "decided_to"},
		"task":        {Command: "insert", Collection: "tasks"},
		"record":      {Command: "update", Collection: "periodic_runs"},
		"carried out": {Command: "update", Collection: "periodic_rules", Lacks: "$set"},
	}, func(a *arena, away *mongo.Database, trap *proxy.Trap) {
		p, err := periodic.New(periodic.Config{Database: away})
		require.NoError(a.t, err)
		a.tickHand()
		rules, end := a.tickRules(5, 8*time.Second)
		a.runEngine(p.Run)
		a.awaitQuiet()
		require.Eventually(a.t, func() bool { return trap.Sprung() == 2 }, chaosPatience, 10*time.Millisecond, "the write never came twice")
		a.checkTicks(rules, end)
	})
}

// A run whose task somebody deleted gives its place to the next, one whose task has moved to
// the history or was told once counts as that says, and one that takes its time goes on.
func TestRunsWhoseEndsNobodyTellsGiveTheirPlaceToOthers(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ctx := t.Context()
		p, err := periodic.New(periodic.Config{Database: a.db})
		require.NoError(t, err)
		var ids []string
		const gone, told, moved, slow = 0, 1, 2, 3
		tasks, rules := a.db.Collection("tasks"), a.db.Collection("periodic_rules")
		for _, name := range []string{"gone", "told", "moved", "slow"} {
			r, err := p.Create(ctx, schedule.Spec{Name: name, Cron: "@yearly", Type: tickWork.Name(), Args: 0, MaxConcurrency: 1})
			require.NoError(t, err)
			for _, request := range []string{"first", "second"} {
				_, err = p.Trigger(ctx, r.ID, periodic.TriggerOptions{Request: request})
				require.NoError(t, err)
			}
			ids = append(ids, r.ID)
			_, err = rules.UpdateByID(ctx, r.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "active.0.started", Value: time.Now().Add(-time.Hour)}}}})
			require.NoError(t, err)
		}
		taskOf := func(n int) bson.D {
			return bson.D{{Key: "_id", Value: "-/" + tickWork.Name() + "/" + ids[n] + "!first"}}
		}
		end := bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "Success"}, {Key: "finished_at", Value: time.Now()}}}, {Key: "$unset", Value: bson.D{{Key: "due_at", Value: ""}}}}
		for _, n := range []int{told, moved} {
			_, err = tasks.UpdateOne(ctx, taskOf(n), end)
			require.NoError(t, err)
		}
		var doc bson.D
		require.NoError(t, tasks.FindOne(ctx, taskOf(moved)).Decode(&doc))
		life := append(bson.D{{Key: "_id", Value: "moved by hand"}, {Key: "task_id", Value: doc[0].Value}}, doc[1:]...)
		_, err = a.db.Collection("task_history").InsertOne(ctx, life)
		require.NoError(t, err)
		for _, n := range []int{gone, moved} {
			_, err = tasks.DeleteOne(ctx, taskOf(n))
			require.NoError(t, err)
		}

		a.runEngine(p.Run)
		for n, want := range map[int]schedule.RunStatus{gone: schedule.RunCanceled, told: schedule.RunSuccess, moved: schedule.RunSuccess} {
			awaitTrue(t, func() string {
				r, err := p.Get(ctx, ids[n])
				require.NoError(t, err)
				if len(r.Active) != 1 || r.Active[0].ID != ids[n]+"!second" || len(r.Planned) > 0 {
					return "the second run of " + r.Name
				}
				return ""
			})
			run, err := a.store.Runs.Get(ctx, ids[n]+"!first")
			require.NoError(t, err)
			require.Equal(t, want, run.Status)
			if n == gone {
				require.Equal(t, "its task is gone", run.Error)
			}
			_, err = a.p.Get(ctx, "-/"+tickWork.Name()+"/"+ids[n]+"!second")
			require.NoError(t, err)
		}
		r, err := p.Get(ctx, ids[slow])
		require.NoError(t, err)
		require.Equal(t, ids[slow]+"!first", r.Active[0].ID, "its task waits for a worker, for as long as it takes")
	})
}
