package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

func (a *app) taskHistory() *cobra.Command {
	return a.aboutTask(&cobra.Command{
		Use: "history ID", Short: "List the lives of a task, newest first",
		Long: `List the lives of a task, newest first.

A life ends with the task. Sent again, or retried by a person, its key gets a new one, and
the ended one goes to the history, as it does when its retention is over. ` + "`task show`" + `
shows each of them.`,
	}, func(ctx context.Context, c *connection, id string) error {
		docs, err := c.store.History.AllLives(ctx, id)
		if err != nil {
			return err
		}
		if len(docs) == 0 {
			return coded(ExitNotFound, "no such task: %s (the history was searched, too)", human.TaskID(id))
		}
		now := c.at
		t := newTable("LIFE", "STATUS", "TRIES", "CREATED", "FINISHED", "ARCHIVED", "WHAT")
		var lives []json.RawMessage
		for _, doc := range docs {
			j, err := view.Task(doc)
			if err != nil {
				return err
			}
			life, err := store.Decode(doc)
			if err != nil {
				return err
			}
			lives = append(lives, j)
			t.add(lifeName(human.TaskID(life.ID), life.Generation), string(life.Status), fmt.Sprint(life.Attempt), human.When(life.CreatedAt, now),
				human.When(life.FinishedAt, now), human.When(life.ArchivedAt, now), whatOf(life, now))
		}
		return a.result(map[string]any{"lives": lives}, t.flush())
	})
}
