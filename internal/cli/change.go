package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// taskChange is a command that changes tasks, by id or by filter.
type taskChange struct {
	bulk.Action
	short   string
	long    string
	remark  bool
	text    func(*model.Task) string // what is printed of a changed one; nil = changedText
	flags   func(*pflag.FlagSet)     // of its own; nil = none
	check   func() error             // of those flags, before the database is asked; nil = none
	example string                   // flags without which the examples would do nothing
	apply   func(ctx context.Context, c *connection, id, remark string) (*model.Task, error)
	job     func(*bulk.Job) // says what flags of its own mean for a job; nil = nothing
}

func (a *app) taskCancel() *cobra.Command {
	return a.changeCommand(taskChange{
		Action: bulk.Cancel, short: "Cancel tasks", remark: true,
		long: "Cancel tasks. A task that is not running ends at once. The context of a running handler is\ncancelled within two seconds, and the task ends when the handler returns.",
		apply: func(ctx context.Context, c *connection, id, remark string) (*model.Task, error) {
			return c.producer.Cancel(ctx, id, remark)
		},
	})
}

func (a *app) taskRetry() *cobra.Command {
	var step string
	return a.changeCommand(taskChange{
		Action: bulk.Retry, short: "Run tasks again", remark: true,
		long: "Run tasks again. A task that waits for a retry (Error) becomes due at once. A task that ended\nwithout success begins a new life with a fresh budget.\n\nA filter includes Cancelled tasks only with --status Cancelled. With --from-step the handler\nrepeats that step and those after it. Without it, an ended task starts from the beginning.",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&step, "from-step", "", "repeat this step of the handler and the steps after it")
		},
		apply: func(ctx context.Context, c *connection, id, remark string) (*model.Task, error) {
			if step != "" {
				return c.producer.RetryFrom(ctx, id, step, remark)
			}
			return c.producer.Retry(ctx, id, remark)
		},
		job: func(j *bulk.Job) { j.Step = step },
	})
}

func (a *app) taskResolve() *cobra.Command {
	return a.changeCommand(taskChange{
		Action: bulk.Resolve, short: "Mark Pending tasks as done by hand", remark: true,
		long: "Mark Pending tasks as done by hand, or as unnecessary. Their status becomes ManuallyProcessed.\nUse --remark to record the reason.",
		apply: func(ctx context.Context, c *connection, id, remark string) (*model.Task, error) {
			return c.producer.Resolve(ctx, id, remark)
		},
	})
}

func (a *app) taskRelease() *cobra.Command {
	return a.changeCommand(taskChange{
		Action: bulk.Release, short: "Release held tasks",
		long: "Release tasks that were sent with --held, so that workers can run them.",
		apply: func(ctx context.Context, c *connection, id, _ string) (*model.Task, error) {
			return c.producer.Release(ctx, id)
		},
	})
}

func (a *app) changeCommand(ch taskChange) *cobra.Command {
	var f filterFlags
	var yes, background bool
	var remark string
	past := historyFlag("no")
	cmd := &cobra.Command{
		Use: ch.Name + " [ID...]", Short: ch.short,
		Long: ch.long + `

Give either ids or a filter. With a filter, the command prints the number of tasks and asks
for confirmation. Without a terminal it requires --yes. With --background a worker changes the
tasks, and the command returns at once; see: mscheduler bulk --help`,
		Example: strings.ReplaceAll(fmt.Sprintf("  mscheduler task %[1]s http/order-17 %[2]s\n  mscheduler task %[1]s --type http --created-before -1d %[2]s",
			ch.Name, ch.example), " \n", "\n"),
		Args: func(cmd *cobra.Command, args []string) error {
			switch filtered := f.given(cmd.Flags()); {
			case len(args) == 0 && !filtered:
				return usage("task %s requires ids of tasks, or a filter such as --type; see: mscheduler task %s --help", ch.Name, ch.Name)
			case len(args) > 0 && filtered:
				return usage("task %s takes either ids or a filter, not both", ch.Name)
			case len(args) > 0 && background:
				return usage("--background requires a filter, not ids")
			}
			return taskIDs(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ch.check != nil {
				if err := ch.check(); err != nil {
					return err
				}
			}
			filter, err := a.changeFilter(cmd.Flags(), &f, &ch)
			if err != nil {
				return err
			}
			where, err := past.where()
			if err != nil {
				return err
			}
			c, err := a.connectReady(cmd.Context())
			if err != nil {
				return err
			}
			run := &changing{app: a, taskChange: ch, c: c, remarkText: remark, where: where, background: background}
			if len(args) > 0 {
				return run.byID(cmd.Context(), args)
			}
			if err := f.times(&filter, c.at); err != nil {
				return err
			}
			return run.byFilter(cmd.Context(), filter, yes)
		},
	}
	f.register(cmd.Flags())
	f.completions(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "with a filter: do not ask for confirmation")
	cmd.Flags().BoolVar(&background, "background", false, "with a filter: start a job and do not wait for it")
	if ch.flags != nil {
		ch.flags(cmd.Flags())
	}
	if ch.Lives {
		past.register(cmd, "with a filter: ")
	}
	if ch.remark {
		cmd.Flags().StringVar(&remark, "remark", "", "the reason, stored with the task")
	}
	return cmd
}

func (a *app) changeFilter(fs *pflag.FlagSet, f *filterFlags, ch *taskChange) (store.Filter, error) {
	filter, err := a.filter(fs, f)
	if err != nil {
		return filter, err
	}
	if len(filter.Statuses) == 0 {
		filter.Statuses = ch.ByDefault
	}
	for _, s := range filter.Statuses {
		if !slices.Contains(ch.From, s) {
			return filter, usage("--status %s: only %s can be %s", s, strings.Join(names(ch.From), ", "), ch.Done)
		}
	}
	return filter, nil
}

// changing is one run of a change.
type changing struct {
	*app
	taskChange
	c          *connection
	remarkText string
	where      store.Where // a filter looks
	background bool        // in a job
}

// changedView is a changed task as JSON.
type changedView struct {
	ID         string       `json:"id"`
	Status     model.Status `json:"status"`
	Generation int64        `json:"generation"`
}

// byID changes named tasks; what one of them forbids does not stop the others.
func (r *changing) byID(ctx context.Context, ids []string) error {
	changed := r.several("tasks")
	for _, id := range ids {
		before, _ := r.c.store.Tasks.Get(ctx, id) // if it cannot be read, the change says why
		t, err := r.apply(ctx, r.c, id, r.remarkText)
		if err != nil {
			if err := changed.skip(ctx, err, r.whyNot(id, err), func() string { return id }); err != nil {
				return err
			}
			continue
		}
		if before != nil && before.Rev == t.Rev {
			r.sayUnchanged(human.TaskID(t.ID), string(t.Status))
		}
		if err := changed.add(changedView{t.ID, t.Status, t.Generation}, human.TaskID(t.ID)+"  "+r.textOf(t)); err != nil {
			return err
		}
	}
	return changed.end(ctx)
}

// whyNot says why a task was not changed, and what helps.
func (r *changing) whyNot(id string, err error) string {
	var refused *model.RefusedError
	if !errors.As(err, &refused) {
		text, plain := errorText(err), fmt.Sprintf("%v: %s", store.ErrNotFound, human.TaskID(id))
		if strings.HasSuffix(text, plain) {
			return plain
		}
		return text
	}
	if s := refused.Status; r.Name == bulk.Retry.Name && (s == model.StatusSuccess || s == model.StatusCompleted) {
		return fmt.Sprintf("%s is %s; to run it again, send its key with: mscheduler send --existing restart-succeeded", human.TaskID(id), s)
	}
	return fmt.Sprintf("%s is %s: %s", human.TaskID(id), refused.Status, refused.Reason)
}

// sayUnchanged says that a command found nothing to do, and the status for which.
func (a *app) sayUnchanged(id, status string) { a.say("%s is %s; nothing changed", id, status) }

func (r *changing) textOf(t *model.Task) string {
	if r.text != nil {
		return r.text(t)
	}
	return changedText(t)
}

func changedText(t *model.Task) string {
	if !t.CancelRequestedAt.IsZero() && !t.Status.Ended() {
		return string(t.Status) + ", stop requested; its handler is still running"
	}
	return string(t.Status)
}

// skippedText says how many were left alone and why, the most frequent reason first.
func skippedText(c *bulk.Counts) string {
	text := fmt.Sprintf(", %d skipped:", c.Skipped)
	reasons := slices.SortedFunc(maps.Keys(c.Reasons), func(x, y string) int {
		return cmp.Or(cmp.Compare(c.Reasons[y], c.Reasons[x]), strings.Compare(x, y))
	})
	if len(reasons) == 1 {
		return text + " " + reasons[0]
	}
	for _, r := range reasons {
		text += fmt.Sprintf("\n  %d: %s", c.Reasons[r], r)
	}
	return text
}

func (r *changing) byFilter(ctx context.Context, f store.Filter, yes bool) error {
	if f.Before.IsZero() || f.Before.After(r.c.at) {
		f.Before = r.c.at // what comes while we are at it was not counted
	}
	n, err := r.c.store.History.CountLives(ctx, f, r.where)
	if err != nil {
		return err
	}
	if n == 0 && f.Type != "" {
		if err := r.warnUnknown(ctx, r.c, []string{f.Type}); err != nil {
			return err
		}
	}
	counts := bulk.Counts{Matched: n}
	if n > 0 {
		if err := r.confirm(yes, fmt.Sprintf("%s %s (%s)?", capital(r.Name), human.Plural(n, "task", "tasks"), strings.Join(names(f.Statuses), ", "))); err != nil {
			return err
		}
		if r.background {
			return r.startJob(ctx, f)
		}
		err := r.all(ctx, f, &counts)
		r.counts(counts.Changed)
		if err != nil {
			r.say("%d of %d were %s before this error:", counts.Changed, n, r.Done)
			return r.partly(err, int(counts.Changed), counts)
		}
	}
	text := fmt.Sprintf("%s %s", human.Plural(counts.Changed, "task", "tasks"), r.Done)
	if counts.Skipped > 0 {
		text += skippedText(&counts)
	}
	return r.result(counts, text+"\n")
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// all changes every task of the filter.
func (r *changing) all(ctx context.Context, f store.Filter, counts *bulk.Counts) error {
	w := bulk.Walk{Store: r.c.store, Filter: f, Where: r.where, Do: func(ctx context.Context, life store.Place) error {
		name := life.ID
		if r.Lives {
			name = lifeName(life.ID, life.Generation)
		}
		_, err := r.apply(ctx, r.c, name, r.remarkText)
		return err
	}}
	return w.All(ctx, counts)
}
