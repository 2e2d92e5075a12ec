package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Inspect workers", Args: noArgs, RunE: group}
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "List live workers", Args: noArgs,
		Long: "List live workers: those with a heartbeat within the last three intervals. A worker disappears\nwhen it stops gracefully. --all lists killed workers for a day.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
			workers, err := c.store.Workers.List(ctx)
			if err != nil {
				return err
			}
			return a.printWorkers(workers, c.at, all)
		}),
	}
	list.Flags().BoolVar(&all, "all", false, "include workers without a recent heartbeat")
	cmd.AddCommand(list)
	return cmd
}

func (a *app) printWorkers(workers []store.Worker, now time.Time, all bool) error {
	views := []view.Worker{}
	t := newTable("WORKER", "STATE", "TYPES", "ONLY", "RUNNING", "SLOTS", "WAKES BY", "STARTED", "HEARTBEAT")
	silent := 0
	for i := range workers {
		w := &workers[i]
		alive := w.Alive(now)
		if !alive {
			silent++
			if !all {
				continue
			}
		}
		views = append(views, view.WorkerOf(w, now))
		state := "alive"
		if !alive {
			state = "silent"
		}
		t.add(w.ID, state, human.OneLine(strings.Join(w.Types, ","), 40), human.OneLine(lifecycle.ConditionsText(w.Only), 40), fmt.Sprint(w.Running), fmt.Sprint(w.Concurrency),
			w.Stream, human.When(w.StartedAt, now), human.Relative(w.HeartbeatAt, now))
	}
	if silent > 0 && !all && !a.asJSON() {
		a.say("%s no recent heartbeat; to list them: --all", human.Plural(silent, "worker has", "workers have"))
	}
	return a.resultTable(map[string]any{"workers": views}, t, "no live workers; to start one: mscheduler work")
}
