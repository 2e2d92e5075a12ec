package bulk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/taskchange"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Action is something that can be done to tasks.
type Action struct {
	Name, Done string         // "cancel", "cancelled"
	From       []model.Status // the statuses it is possible in
	ByDefault  []model.Status // those that a filter without statuses means
	Lives      bool           // a filter may go over the history, too
}

// unended are the statuses of tasks that have not ended.
var unended = []model.Status{model.StatusWait, model.StatusNew, model.StatusExecuting, model.StatusError}

// The actions.
var (
	Cancel = Action{Name: "cancel", Done: "cancelled", From: unended, ByDefault: unended}
	Retry  = Action{
		Name: "retry", Done: "retried",
		From:      []model.Status{model.StatusError, model.StatusFailure, model.StatusPending, model.StatusCancelled},
		ByDefault: []model.Status{model.StatusError, model.StatusFailure, model.StatusPending},
	}
	Resolve   = Action{Name: "resolve", Done: "resolved", From: []model.Status{model.StatusPending}, ByDefault: []model.Status{model.StatusPending}}
	Release   = Action{Name: "release", Done: "released", From: []model.Status{model.StatusWait}, ByDefault: []model.Status{model.StatusWait}}
	Update    = Action{Name: "update", Done: "updated", From: unended, ByDefault: unended}
	Redeliver = Action{
		Name: "redeliver", Done: "redelivered",
		From:      []model.Status{model.StatusCompleted, model.StatusSuccess, model.StatusFailure, model.StatusPending},
		ByDefault: []model.Status{model.StatusCompleted},
		Lives:     true,
	}
)

var actions = []Action{Cancel, Retry, Resolve, Release, Update, Redeliver}

// ActionNames are the names of all actions.
func ActionNames() (names []string) {
	for _, a := range actions {
		names = append(names, a.Name)
	}
	return names
}

func actionOf(name string) (Action, bool) {
	i := slices.IndexFunc(actions, func(a Action) bool { return a.Name == name })
	if i < 0 {
		return Action{}, false
	}
	return actions[i], true
}

// doors are what actions go through.
type doors struct {
	producer *producer.Producer
	admin    *admin.Admin
}

// changeTimeout bounds the change of one task.
const changeTimeout = 30 * time.Second

// countTimeout bounds the count of the tasks of a job.
const countTimeout = 30 * time.Second

// driverAhead is longer than the moment by which the driver gives up a call before its context ends.
const driverAhead = time.Second

// slowError is the error of a change that the database did not carry out in its time, although it confirms other writes.
type slowError struct {
	within time.Duration
	err    error
}

func (e *slowError) Error() string {
	return fmt.Sprintf("not changed within %v, perhaps because another client holds the task: %v", e.within, e.err)
}

func (e *slowError) Unwrap() error { return e.err }

// whole is do for a job that may be stopped meanwhile: the change of a task is not cut off.
func (b *Jobs) whole(ctx context.Context, j *Job, life store.Place, now time.Time) error {
	change, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
	defer cancel()
	err := b.do(change, j, life, now)
	if mongo.IsTimeout(err) && !failure.NoServer(err) && !clock.Pause(change, driverAhead) && b.answers(ctx) {
		return &slowError{b.timeout, err}
	}
	return err
}

// answers says whether a majority confirms writes now.
func (b *Jobs) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, promptAnswer)
	defer cancel()
	return b.store.ReadClock(ctx) == nil
}

// promptAnswer is what a write takes at most if the database is well.
const promptAnswer = 5 * time.Second

// do does the job's action to one life of a task. now is what durations in its change would count from.
func (d *doors) do(ctx context.Context, j *Job, life store.Place, now time.Time) (err error) {
	switch j.Action {
	case Cancel.Name:
		_, err = d.producer.Cancel(ctx, life.ID, j.Remark)
	case Retry.Name:
		if j.Step != "" {
			_, err = d.producer.RetryFrom(ctx, life.ID, j.Step, j.Remark)
		} else {
			_, err = d.producer.Retry(ctx, life.ID, j.Remark)
		}
	case Resolve.Name:
		_, err = d.producer.Resolve(ctx, life.ID, j.Remark)
	case Release.Name:
		_, err = d.producer.Release(ctx, life.ID)
	case Redeliver.Name:
		_, err = d.admin.Redeliver(ctx, life.ID, life.Generation)
	case Update.Name:
		_, err = taskchange.Update(ctx, d.producer, life.ID, j.Change, 0, now)
	}
	return err
}
