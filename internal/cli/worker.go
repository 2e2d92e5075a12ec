package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "List and drain workers", Args: noArgs, RunE: group}
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "List live workers", Args: noArgs,
		Long: "List live workers: those with a heartbeat within the last three intervals. A worker disappears\nwhen it stops gracefully. --all lists killed workers for a day. CLOCK is the machine's clock minus\nthe database's. Workers use the database's time. Workers that pull are\nlisted while they fetch or ping.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
			workers, err := c.store.Workers.List(ctx)
			if err != nil {
				return err
			}
			return a.printWorkers(workers, c.at, all)
		}),
	}
	list.Flags().BoolVar(&all, "all", false, "include workers without a recent heartbeat")
	cmd.AddCommand(list, a.workerDrain(), a.workerResume())
	return cmd
}

func (a *app) workerDrain() *cobra.Command {
	ask := store.Drain{By: whoami()}
	cmd := &cobra.Command{
		Use: "drain WORKER", Short: "Ask a worker to finish what it holds and claim nothing more", Args: one("the id of a worker"),
		Long: `Ask a live worker to finish what it holds and claim nothing more. It reads the request at its
next heartbeat, within 30 seconds. With --stop it then stops: mscheduler work exits, serve and dev go
on without it until somebody restarts them.

The request is for one process: a new process with the same id is not drained. Engines of rules,
flows and plans, and workers of services that set NoDrain, refuse.`,
		Example: "  mscheduler worker drain web-7 --stop --note 'new kernel'",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			if err := input.Note(ask.Note); err != nil {
				return err
			}
			w, err := c.store.Workers.AskToDrain(ctx, args[0], ask, c.at)
			return a.printWorker(w, c.at, err)
		}),
	}
	cmd.Flags().BoolVar(&ask.Stop, "stop", false, "stop the worker when it holds nothing any more")
	cmd.Flags().StringVar(&ask.Note, "note", "", "the reason, for those who look later")
	return cmd
}

func (a *app) workerResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume WORKER", Short: "Undo a drain", Args: one("the id of a worker"),
		Long: "Undo `worker drain`. The worker claims tasks again from its next heartbeat on.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			w, err := c.store.Workers.Undrain(ctx, args[0], c.at)
			return a.printWorker(w, c.at, err)
		}),
	}
}

// printWorker prints a worker that a command has changed, unless that failed.
func (a *app) printWorker(w *store.Worker, now time.Time, err error) error {
	if err != nil {
		return err
	}
	return a.result(view.WorkerOf(w, now), w.ID+"  "+stateOfWorker(w, now)+"\n")
}

// stateOfWorker is what a worker does, in words.
func stateOfWorker(w *store.Worker, now time.Time) string {
	switch {
	case !w.Alive(now):
		return "silent"
	case w.Drain == nil:
		return "alive"
	case !w.Draining:
		return "asked to drain"
	case w.Running > 0:
		return "draining"
	default:
		return "drained"
	}
}

func (a *app) printWorkers(workers []store.Worker, now time.Time, all bool) error {
	views := []view.Worker{}
	t := newTable("WORKER", "STATE", "TYPES", "ONLY", "RUNNING", "SLOTS", "WAKES BY", "CLOCK", "STARTED", "HEARTBEAT")
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
		apart := ""
		if w.ClockError != nil {
			apart = human.Rough(time.Duration(*w.ClockError) * time.Millisecond)
		}
		t.add(w.ID, stateOfWorker(w, now), human.OneLine(strings.Join(w.Types, ","), 40), human.OneLine(lifecycle.ConditionsText(w.Only), 40), fmt.Sprint(w.Running), fmt.Sprint(w.Concurrency),
			w.Stream, apart, human.When(w.StartedAt, now), human.Relative(w.HeartbeatAt, now))
	}
	if silent > 0 && !all && !a.asJSON() {
		a.say("%s no recent heartbeat; to list them: --all", human.Plural(silent, "worker has", "workers have"))
	}
	return a.resultTable(map[string]any{"workers": views}, t, "no live workers; to start one: mscheduler work")
}
