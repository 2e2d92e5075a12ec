package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

func (a *app) taskShow() *cobra.Command {
	return a.aboutTask(&cobra.Command{
		Use: "show ID[@GENERATION]", Short: "Show a task, or one of its past lives, with its executions",
		Long: `Show one task with its executions, and how far its callback is. With -o json it is the document
as it is stored, without secrets.

A task that has moved to the history is shown as it was then. With @GENERATION it is one
life of the task, as ` + "`task history` and `task list --history`" + ` name it.`,
	}, func(ctx context.Context, c *connection, id string) error {
		raw, err := c.life(ctx, id)
		if err != nil {
			return err
		}
		if a.asJSON() {
			j, err := view.Task(raw)
			if err != nil {
				return err
			}
			return a.printJSON(j)
		}
		t, err := store.Decode(raw)
		if err != nil {
			return err
		}
		typ, err := c.typeOptions(ctx, t.Type)
		if err != nil {
			return err
		}
		told, err := c.callbackState(ctx, t, typ)
		if err != nil {
			return err
		}
		return a.print(taskText(t, raw, typ, c.at, told))
	})
}

// taskText is a task for a person.
func taskText(t *model.Task, raw bson.Raw, typ model.Options, now time.Time, told callbackState) string {
	var f fields
	f.add("task", human.TaskID(t.ID))
	status := string(t.Status)
	if !t.CancelRequestedAt.IsZero() && !t.Status.Ended() {
		status += ", cancel requested " + human.Relative(t.CancelRequestedAt, now)
	}
	f.add("status", status)
	f.add("category", t.Category)
	f.add("creator", t.Creator)
	f.add("priority", fmt.Sprint(t.Priority))
	f.add("created", human.When(t.CreatedAt, now))
	f.add("starts", human.When(t.StartTime, now))
	f.add("expires", human.When(t.ExpireAt, now))
	f.add("due", human.When(t.DueAt, now))
	f.add("lease until", human.When(t.LapseAt, now))
	f.add("finished", human.When(t.FinishedAt, now))
	if took := lifecycle.ExecTime(t); took > 0 {
		f.add("took", human.Rough(took)+", by the last execution to end")
	}
	f.add("kept until", human.When(t.ArchiveAt, now))
	if !t.ArchivedAt.IsZero() {
		f.add("archived", human.When(t.ArchivedAt, now)+": this life is in the history")
		if at, ok := raw.Lookup("delete_at").TimeOK(); ok {
			f.add("deleted", human.When(at, now))
		}
	}
	if t.Attempt > 0 {
		f.add("attempts", fmt.Sprintf("%d (%s, %s)", t.Attempt, human.Plural(t.ErrorCount, "error", "errors"), human.Plural(t.LapseCount, "lapse", "lapses")))
	}
	if lifecycle.Wanted(t) > 1 {
		f.add("workers", fmt.Sprintf("%d wanted, %d succeeded, %d running", lifecycle.Wanted(t), lifecycle.Successes(t), lifecycle.OpenExecutions(t)))
	}
	if p := t.Progress; p != nil {
		f.add("progress", fmt.Sprintf("%.0f %% %s (%s)", p.Percent, p.Message, human.Relative(p.At, now)))
	}
	f.add("last error", t.ErrorInfo)
	f.add("remark", t.Remark)
	f.add("arguments", valueText(secret.HideArgs(t.Type, t.Args)))
	if options := raw.Lookup("options"); options.Type != 0 {
		f.add("options", valueText(secret.HideOptions(options)))
	}
	if !t.Status.Ended() {
		f.add("in effect", optionsText(t, typ))
		f.add("next claim", nextOptionsText(t, typ))
	}
	f.add("checkpoint", valueText(t.Checkpoint))
	f.add("result", valueText(t.Result))
	f.add("callback", told.target)
	f.add("delivery", told.delivery)
	f.add("life", fmt.Sprintf("generation %d, rev %d", t.Generation, t.Rev))
	return f.String() + executionsText(t, now) + stepsText(t, now)
}

// stepsText has a line for each step of the handler that is done: its value, or how large
// it is.
func stepsText(t *model.Task, now time.Time) string {
	if len(t.Steps) == 0 {
		return ""
	}
	tab := newTable("STEP", "TRY", "WORKER", "DONE", "VALUE")
	for i := range t.Steps {
		s := &t.Steps[i]
		value := string(codec.ValueJSON(s.Value))
		if len(value) > 60 {
			value = fmt.Sprintf("%d bytes", len(value))
		}
		tab.add(s.Name, fmt.Sprint(s.Attempt), s.WorkerID, human.When(s.At, now), value)
	}
	return "\n" + tab.flush()
}

func executionsText(t *model.Task, now time.Time) string {
	if len(t.WorkerStates) == 0 {
		return ""
	}
	tab := newTable("TRY", "WORKER", "CLAIMED", "LEASE UNTIL", "END")
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		try := fmt.Sprint(w.Attempt)
		if w.LocalRetries > 0 {
			try += fmt.Sprintf(" + %d local", w.LocalRetries)
		}
		tab.add(try, w.WorkerID, human.When(w.ClaimedAt, now), human.Stamp(w.PingExpireTime), endText(w, now))
	}
	return "\n" + tab.flush()
}

func endText(w *model.WorkerState, now time.Time) string {
	switch {
	case !w.SuccessTime.IsZero():
		return "success after " + human.Rough(w.SuccessTime.Sub(w.ClaimedAt))
	case !w.FailTime.IsZero():
		s := fmt.Sprintf("%s after %s: %s", w.FailKind, human.Rough(w.FailTime.Sub(w.ClaimedAt)), human.OneLine(w.FailReason, 100))
		if w.RetryAt.After(now) {
			s += " (retry " + human.Relative(w.RetryAt, now) + ")"
		}
		return s
	case lifecycle.Lapsed(w, now):
		return "open, lease lapsed " + human.Relative(w.PingExpireTime, now)
	case w.Parked:
		return "open, parked"
	default:
		return "open"
	}
}

// valueText is a stored value as JSON for people; "" when there is none.
func valueText(v bson.RawValue) string {
	if v.Type == 0 {
		return ""
	}
	const limit = 4 << 10
	data := codec.ValueJSON(v)
	var b bytes.Buffer
	if len(data) > 60 && json.Indent(&b, data, "", "  ") == nil {
		data = b.Bytes()
	}
	if len(data) > limit {
		return strings.ToValidUTF8(string(data[:limit]), "") + fmt.Sprintf("… (%d more bytes; use -o json)", len(data)-limit)
	}
	return string(data)
}
