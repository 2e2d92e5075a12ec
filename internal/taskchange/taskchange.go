// Package taskchange changes a task as a written form says, for the command line and the REST API.
package taskchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Item is what a form would change of a task, or what a task of it would be. An empty list of workers
// means every worker. now is what durations in times count from.
func Item(t *form.Task, now time.Time) (producer.JSONItem, error) {
	some := *t
	anyWorker := some.Options.SpecificWorkerIDs != nil && len(some.Options.SpecificWorkerIDs) == 0
	if anyWorker {
		some.Options.SpecificWorkerIDs = nil
	}
	it, err := some.Item(now)
	if anyWorker {
		it.Options = append(it.Options, producer.AnyWorker())
	}
	return it, err
}

// tries bound how often a change is made again because the task changed meanwhile.
const tries = 10

// Update changes what the form says of a task, if the task has that rev; 0 = any. The producer replaces
// the lease and the retries as a whole, so what the form does not say of them stays as it is stored.
// Errors are those of [producer.Producer.Update].
func Update(ctx context.Context, p *producer.Producer, id string, t *form.Task, rev int64, now time.Time) (*model.Task, error) {
	if !partial(&t.Options) {
		return update(ctx, p, id, t, rev, now)
	}
	for try := 1; ; try++ {
		stored, err := p.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if rev != 0 && stored.Rev != rev {
			return nil, fmt.Errorf("the task was %w", model.ErrChanged)
		}
		whole := *t
		keepUnsaid(&whole.Options, form.OptionsOf(&stored.Options))
		after, err := update(ctx, p, id, &whole, stored.Rev, now)
		if rev != 0 || !errors.Is(err, model.ErrChanged) || try == tries {
			return after, err
		}
	}
}

// partial says whether the options say something of what the producer replaces as a whole.
func partial(o *form.Options) bool {
	return o.PingInterval != nil || o.WorkerTimeout != nil || o.Retry != nil
}

func update(ctx context.Context, p *producer.Producer, id string, t *form.Task, rev int64, now time.Time) (*model.Task, error) {
	it, err := Item(t, now)
	if err != nil {
		return nil, err
	}
	if len(it.Args) > 0 {
		_, typ, _, err := input.ParseTaskID(id)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(builtin.CheckArgs(typ, it.Args), secret.CheckArgs(typ, it.Args)); err != nil {
			return nil, err
		}
		it.Options = append(it.Options, producer.Args(it.Args))
	}
	if rev != 0 {
		it.Options = append(it.Options, producer.IfRev(rev))
	}
	return p.Update(ctx, id, it.Options...)
}

// keepUnsaid takes what a form leaves unsaid of a lease and of retries from the stored options.
// Another strategy has delays of its own, so it keeps none of the old delays.
func keepUnsaid(o, stored *form.Options) {
	if o.PingInterval != nil || o.WorkerTimeout != nil {
		o.PingInterval, o.WorkerTimeout = cmp.Or(o.PingInterval, stored.PingInterval), cmp.Or(o.WorkerTimeout, stored.WorkerTimeout)
	}
	if o.Retry == nil || stored.Retry == nil {
		return
	}
	kept := *stored.Retry
	if s := o.Retry.Strategy; s != nil && (kept.Strategy == nil || *s != *kept.Strategy) {
		kept = form.Retry{MaxErrors: kept.MaxErrors, Local: kept.Local}
	}
	own := *o.Retry // the form is for other tasks, too
	form.Fill(&own, &kept)
	o.Retry = &own
}
