package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const waitHelp = `Wait until tasks have ended and print their results.

The exit code is 0 if all tasks succeeded, and 1 if one ended otherwise or --timeout passed.
Tasks that have already ended count, too.`

func (a *app) taskWait() *cobra.Command {
	var limit waitLimit
	cmd := &cobra.Command{
		Use: "wait ID...", Short: "Wait for tasks to end", Long: waitHelp,
		Args: taskArgs(some("the ids of tasks")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := limit.check(); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := a.connectReady(ctx)
			if err != nil {
				return err
			}
			return a.awaitAll(ctx, c, args, limit)
		},
	}
	limit.register(cmd.Flags(), "timeout", "give up after this time, such as 30s; defaults to never")
	return cmd
}

// waitLimit is a flag that says how long a command waits for tasks to end.
type waitLimit struct {
	flag *pflag.Flag
	span time.Duration // 0 = without a limit
}

func (w *waitLimit) register(f *pflag.FlagSet, name, help string) {
	spanVar(f, &w.span, name, 0, help)
	w.flag = f.Lookup(name)
}

func (w *waitLimit) check() error {
	if w.span <= 0 && w.flag.Changed {
		return usage("--%s is %s; it must be positive", w.flag.Name, span(w.span))
	}
	return nil
}

// bound is the context of the wait alone: a database that is slow to answer is no task that has not ended.
func (w *waitLimit) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.span == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, w.span, errWaited)
}

var errWaited = errors.New("the timeout passed before the task had ended")

// awaitAll waits for the present lives of tasks.
func (a *app) awaitAll(ctx context.Context, c *connection, ids []string, limit waitLimit) error {
	lives, err := c.store.Tasks.ByIDs(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		t, there := lives[id]
		if t != nil {
			continue
		}
		if there {
			return store.CannotRead(id)
		}
		if lives[id], err = c.store.History.Life(ctx, id, 0); errors.Is(err, store.ErrNotFound) {
			return coded(ExitNotFound, "no such task: %s", human.TaskID(id))
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := limit.bound(ctx)
	defer cancel()
	all := true
	for _, id := range ids {
		succeeded, err := a.await(ctx, c, producer.Sent{ID: id, Generation: lives[id].Generation})
		if err != nil {
			return err
		}
		all = all && succeeded
	}
	if !all {
		return quiet(ExitFailed)
	}
	return nil
}

// endView is the end of a task as JSON.
type endView struct {
	ID       string          `json:"id"`
	Status   model.Status    `json:"status"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Attempts int             `json:"attempts"`
	TookMS   int64           `json:"took_ms"` // from its creation to its end
}

// await waits for one life, prints how it ended, and reports whether that is a success.
func (a *app) await(ctx context.Context, c *connection, sent producer.Sent) (succeeded bool, err error) {
	t, err := c.producer.AwaitTask(ctx, sent)
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), errWaited):
		return false, coded(ExitFailed, "%s: %w; to see what it waits for: mscheduler task explain %s", human.TaskID(sent.ID), errWaited, human.TaskArg(sent.ID))
	case ctx.Err() != nil:
		return false, coded(ExitInterrupted, "interrupted; the task goes on: mscheduler task wait %s", human.TaskArg(sent.ID))
	default:
		return false, err
	}
	took := t.FinishedAt.Sub(t.CreatedAt)
	v := endView{ID: t.ID, Status: t.Status, Attempts: t.Attempt, TookMS: took.Milliseconds()}
	if t.Result.Type != 0 {
		v.Result = codec.ValueJSON(t.Result)
	}
	text := human.TaskID(t.ID) + "  " + string(t.Status) + "  after " + human.Rough(took)
	succeeded = t.Status.Succeeded()
	if succeeded {
		text = strings.TrimSuffix(text+"\n"+valueText(t.Result), "\n")
	} else if v.Error = cmp.Or(t.Remark, t.ErrorInfo); v.Error != "" {
		text += ": " + strings.ReplaceAll(v.Error, "\n", "\n  ") // a line of it is no end of another task
	}
	return succeeded, a.result(v, text+"\n")
}
