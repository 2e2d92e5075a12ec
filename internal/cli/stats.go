package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/census"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stats"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const statsHelp = `Summarize by type what waits and runs, and what has ended within a window.

DUE is the number of tasks that a worker may claim now, OLDEST since when the oldest one has been due.
DELAYED tasks are due later. ENDED counts the tasks that ended within the window, and FAILED those of
them that failed or wait for a person. LATE is the time from the start time to the first claim, TOOK
that of the execution that ended last: the median and the 95th percentile.

The queue is counted at most every 15 seconds. A number that has never been counted, because that takes
too long, is ?. With --tenant, the column WAITING has the tenant's
tasks that wait, due now or later, and DUE, DELAYED and OLDEST are not known.`

func (a *app) statsCommand() *cobra.Command {
	q := stats.Query{}
	cmd := &cobra.Command{
		Use: "stats", Short: "Summarize what waits and what has ended lately", Args: noArgs, Long: statsHelp,
		Example: "  mscheduler stats\n  mscheduler stats --type mail --window 10m -o json",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
			for flag, value := range map[string]string{"--tenant": q.Tenant, "--type": q.Type} {
				if value != "" {
					if err := input.Name(flag, value); err != nil {
						return err
					}
				}
			}
			if q.Window < time.Second || q.Window > stats.MostWindow {
				return usage("--window is %s; want 1s to %s", span(q.Window), span(stats.MostWindow))
			}
			found, err := stats.Of(ctx, c.store, census.New(c.store), q)
			if err != nil {
				return err
			}
			return a.printStats(&found, c.at)
		}),
	}
	cmd.Flags().StringVar(&q.Tenant, "tenant", "", "only tasks of this tenant; - for tasks without a tenant")
	cmd.Flags().StringVar(&q.Type, "type", "", "only tasks of this type")
	spanVar(cmd.Flags(), &q.Window, "window", time.Hour, "how far back to look at ended tasks, at most 24h")
	for _, name := range []string{"tenant", "type", "window"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// statsRow is a type in the table.
type statsRow struct {
	due, delayed, running, oldest string
	ended                         stats.TypeEnded
}

func (a *app) printStats(s *stats.Stats, now time.Time) error {
	rows := map[string]*statsRow{}
	row := func(typ string) *statsRow {
		if rows[typ] == nil {
			rows[typ] = &statsRow{}
		}
		return rows[typ]
	}
	complete := s.Ended.Complete
	if s.Queue != nil {
		complete = complete && s.Queue.Complete
		for _, q := range s.Queue.Types {
			r := row(q.Type)
			if q.Others {
				r = row("(other types)")
			}
			counted := func(name string, n int64) string {
				if slices.Contains(q.Uncounted, name) {
					return "?"
				}
				return fmt.Sprint(n)
			}
			r.due, r.delayed, r.running = counted(store.CountDue, q.Due), counted(store.CountDelayed, q.Delayed), counted(store.CountRunning, q.Running)
			if at, err := time.Parse(clock.Format, q.OldestDue); err == nil {
				r.oldest = human.Relative(at, now)
			}
		}
	}
	if s.Tasks != nil {
		complete = complete && s.Tasks.Complete
		for typ, counts := range s.Tasks.Types {
			r := row(typ)
			r.due, r.running = fmt.Sprint(counts[model.StatusNew]+counts[model.StatusError]), fmt.Sprint(counts[model.StatusExecuting])
		}
	}
	for typ, e := range s.Ended.Types {
		row(typ).ended = e
	}
	due := "DUE"
	if s.Tasks != nil {
		due = "WAITING"
	}
	t := newTable("TYPE", due, "OLDEST", "DELAYED", "RUNNING", "ENDED", "FAILED", "LATE", "TOOK")
	for _, typ := range slices.Sorted(maps.Keys(rows)) {
		r := rows[typ]
		e := &r.ended
		t.add(typ, cmp.Or(r.due, "0"), r.oldest, r.delayed, cmp.Or(r.running, "0"), fmt.Sprint(e.Count), fmt.Sprint(e.Statuses[model.StatusFailure]+e.Statuses[model.StatusPending]), spreadText(e, e.Late), spreadText(e, e.Took))
	}
	if err := a.resultTable(s, t, "nothing waits, and nothing has ended within the window"); err != nil || a.asJSON() {
		return err
	}
	if !complete {
		a.say("not everything was counted; -o json says what was left out")
	}
	return nil
}

func spreadText(e *stats.TypeEnded, s stats.Spread) string {
	if e.Count == 0 {
		return ""
	}
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	return ms(s.Median) + ", " + ms(s.P95)
}
