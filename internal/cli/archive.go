package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
)

const archiveHelp = `Move ended tasks to the history, and set how long the history is kept.

An ended task and its key are kept for its retention, by default 7 days. Then the task moves to
the history, which is kept for 90 days unless ` + "`archive retention`" + ` sets another time. Workers move
tasks by themselves. Pending tasks wait for a person and never move.`

func (a *app) archiveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "archive", Short: "Move ended tasks to the history and set its retention", Long: archiveHelp, Args: noArgs, RunE: group}
	cmd.AddCommand(a.archiveRun(), a.archiveRetention())
	return cmd
}

func (a *app) archiveRun() *cobra.Command {
	var noPause bool
	cmd := &cobra.Command{
		Use: "run", Short: "Move the tasks that are due now", Args: noArgs,
		Long: `Move the tasks that are due now to the history. Pauses between batches keep the load low;
--no-pause is for a database without other users.`,
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
			if err := c.store.ReadClock(ctx); err != nil {
				return err
			}
			sum, err := a.archive(ctx, c.store, noPause)
			if err != nil {
				return err
			}
			if sum.PutOff > 0 && !a.asJSON() {
				a.say("%s due to move but still waiting for a callback or a rule, or cannot be copied (see the log); checked again in an hour",
					human.Plural(sum.PutOff, "task is", "tasks are"))
			}
			return a.result(sum, human.Plural(sum.Moved, "task", "tasks")+" moved to the history\n")
		}),
	}
	cmd.Flags().BoolVar(&noPause, "no-pause", false, "do not pause between batches")
	return cmd
}

type archiveSum struct {
	Moved  int `json:"moved"`
	PutOff int `json:"put_off"`
}

// archive moves all that is due, and says on a terminal how far it is.
func (a *app) archive(ctx context.Context, st *store.Store, noPause bool) (sum archiveSum, err error) {
	said := a.clock().Monotonic()
	job := upkeep.Archive{Store: st, Unpaced: noPause, Moved: func(b store.Archived) {
		sum.Moved += b.Moved
		sum.PutOff += b.PutOff
		if now := a.clock().Monotonic(); a.StderrTerminal && now-said > 5*time.Second {
			said = now
			a.say("%s so far", human.Plural(sum.Moved, "task", "tasks"))
		}
	}}
	err = job.All(ctx)
	if err == nil {
		err = context.Cause(ctx)
	}
	return sum, err
}

func (a *app) archiveRetention() *cobra.Command {
	return a.retention(&cobra.Command{
		Short: "Show or set how long the history is kept",
		Long: `Show or set how long the history is kept: a duration such as 30d, or forever. It holds for
the whole database, for what moves to the history from now on.`,
		Example: "  mscheduler archive retention\n  mscheduler archive retention 365d",
	}, "the history", func(ctx context.Context, c *connection) (time.Duration, error) { return c.admin.HistoryRetention(ctx) },
		func(ctx context.Context, c *connection, keep time.Duration) error {
			return c.admin.SetHistoryRetention(ctx, keep)
		})
}

// retention shows, or sets, how long something is kept.
func (a *app) retention(cmd *cobra.Command, what string, get func(context.Context, *connection) (time.Duration, error), set func(context.Context, *connection, time.Duration) error) *cobra.Command {
	cmd.Use, cmd.Args = "retention [DURATION|forever]", oneOrNone("a duration, or forever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var keep time.Duration
		var err error
		if len(args) == 1 && args[0] != "forever" {
			if keep, err = form.ParseDuration(args[0]); err != nil || keep <= 0 {
				return usage("retention is %q; want a duration such as 30d, or forever", args[0])
			}
		}
		ctx := cmd.Context()
		c, err := a.connectReady(ctx)
		if err != nil {
			return err
		}
		if len(args) == 1 {
			if err = set(ctx, c, keep); errors.Is(err, model.ErrInvalid) {
				return usage("retention is %q; want a minute to 100 years, such as 30d, or forever", args[0])
			}
		} else {
			keep, err = get(ctx, c)
		}
		if err != nil {
			return err
		}
		kept := "forever"
		if keep > 0 {
			kept = "for " + human.Rough(keep)
		}
		return a.result(map[string]int64{"retention_ms": keep.Milliseconds()}, what+" is kept "+kept+"\n") // 0 = forever
	}
	return cmd
}
