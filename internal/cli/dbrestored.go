package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/upkeep"
)

const dbRestoredHelp = `Prepare a database that was restored from a backup, before anything uses it again.

Fencing tokens that other systems saw after the backup may be greater than the next ones of the
restored tasks, and these systems would refuse the new executions. The command raises the generation
and the rev of each task that has not ended beyond every token given out before. The generation is
part of the Idempotency-Key that HTTP targets get, and of the id of the callback: both are new. The
command also releases the executions that were open at the backup, so that their tasks need not wait
for a lapse and lose no budget.

Parked executions stay open, because their completions may still come. Their handles name the
generation, so a task that has one keeps it: if its key began a new life after the backup, its tokens
are lower until it begins another one. Tasks that cannot be decoded or changed stay as they are; the
command names them and fails after it has prepared the others.

Stop all workers and servers first. The command refuses to run while a worker is alive, and stops
when one starts. You can repeat it; each time raises the tokens again, which is harmless.`

func (a *app) dbRestored() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use: "restored", Short: "Prepare a database that was restored from a backup", Long: dbRestoredHelp, Args: noArgs,
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error { return a.restored(ctx, c, yes, dryRun) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count, and change nothing")
	return cmd
}

func (a *app) restored(ctx context.Context, c *connection, yes, dryRun bool) error {
	job := upkeep.Restored{Store: c.store, Dry: true}
	if !dryRun {
		if err := c.noneAlive(ctx); err != nil {
			return err
		}
	}
	sum, err := job.All(ctx)
	if err != nil {
		return err
	}
	if dryRun {
		a.say("nothing was changed")
		return a.restoredSum(sum, "would be")
	}
	if err := a.confirm(yes, fmt.Sprintf("Raise the tokens of %s of %s, and release %s?",
		human.Plural(sum.Tasks, "task", "tasks"), c, human.Plural(sum.Released, "execution", "executions"))); err != nil {
		return err
	}
	job.Dry, job.Check = false, c.noneAlive
	sum, err = job.All(ctx)
	a.counts(int64(sum.Tasks))
	if err != nil {
		return err
	}
	return a.restoredSum(sum, "were")
}

// noneAlive refuses while a worker is alive.
func (c *connection) noneAlive(ctx context.Context) error {
	now, err := c.store.ServerTime(ctx)
	if err != nil {
		return err
	}
	workers, err := c.store.Workers.List(ctx)
	if err != nil {
		return err
	}
	var alive []string
	for i := range workers {
		if w := &workers[i]; w.Alive(now) {
			alive = append(alive, w.ID+" (heartbeat "+human.Relative(w.HeartbeatAt, now)+")")
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return coded(ExitRefused, "workers are alive: %s. Stop them, and repeat the command. Heartbeats of a backup that is younger than 90 seconds look the same: wait until they are older",
		human.OneLine(strings.Join(alive, ", "), 300))
}

func (a *app) restoredSum(sum upkeep.RestoredSum, was string) error {
	if err := a.result(sum, restoredText(sum, was)); err != nil || len(sum.Unreadable)+len(sum.Refused) == 0 {
		return err
	}
	var left []string
	for _, l := range []struct {
		what string
		ids  []string
	}{{"cannot decode", sum.Unreadable}, {"cannot change", sum.Refused}} {
		if len(l.ids) > 0 {
			left = append(left, fmt.Sprintf("%s %s: %s", l.what, human.Plural(len(l.ids), "task", "tasks"), human.OneLine(strings.Join(l.ids, ", "), 2000)))
		}
	}
	return coded(ExitFailed, "%s. They are left as they are; all others %s prepared. Repair or delete them, and repeat the command", strings.Join(left, "; "), was)
}

func restoredText(sum upkeep.RestoredSum, was string) string {
	var f fields
	f.add("tasks", fmt.Sprintf("%d, whose tokens %s raised", sum.Tasks, was))
	f.add("executions", fmt.Sprintf("%d released; %d parked, still open", sum.Released, sum.Parked))
	return f.String()
}
