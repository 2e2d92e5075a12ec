package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

func (a *app) pauseCommand() *cobra.Command {
	note := ""
	cmd := a.pauseOrResume(&cobra.Command{
		Use: "pause [TYPE...]", Short: "Pause the claiming of tasks, of some types or of all",
		Long: "Pause the claiming of tasks, of some types or of all. All workers stop claiming within two\nseconds. Running tasks continue, and new tasks wait until `mscheduler resume`.",
	}, "pause", func(ctx context.Context, c *connection, all bool, types []string) error {
		if err := input.Note(note); err != nil {
			return err
		}
		return c.store.Control.Pause(ctx, all, types, note, whoami())
	})
	cmd.Flags().StringVar(&note, "note", "", "the reason, shown to other operators")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return a.pauseOrResume(&cobra.Command{
		Use: "resume [TYPE...]", Short: "Undo a pause",
		Long: "Undo a pause. --all undoes `pause --all`. Types that were paused by name stay paused until they\nare resumed by name.",
	}, "resume", func(ctx context.Context, c *connection, all bool, types []string) error {
		return c.store.Control.Resume(ctx, all, types)
	})
}

func (a *app) pauseOrResume(cmd *cobra.Command, verb string, do func(ctx context.Context, c *connection, all bool, types []string) error) *cobra.Command {
	var all bool
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case all && len(args) > 0:
			return usage("%s takes either types or --all, not both", verb)
		case !all && len(args) == 0:
			return usage("%s requires the names of types, or --all", verb)
		}
		for _, t := range args {
			if err := input.Name("type", t); err != nil {
				return err
			}
		}
		return nil
	}
	cmd.RunE = a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
		if err := do(ctx, c, all, args); err != nil {
			return err
		}
		if err := a.warnUnknown(ctx, c, args); err != nil {
			return err
		}
		return a.printPaused(ctx, c)
	})
	cmd.Flags().BoolVar(&all, "all", false, verb+" everything")
	return cmd
}

// warnUnknown warns about types without definition, tasks and workers: probably typing errors.
func (a *app) warnUnknown(ctx context.Context, c *connection, types []string) error {
	for _, t := range types {
		known, err := c.knows(ctx, t)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		page, err := c.store.History.FindLives(ctx, store.Filter{Type: t}, store.InTasks, store.Extent{Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Docs) == 0 {
			a.say("unknown type %q: no definition, no tasks and no live worker; check the spelling", t)
		}
	}
	return nil
}

// unserved is the warning about a type without a definition and without a live worker.
func unserved(typ string) string {
	if start := human.WorkFor(typ); start != "" {
		return fmt.Sprintf("no live worker runs %s; start one: %s", typ, start)
	}
	return fmt.Sprintf("unknown type %q: no definition and no live worker", typ)
}

// warnUnserved warns about types of sent tasks that have no definition and no live worker. The
// tasks are stored and wait for a worker, so an error of this check does not fail the send.
func (a *app) warnUnserved(ctx context.Context, c *connection, types []string) {
	for _, t := range types {
		a.warnUntaken(ctx, c, t, "")
	}
}

// warnUntaken warns as warnUnserved about the type of one sent task: it needs a worker that takes the task.
func (a *app) warnUntaken(ctx context.Context, c *connection, typ, taskID string) {
	switch known, err := c.knows(ctx, typ); {
	case err != nil:
		return
	case !known:
		a.say("%s; the task is stored and waits for a worker", unserved(typ))
		return
	}
	some, err := c.served(ctx, typ, "")
	if err != nil || !some {
		return // the type is known: a worker may start later
	}
	if takes, err := c.served(ctx, typ, taskID); err == nil && !takes {
		a.say("no live worker of type %s takes %s, which is stored and waits; to see why: mscheduler task explain %s", typ, human.TaskID(taskID), human.TaskArg(taskID))
	}
}

// knows reports whether the type has a definition or a live worker.
func (c *connection) knows(ctx context.Context, typ string) (bool, error) {
	_, err := c.store.Types.Get(ctx, typ)
	if !errors.Is(err, store.ErrNoType) {
		return err == nil, err
	}
	return c.served(ctx, typ, "")
}

// served reports whether a live worker runs tasks of the type, and takes the task; "" = any, as for one that is
// not stored.
func (c *connection) served(ctx context.Context, typ, taskID string) (bool, error) {
	workers, err := c.store.Workers.Serving(ctx, typ, c.at)
	if err != nil {
		return false, err
	}
	takes := func(w store.Worker) bool { return !w.Draining }
	if taskID != "" {
		switch t, err := c.store.Tasks.Get(ctx, taskID); {
		case err == nil:
			takes = func(w store.Worker) bool { return w.Takes(t) }
		case !errors.Is(err, store.ErrNotFound):
			return false, err
		}
	}
	return slices.ContainsFunc(workers, takes), nil
}

// printPaused says what is paused now.
func (a *app) printPaused(ctx context.Context, c *connection) error {
	found, err := c.store.Control.Pauses(ctx)
	if err != nil {
		return err
	}
	types, all, notes := []string{}, false, ""
	for i := range found {
		p := &found[i]
		name := p.Type()
		if name == "" {
			all, name = true, "everything"
		} else {
			types = append(types, name)
		}
		if p.Note != "" {
			notes += fmt.Sprintf("%s: %s (%s, %s)\n", name, human.OneLine(p.Note, 200), p.By, human.When(p.At, c.at))
		}
	}
	paused := strings.Join(types, " ")
	switch {
	case all && paused != "":
		paused = "everything, and by name " + paused
	case all:
		paused = "everything"
	case paused == "":
		paused = "nothing"
	}
	return a.result(map[string]any{"all": all, "types": types, "pauses": view.PausesOf(found)}, "paused: "+paused+"\n"+notes)
}
