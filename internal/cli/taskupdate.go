package cli

import (
	"cmp"
	"context"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const updateHelp = `Change tasks that have not ended: priority, start time, expiry, arguments, options and the
workers that may run them. Values without a flag stay as they are. The defaults listed below
apply to send, not to update.

A running execution keeps the arguments and options of its claim, with two exceptions. It ends,
at no cost to the task, when --workers no longer names its worker. A new --ping-interval counts
from the next ping. --workers= (an empty value) lets every worker run the task.`

func (a *app) taskUpdate() *cobra.Command {
	open := []model.Status{model.StatusWait, model.StatusNew, model.StatusExecuting, model.StatusError}
	var s sendFlags
	var given *pflag.FlagSet
	var spec *taskSpec
	return a.changeCommand(change{
		name: "update", done: "updated", short: "Change tasks that have not ended", from: open, byDefault: open,
		long: updateHelp, example: "--priority 9",
		flags: func(fs *pflag.FlagSet) {
			given = fs
			s.registerChangeable(fs)
		},
		check: func() (err error) {
			if spec, err = a.spec(&s, given); err != nil {
				return err
			}
			spec.Tenant, spec.Creator, spec.Category = nil, nil, nil // here those flags are the filter's
			if _, err = spec.item(false); err != nil {
				return &codedError{ExitUsage, err}
			}
			if len(spec.Args) == 0 && len(spec.changes()) == 0 {
				return usage("task update needs something to change, such as --priority 9; see: mscheduler task update --help")
			}
			return nil
		},
		apply: func(ctx context.Context, p *producer.Producer, id, _ string) (*model.Task, error) {
			return updateTask(ctx, p, id, spec)
		},
	})
}

// updateTask changes one task. The producer replaces the lease and the retries as a whole, so
// the values that no flag names are read from the task first.
func updateTask(ctx context.Context, p *producer.Producer, id string, spec *taskSpec) (*model.Task, error) {
	opts := spec.changes()
	o := &spec.Options
	lease, retry := o.PingInterval != nil || o.WorkerTimeout != nil, !reflect.ValueOf(o.Retry).IsZero()
	if lease || retry {
		t, err := p.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if lease {
			ping, timeout := o.PingInterval.duration(), o.WorkerTimeout.duration()
			opts = append(opts, producer.Lease(cmp.Or(ping, t.Options.PingInterval), cmp.Or(timeout, t.Options.WorkerTimeout)))
		}
		if retry {
			opts = append(opts, producer.Retry(retryOver(t.Options.Retry, &o.Retry)))
		}
	}
	if len(spec.Args) > 0 {
		_, typ, _, err := input.ParseTaskID(id)
		if err != nil {
			return nil, err
		}
		if err := builtin.CheckArgs(typ, spec.Args); err != nil {
			return nil, err
		}
		opts = append(opts, producer.Args(spec.Args))
	}
	return p.Update(ctx, id, opts...)
}

// retryOver returns the retries of the task with the given values in the place of its own.
// Another strategy has delays of its own, so it keeps none of the old delays.
func retryOver(old *model.Retry, given *retrySpec) model.Retry {
	out := given.retry()
	if old == nil {
		return out
	}
	keep := *old
	if out.Strategy != "" && out.Strategy != old.Strategy {
		keep = model.Retry{MaxErrors: old.MaxErrors, Local: old.Local}
	}
	if out.Local != nil && old.Local != nil {
		if given.Local.Count == nil {
			out.Local.Count = old.Local.Count
		}
		if given.Local.Interval == nil {
			out.Local.Interval = old.Local.Interval
		}
	}
	if given.Jitter != nil { // 0 asks for the default
		keep.Jitter = 0
	}
	if given.Factor != nil {
		keep.Factor = 0
	}
	fillZero(&out, keep)
	return out
}

// fillZero sets the zero fields of a struct to those of another.
func fillZero[T any](dst *T, from T) {
	v, w := reflect.ValueOf(dst).Elem(), reflect.ValueOf(from)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			v.Field(i).Set(w.Field(i))
		}
	}
}

// changes returns the options for an update. An empty list of workers means every worker.
func (s *taskSpec) changes() []producer.Option {
	if s.Options.Workers == nil || len(s.Options.Workers) > 0 {
		return s.options(nil)
	}
	some := *s
	some.Options.Workers = nil
	return append(some.options(nil), producer.AnyWorker())
}
