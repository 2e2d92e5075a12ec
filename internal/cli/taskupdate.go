package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const updateHelp = `Change tasks that have not ended: priority, start time, expiry, arguments, options and the
workers that may run them. Values without a flag stay as they are. The defaults listed below
apply to send, not to update.

A running execution keeps the arguments and options of its claim, with two exceptions. It ends,
at no cost to the task, when --specific-worker-ids no longer names its worker. A new
--ping-interval counts from the next ping. --specific-worker-ids= (an empty value) lets every
worker run the task.`

func (a *app) taskUpdate() *cobra.Command {
	var s sendFlags
	var given *pflag.FlagSet
	return a.changeCommand(taskChange{
		name: "update", done: "updated", short: "Change tasks that have not ended", from: openStatuses, byDefault: openStatuses,
		long: updateHelp, example: "--priority 9",
		flags: func(fs *pflag.FlagSet) {
			given = fs
			s.register(fs, "key", "tenant", "creator", "category", "held", "existing") // some of which are the filter's
		},
		check: func() error {
			if err := a.readSendFlags(&s, given); err != nil {
				return err
			}
			it, err := changesOf(&s.task, a)
			if err == nil && len(it.Args) == 0 && len(it.Options) == 0 {
				err = usage("task update requires a change, such as --priority 9; see: mscheduler task update --help")
			}
			return err
		},
		apply: func(ctx context.Context, c *connection, id, _ string) (*model.Task, error) {
			return a.updateTask(ctx, c.producer, id, s.task)
		},
	})
}

// changesOf is what a task that is not stored would be changed to. An empty list of workers means
// every worker.
func changesOf(t *form.Task, a *app) (producer.JSONItem, error) {
	some := *t
	anyWorker := some.Options.SpecificWorkerIDs != nil && len(some.Options.SpecificWorkerIDs) == 0
	if anyWorker {
		some.Options.SpecificWorkerIDs = nil
	}
	it, err := some.Item(a.clock().Now())
	if anyWorker {
		it.Options = append(it.Options, producer.AnyWorker())
	}
	return it, err
}

// updateTask changes one task. The producer replaces the lease and the retries as a whole, so
// the values that no flag names are read from the task first.
func (a *app) updateTask(ctx context.Context, p *producer.Producer, id string, t form.Task) (*model.Task, error) {
	if o := &t.Options; o.PingInterval != nil || o.WorkerTimeout != nil || o.Retry != nil {
		stored, err := p.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		keepUnsaid(o, form.OptionsOf(&stored.Options))
	}
	it, err := changesOf(&t, a)
	if err != nil {
		return nil, err
	}
	if len(it.Args) > 0 {
		_, typ, _, err := input.ParseTaskID(id)
		if err != nil {
			return nil, err
		}
		if err := builtin.CheckArgs(typ, it.Args); err != nil {
			return nil, err
		}
		it.Options = append(it.Options, producer.Args(it.Args))
	}
	return p.Update(ctx, id, it.Options...)
}

// keepUnsaid takes what flags leave unsaid of a lease and of retries from the stored options.
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
	own := *o.Retry // the flags are those of other tasks, too
	form.Fill(&own, &kept)
	o.Retry = &own
}
