package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

func (a *app) taskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "task", Short: "Inspect and change tasks", Args: noArgs, RunE: group,
		Long: "Inspect and change tasks.\n\nA task's id is tenant/type/key, or type/key for a task without a tenant, such as http/order-17.\nJSON output, and keys that contain a slash, use -/http/order-17. Put -- before that form.",
	}
	cmd.AddCommand(a.taskList(), a.taskCount(), a.taskShow(), a.taskHistory(), a.taskExplain(), a.taskWait(), a.taskWatch(),
		a.taskCancel(), a.taskRetry(), a.taskUpdate(), a.taskResolve(), a.taskRelease(), a.taskRedeliver())
	return cmd
}

// aboutTask makes a command one that says something about a task.
func (a *app) aboutTask(cmd *cobra.Command, say func(ctx context.Context, c *connection, id string) error) *cobra.Command {
	cmd.Args = taskArgs(one("the id of a task"))
	cmd.RunE = a.onDatabase(func(ctx context.Context, c *connection, args []string) error { return say(ctx, c, args[0]) })
	return cmd
}

// filterFlags select tasks by what they are rather than by their ids.
type filterFlags struct {
	tenant, typ, key, category, creator, worker string
	statuses                                    []string
	errorText                                   string
	args                                        []string
	after, before                               string
}

// filterNames are the flags that make a command go by filter.
var filterNames = []string{"type", "key", "status", "tenant", "category", "creator", "worker", "error", "arg", "created-after", "created-before"}

func (f *filterFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.typ, "type", "", "only tasks of this type")
	fs.StringVar(&f.key, "key", "", "only tasks whose key begins with this text")
	fs.StringSliceVar(&f.statuses, "status", nil, "only tasks with one of these statuses: "+strings.Join(names(lifecycle.Statuses), ", "))
	fs.StringVar(&f.tenant, "tenant", "", "only tasks of this tenant; - for tasks without a tenant")
	fs.StringVar(&f.category, "category", "", "only tasks of this category")
	fs.StringVar(&f.creator, "creator", "", "only tasks of this creator")
	fs.StringVar(&f.worker, "worker", "", "only tasks with an execution by this worker")
	fs.StringVar(&f.errorText, "error", "", "only tasks whose last error contains this text, in upper or lower case")
	fs.StringArrayVar(&f.args, "arg", nil, "only tasks with this argument: PATH=VALUE, such as order.id=17; can be repeated")
	fs.StringVar(&f.after, "created-after", "", "only tasks created at or after this time; a duration such as -2h counts from now")
	fs.StringVar(&f.before, "created-before", "", "only tasks created before this time")
}

func (f *filterFlags) completions(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(names(lifecycle.Statuses)...))
	for _, name := range []string{"type", "key", "tenant", "category", "creator", "worker", "error", "arg", "created-after", "created-before"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// given says whether any of the flags was set.
func (f *filterFlags) given(fs *pflag.FlagSet) bool {
	for _, name := range filterNames {
		if fs.Changed(name) {
			return true
		}
	}
	return false
}

// filter makes the store's filter, or says which flag is wrong. It refuses an empty flag, such as a script passes for a
// variable that is not set: it would select every task. The caller reads the times again once it knows the database's.
func (a *app) filter(fs *pflag.FlagSet, f *filterFlags) (store.Filter, error) {
	for _, name := range filterNames {
		if v := fs.Lookup(name); v.Changed && (v.Value.String() == "" || v.Value.String() == "[]") {
			return store.Filter{}, usage("--%s is empty; leave it out to select every task", name)
		}
	}
	out := store.Filter{Tenant: f.tenant, Type: f.typ, Key: f.key, Category: f.category, Creator: f.creator, WorkerID: f.worker, Error: f.errorText, Args: f.args}
	if f.tenant != "" {
		if err := input.Name("--tenant", f.tenant); err != nil {
			return out, err
		}
	}
	if f.typ != "" {
		if err := input.Name("--type", f.typ); err != nil {
			return out, err
		}
	}
	var err error
	if out.Statuses, err = statusesOf(f.statuses, lifecycle.Statuses); err != nil {
		return out, err
	}
	if err := f.times(&out, a.clock().Now()); err != nil {
		return out, err
	}
	return out, input.Renamed(out.CheckSearch(), func(field string) string { return "--" + field })
}

// times reads the times of the filter. now is the database's time, or, to check them before it is known, the machine's.
func (f *filterFlags) times(out *store.Filter, now time.Time) (err error) {
	if out.After, err = parsePastIfAny("created-after", f.after, now, "no task"); err == nil {
		out.Before, err = parsePastIfAny("created-before", f.before, now, "every task")
	}
	return err
}

// statusesOf are the values of --status, in whatever case they are given.
func statusesOf[T ~string](given []string, all []T) (out []T, err error) {
	for _, name := range given {
		i := slices.IndexFunc(all, func(s T) bool { return strings.EqualFold(string(s), name) })
		if i < 0 {
			return nil, usage("--status is %q; want one of %s", name, strings.Join(names(all), ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
