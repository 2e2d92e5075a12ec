package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// The size of the scenario: so many plans, so long, with these random numbers.
const (
	planCount   = "MSCHEDULER_PLANS_COUNT"
	planSeconds = "MSCHEDULER_PLANS_SECONDS"
	planSeed    = "MSCHEDULER_PLANS_SEED"
)

// TestPlanChild is no test: it is what the processes of the scenario run.
func TestPlanChild(t *testing.T) {
	role, name, db := asChild(t, "plan-")
	p, err := plan.New(plan.Config{Database: db, Logger: zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)})
	require.NoError(t, err)
	switch role {
	case "plan-engine":
		require.NoError(t, p.Run(t.Context()))
	case "plan-person":
		var seed, count int
		_, err = fmt.Sscanf(name, "person-%d-%d", &seed, &count)
		require.NoError(t, err)
		require.NoError(t, planPerson(t.Context(), p, randomPlans(seed, count)))
	case "plan-canceller":
		_, err = p.Cancel(t.Context(), "-/"+name, "not needed")
		require.NoError(t, err)
	default:
		work := func(name string) {
			c, err := consumer.New(consumer.Config{Database: db, WorkerID: name, Concurrency: 50, Callbacks: &consumer.CallbackConfig{SecretKey: secretKey}})
			if assert.NoError(t, err) && assert.NoError(t, consumer.Handle(c, planStep, runPlanStep(db))) {
				assert.NoError(t, c.Run(t.Context()))
			}
		}
		if role == "plan-both" { // as work --plan: the engine hears of the ends of its two workers
			go func() { assert.NoError(t, p.Run(t.Context())) }()
			go work(name + "-second")
		}
		work(name)
	}
}

func randomPlans(seed, count int) []planCase {
	out := make([]planCase, count)
	for n := range out {
		out[n] = randomPlan(seed, n)
	}
	return out
}

// planPerson publishes plans, and then resets those that are ERROR and cancels some of those that it may,
// again and again, until ctx ends.
func planPerson(ctx context.Context, p *plan.Plans, cases []planCase) error {
	for _, c := range cases { // from the beginning: those that exist stay as they are
		if _, err := p.Publish(ctx, c.spec); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		for _, c := range cases {
			if c.cancels && rand.IntN(20) == 0 {
				if _, err := p.Cancel(ctx, "-/"+c.spec.PlanID, "not needed"); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
		broken, err := p.List(ctx, plan.Filter{Status: repeat.StatusError}, nil, 1000)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, doc := range broken {
			if _, err := p.Reset(ctx, doc.ID); err != nil && !errors.As(err, new(*model.RefusedError)) && ctx.Err() == nil { // another person was quicker
				return err
			}
		}
		select {
		case <-time.After(100 * time.Millisecond): // people are slow
		case <-ctx.Done():
		}
	}
	return nil
}

// planRoles are the processes of the scenario.
var planRoles = [...]string{"plan-engine", "plan-engine", "plan-both", "plan-both", "plan-worker", "plan-person"}

// Every step of every plan succeeds once, in order, with its results, and no plan miscounts its steps,
// although the processes that publish plans, reset and cancel them, run their steps and decide about
// them are killed and frozen at random moments.
func TestEachStepOfAPlanSucceedsOnceAlthoughProcessesDieAndFreeze(t *testing.T) {
	aloneWithRace(t)
	onEnginesAlone(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		seed := number(t, planSeed, int(time.Now().UnixNano()&0xffffff))
		count := number(t, planCount, e.Of(120, 30))
		lasts := time.Duration(number(t, planSeconds, 5)) * time.Second
		t.Logf("seed %d, %d plans, %v", seed, count, lasts)
		ways, started := [len(planRoles)]string{}, 0 // their ways to the server
		for n := range ways {
			ways[n] = a.slowly(time.Duration(3*(n+1)) * time.Millisecond)
		}
		c := &rager{arena: a, rand: rand.New(rand.NewPCG(uint64(seed), 1)), freezes: func(int) bool { return true }}
		c.begin = func(n int) *fleet.Process {
			started++
			name := fmt.Sprint(planRoles[n], "-", started)
			if planRoles[n] == "plan-person" {
				name = fmt.Sprintf("person-%d-%d", seed, count)
			}
			return a.process("TestPlanChild", name, planRoles[n], ways[n])
		}
		c.start(len(planRoles))
		c.rage(lasts)
		cases := randomPlans(seed, count)
		p, err := plan.New(plan.Config{Database: a.db})
		require.NoError(t, err)
		stop := a.runEngine(func(ctx context.Context) error { return planPerson(ctx, p, cases) })
		a.publish(cases) // what that person left
		a.awaitQuietPlans()
		stop()
		a.checkPlans(cases)
	})))
}
