package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

const (
	maxListed = 10_000
	allPage   = 1_000 // of --all
)

// listFlags are those of task list beside the filter.
type listFlags struct {
	filterFlags
	limit   int
	all     bool
	after   string
	history historyFlag
	sort    string
}

const listHelp = `List tasks, sorted by id. --sort=-id begins with the greatest id: generated keys ascend in
time, so the last sent tasks of a type come first.

One page has --limit tasks. When there are more, stderr says how to get the next page;
with -o json the field "next" is what to give to --after. --all lists them all.

Ended tasks move to the history when their retention is over, and when a new life of their key
begins. --history also lists these past lives, as ID@GENERATION, which ` + "`task show`" + ` understands;
--history=only lists nothing else.`

func (a *app) taskList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List tasks, sorted by id", Args: noArgs, Long: listHelp,
		Example: "  mscheduler task list --type http --status Failure,Pending\n  mscheduler task list --created-after -1h -o json\n  mscheduler task list --history --status Failure --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.limit < 1 || f.limit > maxListed {
				return usage("--limit is %d; want 1 to %d", f.limit, maxListed)
			}
			if f.all && cmd.Flags().Changed("limit") {
				return usage("--limit and --all exclude each other")
			}
			filter, err := a.filter(cmd.Flags(), &f.filterFlags)
			if err != nil {
				return err
			}
			where, err := f.history.where()
			if err != nil {
				return err
			}
			switch f.sort {
			case "id":
			case "-id":
				filter.Descending = true
			default:
				return usage("--sort is %q; want id or -id", f.sort)
			}
			if filter.AfterID = fullID(f.after); where != store.InTasks {
				filter.AfterID, filter.AfterGeneration = lifeOf(fullID(f.after))
			}
			if _, _, _, err := input.ParseTaskID(filter.AfterID); f.after != "" && err != nil {
				return wrongAfter(f.after)
			}
			return a.list(cmd.Context(), filter, where, &f)
		},
	}
	f.register(cmd.Flags())
	f.completions(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 50, fmt.Sprintf("number of tasks on a page, at most %d", maxListed))
	cmd.Flags().BoolVar(&f.all, "all", false, "list all tasks instead of one page")
	cmd.Flags().StringVar(&f.after, "after", "", "list tasks after this id, for the next page")
	cmd.Flags().StringVar(&f.sort, "sort", "id", "order of the list: id, or -id for descending ids")
	_ = cmd.RegisterFlagCompletionFunc("sort", fixed("id", "-id"))
	f.history.register(cmd, "")
	return cmd
}

// historyFlag says whether a command looks at past lives.
type historyFlag string

func (h *historyFlag) register(cmd *cobra.Command, when string) {
	cmd.Flags().StringVar((*string)(h), "history", "no", when+"past lives in the history: no, also (the value if none is given), only")
	cmd.Flags().Lookup("history").NoOptDefVal = "also"
	_ = cmd.RegisterFlagCompletionFunc("history", fixed("no", "also", "only"))
}

func (h historyFlag) where() (store.Where, error) {
	switch h {
	case "no":
		return store.InTasks, nil
	case "also":
		return store.InBoth, nil
	case "only":
		return store.InHistory, nil
	default:
		return store.InTasks, usage("--history is %q; want --history, --history=only or --history=no", string(h))
	}
}

// lister prints pages as they come.
type lister interface {
	page(docs []bson.Raw) error
	// end is told how to get on, "" when nothing is left.
	end(next string) error
}

// list prints a page, or all of them.
func (a *app) list(ctx context.Context, filter store.Filter, where store.Where, f *listFlags) error {
	c, err := a.connectReady(ctx)
	if err != nil {
		return err
	}
	if err := f.times(&filter, c.at); err != nil {
		return err
	}
	size, unread := f.limit, store.Unread{}
	var out lister = &tableLister{app: a, now: c.at, where: where}
	if f.all {
		size = allPage
	}
	if a.asJSON() {
		out = &jsonLister{app: a, whole: a.StdoutTerminal || a.flags.output == "yaml"}
	}
	for {
		page, err := c.store.History.FindLives(ctx, filter, where, store.Extent{Limit: size})
		if err != nil {
			return err
		}
		page.Docs = slices.DeleteFunc(page.Docs, func(doc bson.Raw) bool {
			_, err := store.Decode(doc)
			if err != nil {
				id := doc.Lookup("_id").StringValue() // the list is sorted by it
				unread[id] = fmt.Errorf("the task %s cannot be read: %w", human.TaskID(id), err)
			}
			return err != nil
		})
		if err := out.page(page.Docs); err != nil {
			return err
		}
		switch {
		case page.Next == nil:
			return allBut(unread, out.end(""))
		case !f.all && where == store.InTasks:
			return allBut(unread, out.end(page.Next.ID))
		case !f.all:
			return allBut(unread, out.end(lifeName(page.Next.ID, page.Next.Generation)))
		}
		filter.AfterID = page.Next.ID
		if where != store.InTasks {
			filter.AfterGeneration = page.Next.Generation
		}
	}
}

// jsonLister writes one object: piece by piece for a program, and whole for a person, who wants
// it indented or as YAML.
type jsonLister struct {
	app   *app
	whole bool
	tasks []json.RawMessage // all of a whole
	begun bool
}

func (l *jsonLister) page(docs []bson.Raw) error {
	for _, doc := range docs {
		j, err := view.Task(doc)
		if err != nil {
			return err
		}
		if l.whole {
			l.tasks = append(l.tasks, j)
			continue
		}
		separator := ","
		if !l.begun {
			l.begun, separator = true, `{"tasks":[`
		}
		if err := l.app.print(separator + string(j)); err != nil {
			return err
		}
	}
	return nil
}

func (l *jsonLister) end(next string) error {
	if l.whole || !l.begun {
		return l.app.printJSON(struct {
			Tasks []json.RawMessage `json:"tasks"`
			Next  string            `json:"next,omitempty"`
		}{append([]json.RawMessage{}, l.tasks...), next})
	}
	tail := "]}\n"
	if next != "" {
		id, _ := json.Marshal(next) // a text
		tail = `],"next":` + string(id) + "}\n"
	}
	return l.app.print(tail)
}

// tableLister writes a table, whose columns are as wide as the first page wants them.
type tableLister struct {
	app   *app
	now   time.Time
	where store.Where
	table *table
}

func (l *tableLister) page(docs []bson.Raw) error {
	if len(docs) == 0 {
		return nil
	}
	if l.table == nil {
		l.table = newTable("TASK", "STATUS", "PRI", "TRIES", "CREATED", "WHAT")
		if l.where != store.InTasks {
			l.table = newTable("TASK", "STATUS", "PRI", "TRIES", "CREATED", "ARCHIVED", "WHAT")
		}
	}
	for _, doc := range docs {
		t, err := store.Decode(doc)
		if err != nil {
			return err
		}
		row := []string{human.TaskID(t.ID), string(t.Status), fmt.Sprint(t.Priority), fmt.Sprint(t.Attempt), human.When(t.CreatedAt, l.now)}
		if l.where != store.InTasks {
			row = append(row, human.When(t.ArchivedAt, l.now))
		}
		if !t.ArchivedAt.IsZero() {
			row[0] = lifeName(human.TaskID(t.ID), t.Generation)
		}
		l.table.add(append(row, whatOf(t, l.now))...)
	}
	return l.app.print(l.table.flush())
}

func (l *tableLister) end(next string) error {
	if l.table == nil {
		l.app.say("no task")
	}
	if next != "" {
		l.app.say("more tasks follow; for the next page: --after '%s'", human.TaskID(next))
	}
	return nil
}

// whatOf is the one thing about a task that its status makes interesting.
func whatOf(t *model.Task, now time.Time) string {
	const width = 60
	switch {
	case !t.Status.Ended() && !t.ArchivedAt.IsZero():
		return human.OneLine("restarted before it ended: "+t.ErrorInfo, width)
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
			if w := &t.WorkerStates[i]; lifecycle.Open(w) && lifecycle.Lapsed(w, now) {
				return human.OneLine("lease lapsed "+human.Relative(w.PingExpireTime, now)+" on "+w.WorkerID, width)
			} else if lifecycle.Open(w) {
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
