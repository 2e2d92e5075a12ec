package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

const typeHelp = `Settings of task types: retries, timeouts, callback, limits.

A task's own option overrides its type's, which overrides the handler's, which overrides the
default. A change acts on sends and claims within two seconds. A running execution keeps the
settings of its claim.`

func (a *app) typeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "type", Short: "Manage the settings of task types", Long: typeHelp, Args: noArgs, RunE: group}
	cmd.AddCommand(a.typeApply(), a.typeList(), a.typeShow(), a.pauseCommand(), a.resumeCommand(), a.typeDelete())
	return cmd
}

func (a *app) typeList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the types with stored settings", Args: noArgs,
		Long: "List the types with stored settings. Types without stored settings use those of their handlers\nand the defaults. -o yaml prints a file for `type apply`.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
			types, unread := c.admin.Types(ctx)
			if len(types) == 0 && unread != nil {
				return unread
			}
			paused, all, err := c.admin.Paused(ctx)
			if err != nil {
				return err
			}
			return errors.Join(a.printTypes(types, paused, all), unread)
		}),
	}
}

func (a *app) printTypes(types []*model.TaskType, paused []string, all bool) error {
	asForm, document := storedType(paused)
	if done, err := printStored(a, "types", types, asForm, document); done {
		return err
	}
	tab := newTable("TYPE", "CATEGORY", "RETRIES", "TIMEOUT", "LIMITS", "CALLBACK", "PAUSED", "VERSION", "NAME")
	for _, t := range types {
		tab.add(t.Code, t.Category, retriesText(t.Options.Retry), spanOr(t.Options.ExecutionTimeout, ""), limitsText(t), callbackText(t.Options.Callback),
			pausedText(slices.Contains(paused, t.Code), all), fmt.Sprint(t.Version), human.OneLine(t.Name, 40))
	}
	return a.resultTable(nil, tab, "no type has settings; see: mscheduler type apply --help")
}

// storedType is how a type is printed for other programs.
func storedType(paused []string) (func(*model.TaskType) *form.Type, func(*model.TaskType) (json.RawMessage, error)) {
	return func(t *model.TaskType) *form.Type { return typeForm(t, paused) },
		func(t *model.TaskType) (json.RawMessage, error) { return typeJSON(t, paused) }
}

// typeForm is a stored type as a file would say it that can be applied anywhere, any number
// of times.
func typeForm(t *model.TaskType, paused []string) *form.Type {
	f := form.TypeOf(t, slices.Contains(paused, t.Code))
	f.Version = 0
	return f
}

// pausedText says whether a type is paused, by itself or with everything.
func pausedText(itself, all bool) string {
	switch {
	case all:
		return "all are"
	case itself:
		return "yes"
	default:
		return ""
	}
}

func retriesText(r *model.Retry) string {
	if r == nil {
		return ""
	}
	var parts []string
	if r.Strategy != "" {
		parts = append(parts, string(r.Strategy))
	}
	if r.MaxErrors != nil {
		parts = append(parts, fmt.Sprintf("at most %d", *r.MaxErrors))
	}
	return strings.Join(parts, ", ")
}

func limitsText(t *model.TaskType) string {
	var parts []string
	if t.MaxRunning > 0 {
		parts = append(parts, fmt.Sprintf("%d at once", t.MaxRunning))
	}
	if r := t.RateLimit; r != nil {
		parts = append(parts, fmt.Sprintf("%d per %s", r.Count, span(r.Per)))
	}
	if t.KeyLimit != nil {
		parts = append(parts, "by key")
	}
	return strings.Join(parts, ", ")
}

func callbackText(c *model.Callback) string {
	switch {
	case c == nil || c.Success == nil && c.Error == nil:
		return ""
	case c.Success == nil && c.OnPending:
		return "failures, pending"
	case c.Success == nil:
		return "failures"
	case c.Error == nil:
		return "successes"
	case c.OnPending:
		return "successes, failures, pending"
	default:
		return "both"
	}
}

func (a *app) typeShow() *cobra.Command {
	return &cobra.Command{
		Use: "show TYPE", Short: "Show the settings of a type", Args: one("the name of a type"),
		Long: "Show the settings of a type, without its secrets. -o yaml prints a file for `type apply`.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			paused, _, err := c.admin.Paused(ctx)
			if err != nil {
				return err
			}
			t, err := c.admin.Type(ctx, args[0])
			if err != nil {
				return err
			}
			asForm, document := storedType(paused)
			if done, err := printOneStored(a, t, asForm, document); done {
				return err
			}
			var f fields
			for _, l := range form.Lines(typeForm(t, paused)) {
				f.add(l.Path, l.Value)
			}
			f.add("version", fmt.Sprintf("%d, of %s", t.Version, human.Stamp(t.UpdatedAt)))
			return a.print(f.String())
		}),
	}
}

// typeJSON is the stored document, with the type's name as code and no secrets.
func typeJSON(t *model.TaskType, paused []string) (json.RawMessage, error) {
	return view.Stored(t, "code", bson.E{Key: "paused", Value: slices.Contains(paused, t.Code)})
}

func (a *app) typeDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete TYPE", Short: "Delete a type's settings", Args: one("the name of a type"),
		Long: "Delete a type's settings. Its tasks stay, and use the options of their handler and the defaults\nfrom their next claim. A worker that serves the type only by its category stops claiming them.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			code := args[0]
			t, err := c.admin.Type(ctx, code)
			if err != nil {
				return err
			}
			open, err := c.store.History.Count(ctx, store.Filter{Type: code, Statuses: openStatuses})
			if err != nil {
				return err
			}
			if open > 0 {
				if err := a.confirm(yes, fmt.Sprintf("Delete the settings of type %s? %s not ended.", code, human.Plural(open, "task has", "tasks have"))); err != nil {
					return err
				}
			}
			if err := c.admin.DeleteType(ctx, code, t.Version); err != nil {
				return err
			}
			return a.result(map[string]any{"code": code, "result": "deleted", "open_tasks": open}, code+"  deleted\n")
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask if the type has tasks that have not ended")
	return cmd
}

// openStatuses are those of tasks that have not ended.
var openStatuses = []model.Status{model.StatusWait, model.StatusNew, model.StatusExecuting, model.StatusError}
