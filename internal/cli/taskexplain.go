package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/explain"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func (a *app) taskExplain() *cobra.Command {
	return a.aboutTask(&cobra.Command{
		Use: "explain ID", Short: "Explain a task's state and what happens next",
	}, func(ctx context.Context, c *connection, id string) error {
		t, err := c.store.History.Life(ctx, id, 0)
		if err != nil {
			return err
		}
		facts, err := c.facts(ctx, t)
		if err != nil {
			return err
		}
		r := explain.Explain(facts)
		return a.result(struct {
			ID     string       `json:"id"`
			Status model.Status `json:"status"`
			explain.Report
		}{t.ID, t.Status, r}, explainText(t, r))
	})
}

// facts gathers what an explanation of the task needs.
func (c *connection) facts(ctx context.Context, t *model.Task) (explain.Facts, error) {
	f := explain.Facts{Task: t, Now: c.at}
	control, err := c.store.Control.Read(ctx)
	if err != nil {
		return f, err
	}
	f.PausedAll, f.PausedType = control.PausedAll, control.Paused(t.Type)
	if f.Type, err = c.typeOf(ctx, t.Type); err != nil {
		return f, err
	}
	const permits = 1000 // more are not named
	if f.Type != nil && f.Type.MaxRunning > 0 {
		if f.OfType, err = c.store.Permits.Holders(ctx, store.LimitOf{Type: t.Type}, f.Type.MaxRunning); err != nil {
			return f, err
		}
	}
	if k := t.Options.LimitKey; k != "" {
		if f.OfKey, err = c.store.Permits.Holders(ctx, store.LimitOf{Type: t.Type, Key: k}, permits); err != nil {
			return f, err
		}
	}
	if t.Status.Ended() {
		if f.Delivery, err = c.store.History.Life(ctx, lifecycle.DeliveryID(t), 0); err != nil && !errors.Is(err, store.ErrNotFound) {
			return f, err
		}
	}
	workers, err := c.store.Workers.List(ctx)
	if err != nil {
		return f, err
	}
	for i := range workers {
		if w := &workers[i]; w.Alive(f.Now) {
			f.Workers = append(f.Workers, explain.Worker{ID: w.ID, Types: w.Types, Only: w.Only, Concurrency: w.Concurrency, Running: w.Running})
		}
	}
	return f, nil
}

// typeOf is what is stored of a type; nil = nothing.
func (c *connection) typeOf(ctx context.Context, code string) (*model.TaskType, error) {
	typ, err := c.store.Types.Get(ctx, code)
	if errors.Is(err, store.ErrNoType) {
		return nil, nil
	}
	return typ, err
}

// typeOptions are what the type says to its tasks.
func (c *connection) typeOptions(ctx context.Context, code string) (model.Options, error) {
	typ, err := c.typeOf(ctx, code)
	if typ == nil {
		return model.Options{}, err
	}
	return typ.Options, nil
}

func explainText(t *model.Task, r explain.Report) string {
	var b strings.Builder
	b.WriteString(human.TaskID(t.ID) + " is " + string(t.Status) + ".\n" + r.Summary + "\n")
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		b.WriteString("\n" + title + "\n")
		for _, l := range lines {
			b.WriteString("  - " + strings.ReplaceAll(l, "\n", "\n    ") + "\n")
		}
	}
	list("Because:", r.Because)
	list("Next:", r.Next)
	if len(r.Workers) > 0 {
		tab := newTable("WORKER", "NOW")
		for _, w := range r.Workers {
			tab.add(w.ID, w.Words)
		}
		b.WriteString("\n" + tab.flush())
	}
	return b.String()
}
