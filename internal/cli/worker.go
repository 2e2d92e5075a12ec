package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Inspect and drain workers", Args: noArgs, RunE: group}
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
	cmd.AddCommand(list, a.workerShow(), a.workerDrain(), a.workerResume())
	return cmd
}

// workerView is a worker with what it holds, as JSON.
type workerView struct {
	view.Worker
	Executions []view.Execution `json:"executions"`
	Complete   bool             `json:"complete"`
}

// maxHeldShown is how many executions of a worker are shown.
const maxHeldShown = 1_000

func (a *app) workerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show WORKER", Short: "Show a worker and the tasks that it holds", Args: one("the id of a worker"),
		Long: fmt.Sprintf(`Show a worker with a heartbeat within the last day. The command lists at most %d of its open
executions, by type and end of the lease. It reads at most 10,000 running tasks. With -o json,
"complete" is false if there may be other executions.`, maxHeldShown),
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			w, err := c.store.Workers.Known(ctx, args[0])
			if err != nil {
				return err
			}
			held, more, err := c.store.Tasks.Held(ctx, []string{w.ID}, nil, maxHeldShown)
			if err != nil {
				return err
			}
			shown := workerView{view.WorkerOf(w, c.at), []view.Execution{}, !more}
			for i := range held {
				shown.Executions = append(shown.Executions, view.ExecutionOf(&held[i]))
			}
			return a.result(shown, workerText(w, held, more, c.at))
		}),
	}
}

// workerText is a worker for a person.
func workerText(w *store.Worker, held []store.Held, more bool, now time.Time) string {
	var f fields
	f.add("worker", w.ID)
	f.add("state", stateOfWorker(w, now))
	if d := w.Drain; d != nil {
		f.add("drain", "asked by "+d.By+", "+human.When(d.At, now))
		f.add("note", d.Note)
	}
	f.add("types", strings.Join(w.Types, ", "))
	f.add("only", lifecycle.ConditionsText(w.Only))
	if w.Concurrency > 0 { // engines have no slots, and of a worker that pulls nobody knows
		f.add("running", fmt.Sprintf("%d of %d slots", w.Running, w.Concurrency))
	}
	if w.PID > 0 {
		f.add("process", fmt.Sprintf("%d on %s", w.PID, w.Host))
	}
	f.add("version", w.Version)
	f.add("wakes by", w.Stream)
	if w.ClockError != nil {
		f.add("clock", human.Rough(time.Duration(*w.ClockError)*time.Millisecond)+" (the machine's minus the database's)")
	}
	f.add("started", human.When(w.StartedAt, now))
	f.add("heartbeat", human.When(w.HeartbeatAt, now))
	text := f.String()
	if len(held) > 0 {
		t := newTable("HOLDS", "ATTEMPT", "CLAIMED", "LEASE UNTIL")
		for i := range held {
			s := &held[i].State
			t.add(human.TaskID(held[i].TaskID), fmt.Sprint(s.Attempt), human.When(s.ClaimedAt, now), human.When(s.PingExpireTime, now))
		}
		text += "\n" + t.flush()
	}
	if more {
		text += "\nThe worker may hold other tasks: too many tasks run to look at all of them.\n"
	}
	return text
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
	cmd.Flags().StringVar(&ask.Note, "note", "", "the reason, shown to other operators")
	return cmd
}

func (a *app) workerResume() *cobra.Command {
	return &cobra.Command{
		Use: "resume WORKER", Short: "Undo a drain", Args: one("the id of a worker"),
		Long: "Undo `worker drain`. The worker reads the request at its next heartbeat, within 30 seconds, and claims\ntasks again.",
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
	case w.Drain == nil && w.Draining:
		return "asked to resume"
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

// typesWidth fits the types of an engine that decides about everything.
const typesWidth = len(flowplan.EngineType + "," + tickplan.EngineType + "," + stepplan.EngineType)

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
		t.add(w.ID, stateOfWorker(w, now), human.OneLine(strings.Join(w.Types, ","), typesWidth), human.OneLine(lifecycle.ConditionsText(w.Only), 40), fmt.Sprint(w.Running), fmt.Sprint(w.Concurrency),
			w.Stream, apart, human.When(w.StartedAt, now), human.Relative(w.HeartbeatAt, now))
	}
	if silent > 0 && !all && !a.asJSON() {
		a.say("%s no recent heartbeat; to list them: --all", human.Plural(silent, "worker has", "workers have"))
	}
	return a.resultTable(map[string]any{"workers": views}, t, "no live workers; to start one: mscheduler work")
}
