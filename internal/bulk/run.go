package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// perProcess is how many jobs a process runs at once.
	perProcess = 2
	// lastWord bounds the checkpoint of a job that is cut off.
	lastWord = 5 * time.Second
	// errorText is how much a job keeps of the error of a task.
	errorText = 500
)

// defaults are the options of jobs: the database may be away for a day, and processes come and go.
var defaults = model.Options{
	Retry:     &model.Retry{Strategy: model.RetryExponential, Interval: time.Second, MaxInterval: time.Minute, MaxErrors: new(1500)},
	MaxLapses: new(1000),
}

// Register has a worker run jobs.
func Register(c *consumer.Consumer, b *Jobs) error {
	typ := model.NewType[json.RawMessage, progress](TaskType)
	return consumer.Handle(c, typ, b.run, consumer.MaxConcurrency(perProcess), consumer.Defaults(defaults))
}

// run goes on with a job behind its checkpoint. What was done behind it, of a page that a crash or an error cut
// off, is done again where the task still matches the filter: an update writes the same, and a redelivery that has
// begun is left alone ([command.Since]). But what waits for its retry becomes due once more. So a task may be
// changed without being counted, but no task is left out.
func (b *Jobs) run(ctx context.Context, t *consumer.Task[json.RawMessage]) (progress, error) {
	j, c, err := read(t.RawArgs())
	if err == nil {
		err = j.belongs(t.Tenant)
	}
	if err != nil {
		return progress{}, consumer.Fatal(err)
	}
	if err := command.Of(b.producer).Prepare(ctx); err != nil { // for its clock
		return progress{}, err
	}
	var p progress
	if _, err := t.Restore(&p); err != nil {
		return p, fmt.Errorf("reading the checkpoint: %w", err)
	}
	save := func(ctx context.Context) error { return b.save(ctx, t, c.action, &p) }
	if !p.Counted && p.Since.IsZero() { // it has not begun
		if err := b.counts(ctx, c, &p); err != nil {
			return p, err
		}
		p.Since = b.now()
		if err := save(ctx); err != nil {
			return p, err
		}
	}
	if c.filter.AfterID = p.AfterID; c.where != store.InTasks {
		c.filter.AfterGeneration = p.AfterGeneration
	}
	w := Walk{
		Store: b.store, Filter: c.filter, Where: c.where,
		Do: func(ctx context.Context, life store.Place) error {
			if _, typ, _, err := input.ParseTaskID(life.ID); err == nil && typ == TaskType {
				return &model.RefusedError{ID: life.ID, Reason: "it is a job, this one or another; name it to change it"}
			}
			return b.change(command.Since(ctx, p.Since), j, life, c.filter.Before)
		},
		Failed: func(life store.Place, err error) {
			if p.Failed++; len(p.Errors) < mostErrors {
				p.Errors = append(p.Errors, TaskError{life.ID, safetext.Clip(err.Error(), errorText)})
			}
		},
		Settled: func(ctx context.Context, last store.Place, ahead bool) error {
			p.AfterID, p.AfterGeneration = last.ID, last.Generation
			if !ahead {
				p.Since = b.now()
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
			defer cancel()
			return save(ctx)
		},
	}
	err = w.All(ctx, &p.Counts)
	if err == nil && !p.Counted { // only the end tells how many there are
		err = t.Progress(ctx, 100, p.text(c.action))
	}
	return p, err
}

// counts counts the tasks of a job, for its progress. A job whose tasks take too long to count begins all the same.
func (b *Jobs) counts(ctx context.Context, c checked, p *progress) error {
	call, cancel := context.WithTimeout(ctx, b.counting)
	defer cancel()
	n, err := b.store.History.CountLives(call, c.filter, c.where)
	if err == nil {
		p.Matched, p.Counted = n, true
	}
	return context.Cause(ctx)
}

// now is the time by the clock that new lives of deliveries are dated by.
func (b *Jobs) now() time.Time { return command.Of(b.producer).Store.Clock.Now() }

// save keeps how far a job is.
func (*Jobs) save(ctx context.Context, t *consumer.Task[json.RawMessage], a Action, p *progress) error {
	return errors.Join(t.Checkpoint(ctx, p), t.Progress(ctx, p.percent(), p.text(a)))
}

// percent is 0 where nobody knows how many tasks there are.
func (p *progress) percent() float64 {
	switch {
	case !p.Counted:
		return 0
	case p.Matched == 0:
		return 100
	default:
		return min(float64(p.Changed+p.Skipped+p.Failed)*100/float64(p.Matched), 100)
	}
}

func (p *progress) text(a Action) string {
	if !p.Counted {
		return fmt.Sprintf("%d tasks %s", p.Changed, a.Done)
	}
	return fmt.Sprintf("%d of %d tasks %s", p.Changed, p.Matched, a.Done)
}
