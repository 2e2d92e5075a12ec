package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/bench"
)

const benchCompareHelp = `Run the same work on this product and on other schedulers, by turns, and print one table:
a backlog of no-op tasks is drained, then tasks are sent at a fixed rate to an idle worker.

River runs where --postgres names a PostgreSQL database, in a schema of its own that is dropped
afterwards. The command builds it with the go on the PATH. Agenda runs with --agenda on the same
MongoDB deployment; the command installs it by npm in a temporary directory. A scheduler that
cannot run has a line that says why.

Without --uri, this product and Agenda use an embedded server on a file, which syncs each commit
like PostgreSQL with fsync. P50, P99 and MAX are latencies from before the call that sends to
the start of the handler. The table has medians of all rounds.`

func (a *app) benchCompareCommand() *cobra.Command {
	var c bench.Comparison
	cmd := &cobra.Command{
		Use: "compare", Short: "Run the same work on River and Agenda", Long: benchCompareHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.benchCompare(cmd.Context(), &c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Postgres, "postgres", "", "URL of the PostgreSQL database for River, postgres://...; defaults to none: River does not run")
	f.BoolVar(&c.Agenda, "agenda", false, "run Agenda, with the node and npm on the PATH")
	f.IntVar(&c.Rounds, "rounds", 0, "turns of each scheduler; defaults to 3")
	f.IntVar(&c.Tasks, "tasks", 0, "tasks of the backlog; defaults to 20000")
	f.IntVar(&c.Concurrency, "concurrency", 0, "executions at once; defaults to 1000")
	f.IntVar(&c.ArgsBytes, "args-bytes", 0, "size of each task's arguments; defaults to 100")
	f.Float64Var(&c.Rate, "rate", 0, "tasks a second that are sent to the idle worker; defaults to 100")
	spanVar(f, &c.Duration, "duration", 0, "how long they are sent; defaults to 20s")
	f.BoolVar(&c.Small, "small", false, "smaller defaults: one round of seconds")
	return cmd
}

func (a *app) benchCompare(ctx context.Context, c *bench.Comparison) error {
	b := benchFlags{Config: c.Config}
	if err := errors.Join(c.Validate(), a.benchConfig(&b)); err != nil {
		return err
	}
	watch := benchWatch{app: a}
	c.Config = b.Config
	c.OnProgress = watch.step
	all, err := bench.Compare(ctx, *c)
	watch.end()
	if err != nil {
		return err
	}
	t := newTable(bench.ComparedHeadings...)
	for _, x := range all {
		t.add(x.Row()...)
	}
	return a.result(all, t.flush())
}
