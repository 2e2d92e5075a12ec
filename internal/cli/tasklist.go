package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const maxListed = 10_000

func (a *app) taskList() *cobra.Command {
	var f filterFlags
	var limit int
	var after string
	cmd := &cobra.Command{
		Use: "list", Short: "List tasks, by id", Args: noArgs,
		Long: `List tasks, by id.

One page has --limit tasks. When there are more, stderr says how to get the next page;
with -o json the field "next" is the id to give to --after.`,
		Example: "  mscheduler task list --type http --status Failure,Pending\n  mscheduler task list --created-after -1h -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxListed {
				return usage("--limit is %d; want 1 to %d", limit, maxListed)
			}
			filter, err := a.filter(&f)
			if err != nil {
				return err
			}
			filter.AfterID = after
			ctx := cmd.Context()
			c, err := a.connectReady(ctx)
			if err != nil {
				return err
			}
			docs, err := c.store.List(ctx, filter, limit+1)
			if err != nil {
				return err
			}
			now, err := c.now(ctx)
			if err != nil {
				return err
			}
			more := len(docs) > limit
			docs = docs[:min(len(docs), limit)]
			if a.asJSON() {
				return a.listJSON(docs, more)
			}
			return a.listTable(docs, more, now)
		},
	}
	f.register(cmd.Flags())
	f.completions(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many tasks a page has")
	cmd.Flags().StringVar(&after, "after", "", "begin after this id: the next page")
	return cmd
}

func (a *app) listJSON(docs []bson.Raw, more bool) error {
	out := struct {
		Tasks []json.RawMessage `json:"tasks"`
		Next  string            `json:"next,omitempty"`
	}{Tasks: []json.RawMessage{}}
	for _, doc := range docs {
		j, err := taskJSON(doc)
		if err != nil {
			return err
		}
		out.Tasks = append(out.Tasks, j)
	}
	if more {
		out.Next = docs[len(docs)-1].Lookup("_id").StringValue()
	}
	return a.printJSON(out)
}

func (a *app) listTable(docs []bson.Raw, more bool, now time.Time) error {
	if len(docs) == 0 {
		a.say("no task")
		return nil
	}
	t := newTable("TASK", "STATUS", "PRI", "TRIES", "CREATED", "WHAT")
	last := ""
	for _, doc := range docs {
		task, err := store.Decode(doc)
		if err != nil {
			return err
		}
		last = task.ID
		t.add(task.ID, string(task.Status), fmt.Sprint(task.Priority), fmt.Sprint(task.Attempt), human.When(task.CreatedAt, now), whatOf(task, now))
	}
	if err := a.print(t.String()); err != nil {
		return err
	}
	if more {
		a.say("there are more; the next page: --after '%s'", last)
	}
	return nil
}

// whatOf is the one thing about a task that its status makes interesting.
func whatOf(t *model.Task, now time.Time) string {
	const width = 60
	switch {
	case t.Status == model.StatusWait:
		return "held"
	case !t.CancelRequestedAt.IsZero() && !t.Status.Ended():
		return "cancel requested " + human.Relative(t.CancelRequestedAt, now)
	case t.Status == model.StatusNew && t.DueAt.After(now):
		return "starts " + human.Relative(t.DueAt, now)
	case t.Status == model.StatusNew:
		return "due " + human.Relative(t.DueAt, now)
	case t.Status == model.StatusError:
		return human.OneLine(fmt.Sprintf("retry %s: %s", human.Relative(t.DueAt, now), t.ErrorInfo), width)
	case t.Status == model.StatusExecuting:
		for i := range t.WorkerStates {
			if w := &t.WorkerStates[i]; w.Open() && w.Lapsed(now) {
				return human.OneLine("lease lapsed "+human.Relative(w.PingExpireTime, now)+" on "+w.WorkerID, width)
			} else if w.Open() {
				return human.OneLine("on "+w.WorkerID+" since "+human.Rough(now.Sub(w.ClaimedAt)), width)
			}
		}
		return ""
	case t.Status.Succeeded():
		return "done " + human.Relative(t.FinishedAt, now)
	case t.Remark != "":
		return human.OneLine(t.Remark, width)
	default:
		return human.OneLine(t.ErrorInfo, width)
	}
}
