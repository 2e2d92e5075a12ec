package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const watchHelp = `Watch what happens to tasks anywhere in the fleet, as it happens, until interrupted.

Each line is one event: a task was sent, claimed, taken_over from a worker whose lease
lapsed, made progress, was parked, released, failed and will be tried again, succeeded on
one of several workers, is cancelling, changed, or ended. With -o json each line is one JSON
object; pass its token to --after to resume, while the server still has the events.

It needs a change stream. A fleet has four for all watchers, and two for watchers of the same
types. Behind mongos an event may arrive up to ten seconds late while a shard is idle. A standalone
server has no change streams; ` + "`task wait`" + ` polls and works there, too. ` + "`work --events`" + `
prints what a single worker does.`

func (a *app) taskWatch() *cobra.Command {
	var f producer.EventFilter
	var kinds []string
	cmd := &cobra.Command{
		Use: "watch", Short: "Watch the events of tasks as they happen", Long: watchHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range kinds {
				f.Kinds = append(f.Kinds, model.EventKind(strings.ToLower(k)))
			}
			c, err := a.connectReady(cmd.Context())
			if err != nil {
				return err
			}
			s, err := c.producer.Subscribe(cmd.Context(), f)
			if err != nil {
				return watchError(err, insteadOfTaskWatch)
			}
			a.say("watching; Ctrl-C stops")
			for e, err := range s.All(cmd.Context()) {
				if err != nil {
					return a.watched(cmd.Context().Err() != nil, s, err)
				}
				if err := a.printLine(view.Event(e), eventLine(&e)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.Types, "type", nil, "only tasks of these types")
	fs.StringVar(&f.Key, "key", "", "only tasks with this key")
	fs.StringVar(&f.Tenant, "tenant", "", "only tasks of this tenant; - for tasks without a tenant")
	fs.StringSliceVar(&kinds, "kind", nil, "only events of these kinds: "+strings.Join(names(codec.EventKinds), ", "))
	fs.StringVar(&f.After, "after", "", "start after the event with this token; defaults to now")
	_ = cmd.RegisterFlagCompletionFunc("kind", fixed(names(codec.EventKinds)...))
	for _, name := range []string{"type", "key", "tenant", "after"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// watched is how watching ends: a person who ends it is told where to go on.
func (a *app) watched(interrupted bool, s *producer.Subscription, err error) error {
	if !interrupted {
		return watchError(err, insteadOfTaskWatch)
	}
	a.say("to continue: --after %s", s.Token())
	return nil
}

const insteadOfTaskWatch = "`mscheduler task wait` polls and works without them"

// watchError is the error of a command that watches; instead says what works without change streams.
func watchError(err error, instead string) error {
	var none *model.NoStreamError
	switch {
	case errors.As(err, &none):
		return coded(ExitRefused, "change streams are not available: %s; %s", none.Reason, instead)
	case errors.Is(err, model.ErrMissed):
		return coded(ExitFailed, "%w; without --after the command starts from now", err)
	default:
		return err
	}
}

// eventLine is an event as a person reads it.
func eventLine(e *model.TaskEvent) string {
	line := fmt.Sprintf("%s  %-10s  %s", e.At.UTC().Format(clock.Format), e.Kind, human.TaskID(e.TaskID))
	add := func(s string) {
		if s != "" {
			line += "  " + human.OneLine(s, 200)
		}
	}
	add(string(e.Status))
	if e.WorkerID != "" {
		add(fmt.Sprintf("try %d by %s", e.Attempt, e.WorkerID))
	}
	if e.Progress != nil {
		add(fmt.Sprintf("%g %%", e.Progress.Percent))
		add(e.Progress.Message)
	}
	add(e.FailKind)
	add(e.Reason)
	return line
}
