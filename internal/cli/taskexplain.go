package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/facts"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/model"
)

func (a *app) taskExplain() *cobra.Command {
	return a.aboutTask(&cobra.Command{
		Use: "explain ID", Short: "Explain a task's state and what happens next",
	}, func(ctx context.Context, c *connection, id string) error {
		e, err := facts.Explain(ctx, c.store, id, nil)
		if err != nil {
			return err
		}
		return a.result(e, explainText(e))
	})
}

// typeOptions are what the type says to its tasks.
func (c *connection) typeOptions(ctx context.Context, code string) (model.Options, error) {
	typ, err := facts.Type(ctx, c.store, code)
	if typ == nil {
		return model.Options{}, err
	}
	return typ.Options, nil
}

func explainText(r facts.Explained) string {
	var b strings.Builder
	b.WriteString(human.TaskID(r.ID) + " is " + string(r.Status) + ".\n" + r.Summary + "\n")
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
