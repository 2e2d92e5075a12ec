package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// taskChange is a command that changes tasks, by id or by filter.
type taskChange struct {
	name, done string // "cancel", "cancelled"
	short      string
	long       string
	from       []model.Status // the statuses it is possible in
	byDefault  []model.Status // those a filter without --status means
	remark     bool
	lives      bool                     // a filter may go over the history
	text       func(*model.Task) string // what is printed of a changed one; nil = changedText
	flags      func(*pflag.FlagSet)     // of its own; nil = none
	check      func() error             // of those flags, before the database is asked; nil = none
	example    string                   // flags without which the examples would do nothing
	apply      func(ctx context.Context, c *connection, id, remark string) (*model.Task, error)
}

func (a *app) taskCancel() *cobra.Command {
	open := []model.Status{model.StatusWait, model.StatusNew, model.StatusExecuting, model.StatusError}
	return a.changeCommand(taskChange{
		name: "cancel", done: "cancelled", short: "Cancel tasks", from: open, byDefault: open, remark: true,
		long: "Cancel tasks. A task that is not running ends at once. The context of a running handler is\ncancelled within two seconds, and the task ends when the handler returns.",
		apply: func(ctx context.Context, c *connection, id, remark string) (*model.Task, error) {
			return c.producer.Cancel(ctx, id, remark)
		},
	})
}

func (a *app) taskRetry() *cobra.Command {
	var step string
	return a.changeCommand(taskChange{
		name: "retry", done: "retried", short: "Run tasks again", remark: true,
		from:      []model.Status{model.StatusError, model.StatusFailure, model.StatusPending, model.StatusCancelled},
		byDefault: []model.Status{model.StatusError, model.StatusFailure, model.StatusPending},
		long:      "Run tasks again. A task that waits for a retry (Error) becomes due at once. A task that ended\nwithout success begins a new life with a fresh budget.\n\nA filter includes Cancelled tasks only with --status Cancelled. With --from-step the handler\nrepeats that step and those after it. Without it, an ended task starts from the beginning.",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&step, "from-step", "", "repeat this step of the handler and the steps after it")
		},
		apply: func(ctx context.Context, c *connection, id, remark string) (*model.Task, error) {
			if step != "" {
				return c.producer.RetryFrom(ctx, id, step, remark)
			}
			return c.producer.Retry(ctx, id, remark)
		},
	})
}

func (a *app) taskResolve() *cobra.Command {
	pending := []model.Status{model.StatusPending}
	return a.changeCommand(taskChange{
		name: "resolve", done: "resolved", short: "Mark Pending tasks as done by hand", from: pending, byDefault: pending, remark: true,
		long: "Mark Pending tasks as done by hand, or as unnecessary. Their status becomes ManuallyProcessed.\nUse --remark to record the reason.",
		apply: func(ctx context.Context, c *connection, id, remark string) (*model.Task, error) {
			return c.producer.Resolve(ctx, id, remark)
		},
	})
}

func (a *app) taskRelease() *cobra.Command {
	held := []model.Status{model.StatusWait}
	return a.changeCommand(taskChange{
		name: "release", done: "released", short: "Release held tasks", from: held, byDefault: held,
		long: "Release tasks that were sent with --held, so that workers can run them.",
		apply: func(ctx context.Context, c *connection, id, _ string) (*model.Task, error) {
			return c.producer.Release(ctx, id)
		},
	})
}

func (a *app) changeCommand(ch taskChange) *cobra.Command {
	var f filterFlags
	var yes bool
	var remark string
	past := listFlags{history: "no"}
	cmd := &cobra.Command{
		Use: ch.name + " [ID...]", Short: ch.short,
		Long: ch.long + `

Give either ids or a filter. With a filter, the command prints the number of tasks and asks
for confirmation. Without a terminal it requires --yes.`,
		Example: strings.ReplaceAll(fmt.Sprintf("  mscheduler task %[1]s http/order-17 %[2]s\n  mscheduler task %[1]s --type http --created-before -1d %[2]s",
			ch.name, ch.example), " \n", "\n"),
		Args: func(cmd *cobra.Command, args []string) error {
			switch filtered := f.given(cmd.Flags()); {
			case len(args) == 0 && !filtered:
				return usage("task %s requires ids of tasks, or a filter such as --type; see: mscheduler task %s --help", ch.name, ch.name)
			case len(args) > 0 && filtered:
				return usage("task %s takes either ids or a filter, not both", ch.name)
			}
			return taskIDs(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ch.check != nil {
				if err := ch.check(); err != nil {
					return err
				}
			}
			filter, err := a.changeFilter(&f, &ch)
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
			run := &changing{app: a, taskChange: ch, c: c, remarkText: remark, where: where}
			if len(args) > 0 {
				return run.byID(cmd.Context(), args)
			}
			return run.byFilter(cmd.Context(), filter, yes)
		},
	}
	f.register(cmd.Flags())
	f.completions(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "with a filter: do not ask for confirmation")
	if ch.flags != nil {
		ch.flags(cmd.Flags())
	}
	if ch.lives {
		cmd.Flags().StringVar(&past.history, "history", "no", "with a filter: past lives in the history: no, also (the value if none is given), only")
		cmd.Flags().Lookup("history").NoOptDefVal = "also"
		_ = cmd.RegisterFlagCompletionFunc("history", fixed("no", "also", "only"))
	}
	if ch.remark {
		cmd.Flags().StringVar(&remark, "remark", "", "the reason, stored with the task")
	}
	return cmd
}

func (a *app) changeFilter(f *filterFlags, ch *taskChange) (store.Filter, error) {
	filter, err := a.filter(f)
	if err != nil {
		return filter, err
	}
	if len(filter.Statuses) == 0 {
		filter.Statuses = ch.byDefault
	}
	for _, s := range filter.Statuses {
		if !slices.Contains(ch.from, s) {
			return filter, usage("--status %s: only %s can be %s", s, strings.Join(names(ch.from), ", "), ch.done)
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
}

// changedView is a changed task as JSON.
type changedView struct {
	ID         string       `json:"id"`
	Status     model.Status `json:"status"`
	Generation int64        `json:"generation"`
}

// byID changes named tasks; what one of them forbids does not stop the others.
func (r *changing) byID(ctx context.Context, ids []string) error {
	changed := []changedView{}
	var first error
	for _, id := range ids {
		t, err := r.apply(ctx, r.c, id, r.remarkText)
		if err != nil {
			if ctx.Err() != nil || failure.OfDatabase(err) {
				return err
			}
			if first == nil {
				first = err
			}
			r.say("mscheduler: %s", errorText(err))
			continue
		}
		changed = append(changed, changedView{t.ID, t.Status, t.Generation})
		if !r.asJSON() {
			if err := r.print(human.TaskID(t.ID) + "  " + r.textOf(t) + "\n"); err != nil {
				return err
			}
		}
	}
	if r.asJSON() {
		if err := r.printJSON(map[string]any{"tasks": changed}); err != nil {
			return err
		}
	}
	if first != nil {
		return quiet(exitCode(ctx, first))
	}
	return nil
}

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

// changeCounts is the result of a change by filter as JSON.
type changeCounts struct {
	Matched int64 `json:"matched"`
	Changed int64 `json:"changed"`
	Skipped int64 `json:"skipped"` // refused: their state had changed meanwhile, or it was never possible
	// Reasons are why, and of how many.
	Reasons map[string]int64 `json:"reasons,omitempty"`
}

const (
	maxReasons   = 5 // a reason may name what the task has, and each another thing
	otherReasons = "for other reasons"
)

func (c *changeCounts) skip(err error) {
	c.Skipped++
	why := "the task no longer exists"
	var refused *model.RefusedError
	if errors.As(err, &refused) {
		why = refused.Reason
	}
	if c.Reasons == nil {
		c.Reasons = map[string]int64{}
	}
	if c.Reasons[why] == 0 && len(c.Reasons) >= maxReasons {
		why = otherReasons
	}
	c.Reasons[why]++
}

// skippedText says how many were left alone and why, the most frequent reason first.
func (c *changeCounts) skippedText() string {
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
	if f.Before.IsZero() {
		f.Before = r.c.at // what comes while we are at it was not counted
	}
	n, err := r.c.store.History.CountLives(ctx, f, r.where)
	if err != nil {
		return err
	}
	counts := changeCounts{Matched: n}
	if n > 0 {
		if err := r.confirm(yes, fmt.Sprintf("%s %s (%s)?", capital(r.name), human.Plural(n, "task", "tasks"), strings.Join(names(f.Statuses), ", "))); err != nil {
			return err
		}
		if err := r.all(ctx, f, &counts); err != nil {
			r.say("%d of %d were %s before this error:", counts.Changed, n, r.done)
			return err
		}
	}
	text := fmt.Sprintf("%s %s", human.Plural(counts.Changed, "task", "tasks"), r.done)
	if counts.Skipped > 0 {
		text += counts.skippedText()
	}
	return r.result(counts, text+"\n")
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

const (
	changePage    = 500
	changeWorkers = 16
)

// all changes every task of the filter, page by page.
func (r *changing) all(ctx context.Context, f store.Filter, counts *changeCounts) error {
	for {
		page, err := r.c.store.History.FindLives(ctx, f, r.where, store.Extent{Limit: changePage})
		if err != nil || len(page.Docs) == 0 {
			return err
		}
		names := make([]string, len(page.Docs))
		for i, doc := range page.Docs {
			names[i] = doc.Lookup("_id").StringValue()
			if generation, ok := doc.Lookup("generation").AsInt64OK(); ok && r.where != store.InTasks {
				names[i] = lifeName(names[i], generation)
			}
		}
		if err := r.page(ctx, names, counts); err != nil || page.Next == nil {
			return err
		}
		f.AfterID = page.Next.ID
		if r.where != store.InTasks {
			f.AfterGeneration = page.Next.Generation
		}
	}
}

// page changes tasks side by side, until an error that is no refusal.
func (r *changing) page(ctx context.Context, ids []string, counts *changeCounts) error {
	var mu sync.Mutex
	workers, going := errgroup.WithContext(ctx)
	workers.SetLimit(changeWorkers)
	for _, id := range ids {
		if going.Err() != nil {
			break
		}
		workers.Go(func() error {
			_, err := r.apply(ctx, r.c, id, r.remarkText)
			var refused *model.RefusedError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				counts.Changed++
			case errors.As(err, &refused), errors.Is(err, store.ErrNotFound):
				counts.skip(err)
			default:
				return err
			}
			return nil
		})
	}
	return workers.Wait()
}
