package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// planOrder is the message of a plan: what becomes of the tries of its steps.
type planOrder struct {
	Plan int `bson:"plan" json:"plan"`
	// Ends has a text for each step, from the first on, with a letter for each try: f fails, o fails after one
	// participant has succeeded, e is a plan error. The try after those succeeds.
	Ends  []string `bson:"ends" json:"ends"`
	Skips bool     `bson:"skips" json:"skips"` // times that have passed
}

const (
	tryFails     = 'f'
	tryOneFails  = 'o'
	tryPlanError = 'e'
)

// planStep is the type of the steps.
var planStep = model.NewType[repeat.Args[planOrder], string]("chaos.step")

// planCase is a plan of the scenarios, the same whoever asks for its number.
type planCase struct {
	spec    repeat.Spec
	ends    []string // see planOrder
	cancels bool     // somebody cancels it at any time
}

// participants is how many workers must succeed in each step.
func (c planCase) participants() int { return max(c.spec.Options.ConcurrentWorkerCount, 1) }

// by has that many workers take part in each step.
func (c planCase) by(participants int) planCase {
	c.spec.Options.ConcurrentWorkerCount = participants
	return c
}

// skipping leaves out the steps whose times have passed.
func (c planCase) skipping() planCase {
	order := c.spec.Messages[0].(planOrder)
	order.Skips, c.spec.NoKeep = true, false
	c.spec.Messages = []any{order}
	return c
}

func planKey(n int) string { return fmt.Sprintf("chaos-%d", n) }

// planOf is a plan of steps that end like that, one every so many seconds.
func planOf(n, seconds int, ends ...string) planCase {
	return planCase{ends: ends, spec: repeat.Spec{
		PlanID: planKey(n), Station: planStep.Name(), Description: "chaos", PlanType: repeat.Second, PlanValue: seconds, PlanRepet: len(ends), NoKeep: true,
		Messages: []any{planOrder{Plan: n, Ends: ends}},
		Options: model.Options{
			Retry: &model.Retry{Strategy: model.RetryNone}, WorkerTimeout: time.Second, PingInterval: 250 * time.Millisecond, MaxLapses: new(1000),
		},
	}}
}

// randomPlan is the plan of that number. It has one to five steps. Some fail at first, and some have plan
// errors. Some plans have two participants, and some skip what is late.
func randomPlan(seed, n int) planCase {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	ends := make([]string, 1+r.IntN(5))
	for i := range ends {
		switch r.IntN(10) {
		case 0, 1:
			ends[i] = string(tryFails)
		case 2:
			ends[i] = string(tryPlanError)
		}
	}
	c := planOf(n, r.IntN(2), ends...)
	switch r.IntN(8) {
	case 0:
		c = planOf(n, 0, ends[0])
		c.spec.PlanType, c.spec.PlanRepet = repeat.None, 0
	case 1:
		c.cancels = true
	case 2:
		c = planOf(n, 1, ends...).skipping()
	}
	if r.IntN(4) == 0 {
		c = c.by(2)
	}
	return c
}

// planMark is what a handler notes when it begins.
type planMark struct {
	Exec  string `bson:"_id"`
	Task  string `bson:"task"`
	Try   int64  `bson:"try"`
	Early string `bson:"early,omitempty"`
}

// runPlanStep is the handler of the steps. It notes that it began, and whether it might.
func runPlanStep(db *mongo.Database) func(context.Context, *consumer.Task[repeat.Args[planOrder]]) (string, error) {
	return func(ctx context.Context, task *consumer.Task[repeat.Args[planOrder]]) (string, error) {
		try := task.Origin.Generation
		early, err := planStepEarly(ctx, db, task.Args)
		if err != nil {
			return "", consumer.Release()
		}
		mark := planMark{Exec: task.ID, Task: task.TaskID, Try: try, Early: early}
		if _, err := db.Collection("marks").InsertOne(ctx, mark); err != nil {
			return "", consumer.Release()
		}
		select { // so that steps end at any time
		case <-time.After(rand.N(40 * time.Millisecond)):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if ends := task.Args.Messages[0].Ends[task.Args.Step-1]; try < int64(len(ends)) {
			switch ends[try] {
			case tryFails:
				return "", errors.New("as it was told")
			case tryOneFails:
				switch first, err := firstParticipant(ctx, db, task.TaskID, task.ID); {
				case err != nil:
					return "", consumer.Release()
				case !first:
					return "", errors.New("as the others were told")
				}
			case tryPlanError:
				return "", consumer.PlanError(errors.New("as it was told"))
			}
		}
		return planOutput(task.Args.PlanID, task.Args.Step), nil
	}
}

func planOutput(id string, step int64) string { return fmt.Sprint(id, " ", step) }

// firstParticipant says whether the execution is that of the first participant in a life of the task. While
// another one runs that may be, it waits.
func firstParticipant(ctx context.Context, db *mongo.Database, id, execution string) (bool, error) {
	for {
		raw, err := db.Collection("tasks").FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
		if err != nil {
			return false, err
		}
		var t model.Task
		if err := codec.Decode(raw, &t); err != nil {
			return false, err
		}
		if slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool { return !w.SuccessTime.IsZero() }) {
			return false, nil
		}
		if i := slices.IndexFunc(t.WorkerStates, func(w model.WorkerState) bool { return lifecycle.Open(&w) }); i >= 0 && input.ExecutionID(&t, t.WorkerStates[i].ExecID) == execution {
			return true, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// planStepEarly says why a step may not run yet; "" = it may. The steps before it must have ended, all of them
// unless the plan skips some.
func planStepEarly(ctx context.Context, db *mongo.Database, args repeat.Args[planOrder]) (string, error) {
	if early := time.Until(args.PlanTime); early > 500*time.Millisecond { // clocks are read and cut
		return fmt.Sprint("by ", early), nil
	}
	ids := bson.A{}
	for step := range args.Step - 1 {
		ids = append(ids, model.TaskID("", planStep.Name(), fmt.Sprint(args.PlanID, "@", step+1)))
	}
	cur, err := db.Collection("tasks").Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return "", err
	}
	var before []struct {
		ID     string       `bson:"_id"`
		Status model.Status `bson:"status"`
	}
	if err := cur.All(ctx, &before); err != nil {
		return "", err
	}
	if len(before) < len(ids) && !args.Messages[0].Skips {
		return fmt.Sprintf("there were %d steps before", len(before)), nil
	}
	for _, t := range before {
		if !t.Status.Ended() {
			return fmt.Sprintf("%s is %s", t.ID, t.Status), nil
		}
	}
	return "", nil
}
