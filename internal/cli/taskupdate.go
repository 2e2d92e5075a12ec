package cli

import (
	"cmp"
	"context"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const updateHelp = `Change tasks that have not ended: priority, start time, expiry, arguments, options and the
workers that may run them. What no flag names stays as it is; the defaults below are those of send.

An execution that runs goes on with what it was claimed with, with two exceptions: it ends,
without cost, when --workers no longer names its worker, and --ping-interval counts from the
next ping. --workers= (an empty value) lets every worker run the task.`

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
				return usage("task update wants something to change, such as --priority 9; see: mscheduler task update --help")
			}
			return nil
		},
		apply: func(ctx context.Context, p *producer.Producer, id, _ string) (*model.Task, error) {
			return updateTask(ctx, p, id, spec)
		},
	})
}

// updateTask changes one task. The producer takes a lease and retries as wholes, so what the
// flags leave open of them is read from the task first.
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
			opts = append(opts, producer.Retry(retryOver(t.Options.Retry, o.Retry.retry())))
		}
	}
	if len(spec.Args) > 0 {
		_, typ, _, err := model.ParseTaskID(id)
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

// retryOver is what the flags say of retries, and of the rest what the task says. Another
// strategy has delays of its own, so it keeps none of the old one's.
func retryOver(old *model.Retry, given model.Retry) model.Retry {
	if old == nil {
		return given
	}
	keep := *old
	if given.Strategy != "" && given.Strategy != old.Strategy {
		keep = model.Retry{MaxErrors: old.MaxErrors, Local: old.Local}
	}
	if given.Local != nil && old.Local != nil {
		local := *given.Local
		fillZero(&local, *old.Local)
		given.Local = &local
	}
	fillZero(&given, keep)
	return given
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

// changes are the options of the spec, for an update: no workers means every worker.
func (s *taskSpec) changes() []producer.Option {
	if s.Options.Workers == nil || len(s.Options.Workers) > 0 {
		return s.options(nil)
	}
	some := *s
	some.Options.Workers = nil
	return append(some.options(nil), producer.AnyWorker())
}
