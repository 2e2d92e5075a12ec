package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) taskCount() *cobra.Command {
	var f filterFlags
	var history historyFlag
	cmd := &cobra.Command{
		Use: "count", Short: "Count tasks", Args: noArgs,
		Long: `Count the tasks that match the filters of ` + "`task list`" + `. --history counts past lives, too. A task that moves to
the history meanwhile may be counted twice. ` + "`stats`" + ` summarizes all tasks by type and status.`,
		Example: "  mscheduler task count --type http --status Failure,Pending\n  mscheduler task count --tenant acme --created-after -24h",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := a.filter(cmd.Flags(), &f)
			if err != nil {
				return err
			}
			where, err := history.where()
			if err != nil {
				return err
			}
			return a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				if err := f.times(&filter, c.at); err != nil {
					return err
				}
				n, err := c.store.History.CountLives(ctx, filter, where)
				if err != nil {
					return err
				}
				return a.result(map[string]int64{"count": n}, fmt.Sprintln(n))
			})(cmd, args)
		},
	}
	f.register(cmd.Flags())
	f.completions(cmd)
	history.register(cmd, "")
	return cmd
}
