package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/taskchange"
	"github.com/mscheduler/mscheduler/model"
)

const updateHelp = `Change tasks that have not ended: priority, start time, expiry, arguments, options and the
workers that may run them. Values without a flag stay as they are. The defaults listed below
apply to send, not to update.

A running execution keeps the arguments and options of its claim, with three exceptions. It ends,
at no cost to the task, when --specific-worker-ids no longer names its worker. A new
--ping-interval counts from the next ping. A new --concurrent-worker-count takes effect at once.
--specific-worker-ids= (an empty value) lets every worker run the task.`

func (a *app) taskUpdate() *cobra.Command {
	var s sendFlags
	var given *pflag.FlagSet
	return a.changeCommand(taskChange{
		Action: bulk.Update, short: "Change tasks that have not ended",
		long: updateHelp, example: "--priority 9",
		flags: func(fs *pflag.FlagSet) {
			given = fs
			s.register(fs, "key", "tenant", "creator", "category", "held", "existing") // some of which are the filter's
		},
		check: func() error {
			if err := a.readSendFlags(&s, given); err != nil {
				return err
			}
			it, err := taskchange.Item(&s.task, a.clock().Now())
			if err == nil && len(it.Args) == 0 && len(it.Options) == 0 {
				err = usage("task update requires a change, such as --priority 9; see: mscheduler task update --help")
			}
			return err
		},
		apply: func(ctx context.Context, c *connection, id, _ string) (*model.Task, error) {
			return taskchange.Update(ctx, c.producer, id, &s.task, 0, a.clock().Now())
		},
		job: func(j *bulk.Job) { j.Change = &s.task },
	})
}
